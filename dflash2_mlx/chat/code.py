"""A fenced code block, highlighted line by line. Knows pygments, nothing of Markdown around it."""

from collections.abc import Mapping
from functools import cache, lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, String, _TokenType
from pygments.util import ClassNotFound
from rich.text import Text

from dflash2_mlx.chat.layout import fold

_INDENT = "  "
_WINDOW = 16  # a line is coloured in view of the 16 to 31 lines before it
_LONGEST = 2000  # characters of a line that are coloured together
_STYLES: Mapping[_TokenType, str] = {  # the terminal's own colours, those that can be read on dark and on light
    Comment: "dim italic",
    Keyword: "magenta",
    Name.Function: "bold",
    Name.Class: "bold",
    Name.Tag: "magenta",
    Number: "cyan",
    String: "green",
    Generic.Deleted: "red",
    Generic.Inserted: "green",
    Generic.Heading: "bold",
}


class CodeBlock:
    """One block. fence: what opened it. indent: spaces in front of the fence, taken from every line."""

    def __init__(self, fence: str, indent: int, language: str, width: int) -> None:
        self._fence, self._indent, self._language = fence, indent, language
        self.width = width
        self._lines: list[str] = []

    def closed_by(self, line: str) -> bool:
        """Whether `line` ends the block."""
        text = line.strip()
        return len(text) >= len(self._fence) and not text.strip(self._fence[0])

    def end_line(self, line: str) -> list[Text]:
        """The whole source line `line` as lines on screen."""
        lines = self.open(line)
        self._lines.append(self._strip(line))
        return lines

    def cut_long(self, line: str) -> tuple[list[Text], str]:
        """Lines on screen of an endless source line, and the rest of it."""
        lines: list[Text] = []
        while len(line) > _LONGEST:
            lines += self.end_line(line[:_LONGEST])
            line = line[_LONGEST:]
        return lines, line

    def open(self, line: str) -> list[Text]:
        """The unfinished source line `line` as it looks now. A line that may close the block is not shown."""
        if line.strip() and self._fence.startswith(line.strip()):
            return []
        start = max(0, len(self._lines) // _WINDOW - 1) * _WINDOW
        source = "\n".join([*self._lines[start:], self._strip(line)])
        pieces = fold(_last_line(source, self._language), self.width - len(_INDENT))
        return [Text(_INDENT).append_text(piece) for piece in pieces]

    def _strip(self, line: str) -> str:
        line = line.expandtabs(4)
        return line[min(self._indent, len(line) - len(line.lstrip(" "))) :]


@lru_cache(maxsize=4)
def _last_line(source: str, language: str) -> Text:
    """The last line of `source`, coloured in view of the others."""
    line, left = Text(), source.count("\n")
    for kind, value in _lexer(language).get_tokens(source):
        *ended, last = value.split("\n")
        for piece in ended:
            if left == 0:
                return line.append(piece, _style(kind))
            left -= 1
        if left == 0:
            line.append(last, _style(kind))
    return line


@lru_cache(maxsize=16)
def _lexer(language: str) -> Lexer:
    """The lexer of a language; plain text for an unknown one."""
    try:
        return get_lexer_by_name(language or "text", stripnl=False)
    except ClassNotFound:
        return get_lexer_by_name("text", stripnl=False)


@cache
def _style(kind: _TokenType) -> str:
    """The style of the nearest kind that has one."""
    return _STYLES.get(kind) or (_style(kind.parent) if kind.parent else "")
