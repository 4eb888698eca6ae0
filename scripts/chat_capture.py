"""What the chat looks like: drives `dflash2-mlx chat` with the bundled pair in a terminal, and writes what it shows.

`python scripts/chat_capture.py FOLDER` writes chat.txt and chat.svg there. Needs the dev extra (pexpect, pyte).
"""

import argparse
import os
import sys
import time
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pexpect
import pyte
from rich.console import Console
from rich.text import Text

QUESTIONS = (
    "Write a Python function that reverses a string.",
    "/think hide",
    "What is speculative decoding?",
    "/tokens",
)
PATIENCE_S = 60
_DIM, _NOT_DIM = (38, 5, 244), (39,)  # pyte knows no dim style: grey stands for it


class _Screen(pyte.Screen):
    def select_graphic_rendition(self, *attributes: int, **options: bool) -> None:
        codes = [code for attribute in attributes for code in {2: _DIM, 22: _NOT_DIM}.get(attribute, (attribute,))]
        super().select_graphic_rendition(*codes, **options)


class Terminal:
    """The chat in a terminal of `columns` x `rows`."""

    def __init__(self, columns: int, rows: int, home: str) -> None:
        self.screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": home}
        environment.pop("NO_COLOR", None)
        self._process = pexpect.spawn(
            sys.executable,
            ["-m", "dflash2_mlx", "chat", "--model", "demo", "--temperature", "0"],
            env={**environment, "PROMPT_TOOLKIT_NO_CPR": "1"},
            dimensions=(rows, columns),
        )

    @property
    def lines(self) -> list[str]:
        """What is visible, without the empty lines at the end."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().split("\n")

    def ready(self, prompts: int) -> None:
        """Read until the empty prompt number `prompts` is the last line."""
        limit = time.monotonic() + PATIENCE_S
        while self.lines[-1] != "›" or sum(line.startswith("›") for line in self.lines) < prompts:
            if time.monotonic() > limit:
                raise SystemExit("the chat did not come to its prompt:\n" + "\n".join(self.lines))
            try:
                self._stream.feed(self._process.read_nonblocking(65536, timeout=0.1))
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                raise SystemExit("the chat ended:\n" + "\n".join(self.lines)) from None

    def enter(self, text: str) -> None:
        """Type a line and press Enter."""
        self._process.send(text)
        time.sleep(0.3)
        self._process.send("\r")

    def close(self) -> None:
        """End the chat."""
        self._process.close(force=True)

    def styled(self) -> Text:
        """What is visible, in its colours."""
        text = Text()
        for row in range(len(self.lines)):
            for column in range(self.screen.columns):
                cell = self.screen.buffer[row][column]
                text.append(cell.data, _style(cell))
            text.append("\n")
        return text


def _style(cell: pyte.screens.Char) -> str:
    colour = {"default": "", "brown": "yellow"}.get(cell.fg, cell.fg)
    colour = f"#{colour}" if len(colour) == 6 and not colour.isalpha() else colour
    words = [colour, "bold" if cell.bold else "", "italic" if cell.italics else ""]
    return " ".join([*words, "underline" if cell.underscore else ""]).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where chat.txt and chat.svg go")
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--rows", type=int, default=40)
    asked = parser.parse_args()
    with TemporaryDirectory() as home:
        terminal = Terminal(asked.columns, asked.rows, home)
        try:
            terminal.ready(1)
            for number, question in enumerate(QUESTIONS, start=2):
                terminal.enter(question)
                terminal.ready(number)
        finally:
            terminal.close()
    asked.folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(terminal.lines) + "\n"
    (asked.folder / "chat.txt").write_text(text, encoding="utf-8")
    console = Console(record=True, width=asked.columns, file=StringIO(), force_terminal=True)
    console.print(terminal.styled(), end="", highlight=False)
    console.save_svg(str(asked.folder / "chat.svg"), title="dflash2-mlx chat")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
