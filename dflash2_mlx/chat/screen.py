"""Lines on a terminal: finished ones are written once, the open ones below them are redrawn in place. Knows rich."""

import os
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TextIO

from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from dflash2_mlx.chat.look import Look, terminal_size
from dflash2_mlx.text.printable import printable

_MARGIN = 1  # cells left free at the right edge, so that no terminal wraps a line by itself
_NARROWEST = 10


class Screen:
    """Writes to `stream`. What is open never takes more rows than the terminal has."""

    def __init__(self, stream: TextIO, look: Look, size: Callable[[], os.terminal_size] = terminal_size) -> None:
        self.look = look
        self._stream, self._size = stream, size
        self._console = Console(file=StringIO(), theme=look.theme, legacy_windows=False)
        self._live = [""]  # the open lines as they are shown; the cursor is behind the last one
        self._columns = size().columns

    @property
    def width(self) -> int:
        """Cells of a line."""
        return max(_NARROWEST, self._size().columns - _MARGIN)

    def resized(self) -> bool:
        """Whether the width changed since the last call. If so, what is open stays as it is, and a line begins below.

        Terminals differ in what they do to lines that became too long, so that nothing there can be redrawn safely.
        """
        columns = self._size().columns
        changed, self._columns = columns != self._columns, columns
        if changed and self._live != [""]:
            self._stream.write("\n")
            self._live = [""]
        return changed

    def show(self, final: Sequence[Text], live: Sequence[Text] = ()) -> None:
        """Write the `final` lines where the open ones are, and the `live` lines below them."""
        rows = max(1, self._size().lines - 1)
        lines = [self._ansi(line) for line in final]
        opened = [self._ansi(line) for line in live[-rows:]] or [""]
        self._write([*lines, *opened])
        self._live = opened

    def say(self, text: str, style: str = "chat.note") -> None:
        """Lines of talk, wrapped; nothing may be open."""
        for line in printable(text).split("\n"):
            self.show(list(Text(line, style).wrap(self._console, self.width)) or [Text()])

    def control(self, codes: str) -> None:
        """A control sequence that shows nothing."""
        self._stream.write(codes)
        self._stream.flush()

    def _write(self, lines: list[str]) -> None:
        """Turn what is shown into `lines`: from the first line that differs, in one piece, nothing cleared first."""
        old = self._live
        same = 0
        while same < min(len(old), len(lines)) and old[same] == lines[same]:
            same += 1
        if same == len(old) == len(lines):
            return
        if same == len(old):  # the cursor is behind the last of them
            out = "\n" + _joined(lines[same:])
        elif same == len(old) - 1 and lines[same : same + 1] and lines[same].startswith(old[same]):
            out = lines[same][len(old[same]) :] + "".join("\n" + line for line in lines[same + 1 :])
        else:
            same = min(same, len(lines) - 1)
            up = len(old) - 1 - same
            out = (f"\x1b[{up}A" if up else "") + "\r" + _joined(lines[same:])
            if len(old) > len(lines):
                out += "\x1b[J"
        self._stream.write(out)
        self._stream.flush()

    def _ansi(self, line: Text) -> str:
        """The line with its styles as control sequences."""
        base = self._console.get_style(line.style)  # a text without spans is rendered without it
        parts = []
        for segment in line.render(self._console):
            style = segment.style or base
            link, style = style.link, style.update_link(None) if style.link else style  # rich would number it anew
            style = style if self.look.colour else style.without_color
            rendered = style.render(segment.text, color_system=ColorSystem.STANDARD)
            parts.append(f"\x1b]8;;{link}\x1b\\{rendered}\x1b]8;;\x1b\\" if link else rendered)
        return "".join(parts)


def _joined(lines: list[str]) -> str:
    return "\n".join(line + "\x1b[K" for line in lines)
