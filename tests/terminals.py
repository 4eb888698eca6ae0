"""A real pseudo-terminal with the chat in it: keys go in, the screen as a person sees it comes out."""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pexpect
import pyte

ROOT = Path(__file__).parents[1]
PATIENCE_S = 30
_CHUNK = 500  # a terminal's queue holds 4096 bytes: what is typed is written in pieces, and read meanwhile
_CONTROL = re.compile(rb"\x1b\][^\x07]*\x07")  # OSC, of which pyte shows parts


_DIM, _NOT_DIM = (38, 5, 244), (39,)  # pyte knows no dim style: grey stands for it


class VisibleScreen(pyte.HistoryScreen):
    """Answers the terminal's questions, as a terminal does. Dim text is grey."""

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, rows, history=5000, ratio=0.5)
        self._answer = answer

    def select_graphic_rendition(self, *attributes: int, **options: bool) -> None:
        codes = [code for attribute in attributes for code in {2: _DIM, 22: _NOT_DIM}.get(attribute, (attribute,))]
        super().select_graphic_rendition(*codes, **options)

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """`dflash2-mlx chat` (or other `words`) in a terminal of `columns` x `rows`."""

    def __init__(
        self, *words: str, environment: Mapping[str, str] | None = None, columns: int = 80, rows: int = 24
    ) -> None:
        changes = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})}
        inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "dflash2_mlx", *(words or ("chat", "--model", "demo", "-t", "0"))],
            env={**inherited, **changes},
            dimensions=(rows, columns),
            timeout=PATIENCE_S,
        )
        self.process.delaybeforesend = None
        self.raw = b""
        self.screen = VisibleScreen(columns, rows, lambda data: self.process.send(data))
        self._stream = pyte.ByteStream(self.screen)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.close(force=True)

    def drain(self, seconds: float = 0.05) -> bool:
        """Read what came within `seconds`; False at the end of the program."""
        try:
            data = self.process.read_nonblocking(65536, timeout=seconds)
        except pexpect.TIMEOUT:
            return True
        except (pexpect.EOF, OSError):
            return False
        self.raw += data
        self._stream.feed(_CONTROL.sub(b"", data))
        return True

    def type(self, text: str) -> None:
        """Type `text`, as fast as the program takes it."""
        data = text.encode()
        for start in range(0, len(data), _CHUNK):
            self.process.send(data[start : start + _CHUNK])
            self.drain(0.01)

    def enter(self, text: str) -> None:
        """Type `text` and press Enter."""
        self.type(text)
        self.until(lambda: True)
        self.type("\r")

    def resize(self, columns: int, rows: int) -> None:
        """What the window manager does."""
        self.screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    @property
    def lines(self) -> list[str]:
        """What is visible, without the empty lines at the end."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def shown(self) -> str:
        """What is visible."""
        return "\n".join(self.lines).rstrip()

    @property
    def everything(self) -> list[str]:
        """What was scrolled out, then what is visible."""
        above = [
            "".join(row[column].data for column in range(self.screen.columns)).rstrip()
            for row in self.screen.history.top
        ]
        return above + self.lines

    def cell(self, line: str, text: str) -> pyte.screens.Char:
        """The cell where `text` begins in the visible line that contains `line`."""
        row = next(number for number, shown in enumerate(self.lines) if line in shown)
        return self.screen.buffer[row][self.lines[row].index(text)]

    def until(self, happened: Callable[[], bool], what: str = "") -> None:
        """Read until `happened`. Fails with the screen otherwise."""
        limit = time.monotonic() + PATIENCE_S
        while True:
            alive = self.drain()
            if happened():
                return
            assert alive and time.monotonic() < limit, f"waiting for {what!r}, {alive=}:\n{self.shown}"

    def see(self, text: str) -> None:
        """Read until `text` is visible."""
        self.until(lambda: text in self.shown, text)

    def ready(self, count: int = 1) -> None:
        """Read until an empty prompt is the last line, `count` prompts in all."""
        self.until(lambda: self.prompts >= count and self.shown.split("\n")[-1] in ("›", ">"), "an empty prompt")

    @property
    def prompts(self) -> int:
        """Prompts so far, the current one included."""
        return len([line for line in self.everything if line[:1] in ("›", ">")])

    def exit_code(self) -> int | None:
        """Wait for the end; the exit code, 128 + N for signal N."""
        limit = time.monotonic() + PATIENCE_S
        while self.drain():
            assert time.monotonic() < limit, f"waiting for the end:\n{self.shown}"
        self.process.wait()
        signal = self.process.signalstatus
        return self.process.exitstatus if signal is None else 128 + signal
