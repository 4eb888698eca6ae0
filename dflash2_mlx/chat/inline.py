"""Emphasis, code and links inside one line of Markdown, read while the line grows. Knows strings and styles.

What is decided stays decided: a mark that is not closed within LIMIT characters of its line is plain text, so the
result does not depend on how the line came in pieces.
"""

import re

from rich.text import Text

LIMIT = 400
Piece = tuple[str, str]  # text, style
_PLAIN = re.compile(r"[^\\`*_~\[]+")
_ESCAPED = frozenset("*_`~#|>")
_STYLES = {1: "italic", 2: "bold", 3: "bold italic"}
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s]*)\)")
_HALF_LINK = re.compile(r"\[[^\[\]]*(\](\([^()\s]*)?)?")
_OPENED = re.compile(r"(`+|\*{1,3}|_|~~)(.+)", re.DOTALL)


def read(source: str, before: str = "", *, final: bool, style: str = "") -> tuple[list[Piece], int]:
    """The decided pieces at the start of `source`, and how many characters they stand for.

    before: the character in front of `source`. final: nothing follows, so everything is decided.
    """
    pieces: list[Piece] = []
    at = 0
    while at < len(source):
        plain = _PLAIN.match(source, at)
        if plain:
            pieces.append((plain.group(), style))
            at = plain.end()
            continue
        found = _mark(source, at, source[at - 1] if at else before, final, style)
        if found is None:
            break
        pieces += found[0]
        at = found[1]
    return pieces, at


def preview(source: str, before: str = "") -> list[Piece]:
    """How undecided text looks meanwhile: as if its first mark were closed right behind it."""
    opened = _OPENED.fullmatch(source)
    if opened:
        mark = opened[1]
        source = source.rstrip(mark[0] + " ") + mark
        if len(source) <= 2 * len(mark):
            return []
    elif source[:1] != "[":
        return []
    return read(source, before, final=True)[0]


def styled(pieces: list[Piece], base: str = "") -> Text:
    """The pieces as one text, each in its own style on top of `base`."""
    return Text.assemble(*((text, f"{base} {style}".strip()) for text, style in pieces))


def _mark(source: str, at: int, before: str, final: bool, style: str) -> tuple[list[Piece], int] | None:
    """The pieces from the special character at `at`, and where they end; None while it is undecided."""
    window = source[at : at + LIMIT]
    whole = final or len(window) == LIMIT
    match source[at]:
        case "\\":
            found = _escape(window, whole)
        case "[":
            found = _link(window, whole)
        case "`":
            found = _code(window, whole)
        case _:
            found = _emphasis(window, before, whole)
    if found is None:
        return None
    pieces, length = found
    return [(text, f"{style} {own}".strip()) for text, own in pieces], at + length


Found = tuple[list[Piece], int] | None


def _escape(window: str, whole: bool) -> Found:
    if len(window) == 1 and not whole:
        return None
    return ([(window[1], "")], 2) if window[1:2] in _ESCAPED and len(window) > 1 else ([("\\", "")], 1)


def _link(window: str, whole: bool) -> Found:
    link = _LINK.match(window)
    if link:
        name, address = link[1], link[2]
        shown: list[Piece] = [(name or address, "chat.link")]
        return (shown if name in ("", address) else [*shown, (f" ({address})", "dim")]), link.end()
    if not whole and _HALF_LINK.fullmatch(window):
        return None
    return [("[", "")], 1


def _code(window: str, whole: bool) -> Found:
    run = len(window) - len(window.lstrip("`"))
    if run == len(window) and not whole:
        return None
    closing = re.compile(rf"(?<!`)`{{{run}}}(?!`)").search(window, run)
    if closing is None or (closing.end() == len(window) and not whole):
        return ([(window[:run], "")], run) if whole else None
    inside = window[run : closing.start()]
    spaced = inside[:1] == inside[-1:] == " " and inside.strip()
    return [(inside[1:-1] if spaced else inside, "chat.code")], closing.end()


def _emphasis(window: str, before: str, whole: bool) -> Found:
    character = window[0]
    run = len(window) - len(window.lstrip(character))
    if run == len(window) and not whole:
        return None
    literal = ([(window[:run], "")], run)
    if not _opens(window, run, before):
        return literal
    after = r"(?![_\w])" if character == "_" else rf"(?!{re.escape(character)})"
    mark = re.escape(window[:run])
    closing = re.compile(rf"(?<![\s\\{re.escape(character)}]){mark}{after}").search(window, run + 1)
    if closing is None or (closing.end() == len(window) and not whole):
        return literal if whole else None
    own = "strike" if character == "~" else _STYLES[run]
    inside, _ = read(window[run : closing.start()], character, final=True)
    return [(text, f"{own} {inner}".strip()) for text, inner in inside], closing.end()


def _opens(window: str, run: int, before: str) -> bool:
    """Whether a run of marks can open emphasis: before a word, and not inside one (2**8, snake_case, __init__)."""
    if run > 3 or window[run : run + 1].strip() == "":
        return False
    if window[0] == "~":
        return run == 2
    if window[0] == "_":
        return run == 1 and not before.isalnum()
    return not (before.isalnum() and before.isascii())
