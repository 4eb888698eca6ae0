"""Emphasis, code and links of a paragraph as styled text. Knows markdown-it's inline rules, no blocks."""

import re
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis, escape
from rich.style import Style
from rich.text import Text

STEP = 160  # characters: text that is older than two of these is settled
_STYLES = {"em": "italic", "strong": "bold", "s": "strike"}
_CLOSERS = ("***", "**", "*", "__", "_", "~~", "``", "`", ")")
_BREAK = re.compile(r"<br ?/?>")
_TRIES = 4


def _emphasis(state: StateInline, silent: bool) -> bool:
    """As markdown-it's; a star behind a Latin letter or a digit opens nothing, so that 2*3*4 keeps its stars."""
    before, known = state.src[state.pos - 1 : state.pos], len(state.delimiters)
    found = emphasis.tokenize(state, silent)
    if before.isascii() and before.isalnum():
        for delimiter in state.delimiters[known:]:
            delimiter.open = False
    return found


def _escape(state: StateInline, silent: bool) -> bool:
    r"""As markdown-it's; the backslashes of \( and \[ stay, as they begin formulas."""
    if state.src[state.pos] == "\\" and state.src[state.pos + 1 : state.pos + 2] in ("(", ")", "[", "]"):
        if not silent:
            state.pending += state.src[state.pos : state.pos + 2]
        state.pos += 2
        return True
    return escape(state, silent)


def parser() -> MarkdownIt:
    """Markdown as models write it: with tables and strikethrough, without HTML and link definitions."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")


_PARSER = parser()
_PARSER.inline.ruler.at("emphasis", _emphasis)
_PARSER.inline.ruler.at("escape", _escape)


def inline(source: str, hyperlinks: bool = False) -> Text:
    """The text without its marks, styled; a line break is a newline. hyperlinks: the terminal can follow links."""
    return _inline(source, hyperlinks).copy()


@lru_cache(maxsize=512)
def _inline(source: str, hyperlinks: bool) -> Text:
    text, opened = Text(), [("", 0, "")]  # style, where it begins, address
    for token in _PARSER.parseInline(source)[0].children or []:
        name = token.type.removesuffix("_open").removesuffix("_close")
        if token.nesting == 1:
            opened.append((_STYLES.get(name, ""), len(text), str(token.attrs.get("href", ""))))
        elif token.nesting == -1:
            style, begin, address = opened.pop()
            text.stylize(style, begin)
            if name == "link":
                _link(text, begin, address, hyperlinks)
        elif name == "image":
            begin = len(text)
            alt = "".join(child.content for child in token.children or [])
            text.append(f"[image: {alt}]" if alt else "[image]")
            _link(text, begin, str(token.attrs.get("src", "")), hyperlinks)
        elif name in ("softbreak", "hardbreak"):
            text.append("\n")
        else:
            text.append(_BREAK.sub("\n", token.content), "chat.code" if name == "code_inline" else "")
    return text


def _link(text: Text, begin: int, address: str, hyperlinks: bool) -> None:
    """Make what was written since `begin` a link; where it cannot be followed, the address stands behind it."""
    shown = _PARSER.normalizeLinkText(address)
    if len(text) == begin:
        text.append(shown)
    text.stylize("chat.link", begin)
    if hyperlinks:
        text.stylize(Style(link=address), begin)
    elif text.plain[begin:] not in (shown, address, address.removeprefix("mailto:")):
        text.append(f" ({shown})", "dim")


def preview(source: str) -> str:
    """`source` with the marks closed that it leaves open, as it may go on."""
    bare = source.rstrip("*_~`[ ")
    for _ in range(2):
        closed = _closed(bare, _CLOSERS)
        if closed == bare:
            break
        bare = closed
    return bare if len(_inline(bare, True)) < len(_inline(source, True)) else source


def settled(source: str) -> int:
    """How many characters of a long unfinished paragraph can be taken as they are now: about STEP.

    Best is a place where nothing is open, and where cutting changes nothing. Marks around another place are plain text.
    """
    spaces = [found.end() for found in re.finditer(r"\s+", source)]
    places = [at for at in reversed(spaces) if at <= STEP][:_TRIES] + [at for at in spaces if at > STEP][:_TRIES]
    whole = _inline(source, True).plain
    for at in places:
        head, tail = source[:at], source[at:]
        apart = _inline(head, True).plain + _inline(tail, True).plain
        if apart == whole and _closed(head.rstrip(), (*_CLOSERS, "](x)")) == head.rstrip():
            return at
    return (places or [STEP])[0]


def _closed(source: str, closers: tuple[str, ...]) -> str:
    """`source` with the closer that makes most marks vanish; `source` itself if none does."""
    seen = _inline(source, True).plain  # an open mark is seen
    fitting = [source + closer for closer in closers if closer[0] in seen or (closer[0] in "])" and "[" in seen)]
    return min([source, *fitting], key=lambda text: len(_inline(text, True)))
