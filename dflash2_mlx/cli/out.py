"""What goes to the terminal: the answer to stdout, talk to stderr. Knows no MLX."""

import os
import sys
from typing import TextIO

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def _coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Out:
    """Writes an answer as it comes."""

    def __init__(self) -> None:
        self._dim = _coloured(sys.stderr)
        self._open_line: TextIO | None = None

    def answer(self, text: str) -> None:
        """A piece of the answer, to stdout at once."""
        self._write(sys.stdout, text)

    def reasoning(self, text: str) -> None:
        """A piece of the reasoning, to stderr, dimmed where colours are welcome."""
        self._write(sys.stderr, f"{_DIM}{text}{_PLAIN}" if self._dim else text)

    def note(self, text: str) -> None:
        """A line of talk to stderr."""
        self.end_line()
        print(text, file=sys.stderr, flush=True)

    def document(self, text: str) -> None:
        """A whole document to stdout."""
        print(text, flush=True)

    def end_line(self) -> None:
        """Finish the line that the last piece left open."""
        if self._open_line:
            print(file=self._open_line, flush=True)
            self._open_line = None

    def _write(self, stream: TextIO, text: str) -> None:
        if not text:
            return
        if self._open_line not in (None, stream):
            self.end_line()
        stream.write(text)
        stream.flush()
        self._open_line = None if text.endswith("\n") else stream


def fail(message: str) -> None:
    """The one line of a known error."""
    print(f"dflash2-mlx: {message}", file=sys.stderr, flush=True)
