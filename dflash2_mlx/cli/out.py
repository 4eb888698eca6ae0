"""What goes to the terminal: the answer to stdout, talk to stderr. Knows no MLX.

No control character from outside reaches a terminal; a pipe or a file gets the answer exactly as it is.
"""

import os
import shutil
import sys
from typing import TextIO

from dflash2_mlx.text.printable import printable

_TAB = " " * 4
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def _coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class _Words:
    """Breaks a terminal's lines between words, each of them held back until it is whole."""

    def __init__(self) -> None:
        from dflash2_mlx.chat.layout import Flow

        self._flow = Flow(max(8, shutil.get_terminal_size().columns - 1))
        self._written = 0  # characters of the row that is open

    def add(self, text: str) -> str:
        """What can be written now that `text` came."""
        from rich.text import Text

        from dflash2_mlx.chat.layout import may_begin

        out = ""
        for row in self._flow.push(Text(printable(text).replace("\t", _TAB))):
            out += row.plain[self._written :] + "\n"
            self._written = 0
        open_row = self._flow.current
        words = [n for n in range(self._written + 1, len(open_row)) if may_begin(open_row, n)]
        words += [len(open_row)] * open_row.endswith(" ")
        whole = len(open_row[: max(words, default=0)].rstrip(" "))
        out += open_row[self._written : whole]
        self._written = max(self._written, whole)
        return out

    def end(self) -> str:
        """What is held back; the row is over."""
        rest = "\n".join(row.plain for row in self._flow.close())[self._written :]
        self._written = 0
        return rest


class Out:
    """Writes an answer as it comes."""

    def __init__(self) -> None:
        self._dim = _coloured(sys.stderr)
        self._words = {stream: _Words() for stream in (sys.stdout, sys.stderr) if stream.isatty()}
        self._open_line: TextIO | None = None

    def answer(self, text: str) -> None:
        """A piece of the answer, to stdout at once."""
        self._write(sys.stdout, text)

    def reasoning(self, text: str) -> None:
        """A piece of the reasoning, to stderr, dimmed where colours are welcome."""
        self._write(sys.stderr, text, (_DIM, _PLAIN) if self._dim else ("", ""))

    def note(self, text: str) -> None:
        """A line of talk to stderr."""
        self.end_line()
        print(printable(text), file=sys.stderr, flush=True)

    def document(self, text: str) -> None:
        """A whole document to stdout."""
        print(printable(text) if sys.stdout.isatty() else text, flush=True)

    def end_line(self) -> None:
        """Finish the line that the last piece left open."""
        if self._open_line:
            words = self._words.get(self._open_line)
            print(words.end() if words else "", file=self._open_line, flush=True)
            self._open_line = None

    def _write(self, stream: TextIO, text: str, style: tuple[str, str] = ("", "")) -> None:
        if not text:
            return
        if self._open_line not in (None, stream):
            self.end_line()
        words = self._words.get(stream)
        out = words.add(text) if words else text
        stream.write(f"{style[0]}{out}{style[1]}" if out else "")
        stream.flush()
        self._open_line = None if text.endswith("\n") else stream


def fail(message: str) -> None:
    """The one line of a known error."""
    print(f"dflash2-mlx: {printable(message)}", file=sys.stderr, flush=True)
