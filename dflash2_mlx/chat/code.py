"""Code, highlighted line by line. Knows pygments, nothing of Markdown around it."""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, String, _TokenType
from pygments.util import ClassNotFound
from rich.text import Text

from dflash2_mlx.chat.layout import fold

WINDOW = 16  # a line is coloured in view of the 16 to 31 lines before it
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


def code_line(lines: Sequence[str], number: int, language: str, width: int) -> list[Text]:
    """Line `number` of `lines` as lines on screen, in view of those before it."""
    start = max(0, number // WINDOW - 1) * WINDOW
    source = "\n".join(lines[start : number + 1]).expandtabs(4)
    return fold(_last_line(source, language), width)


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
