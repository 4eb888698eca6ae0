"""Markdown to styled lines while it is being written. Knows layout and inline marks, nothing of a terminal.

Every source line is laid out by itself, so a finished line is final: the lines that `push` and `finish` return are the
same however the text came in pieces. Only a table waits for its last row.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.text import Text

from dflash2_mlx.chat.code import CodeBlock
from dflash2_mlx.chat.inline import preview, read, styled
from dflash2_mlx.chat.layout import Flow
from dflash2_mlx.chat.table import is_table, table_lines

_WIDEST_PROSE = 100
_TAB = " " * 4  # as wide as in code, wherever it stands
_FENCE = re.compile(r"(\s*)(`{3,}|~{3,})\s*([^`\s]*)[^`]*")
_RULE = re.compile(r"([-*_])(?:\s*\1){2,}\s*")
_HEADING = re.compile(r"(#{1,6})\s+(?=\S)")
_BULLET = re.compile(r"[-*+]\s+(?=\S)")
_NUMBER = re.compile(r"\d{1,9}[.)]\s+(?=\S)")
_QUOTE = re.compile(r"(?:>\s*)+(?=[^>\s])")
_UNDECIDED = re.compile(r"#{1,6}\s*|[-*_+][-*_+\s]*|\d{1,9}[.)]?\s*|[>\s]+|`{1,2}|~{1,2}")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a source line begins with: the prefixes of its lines on screen, its style, and the text after the marks."""

    text: str
    first: str = ""
    rest: str = ""
    style: str = ""
    spaced: bool = False  # an empty line belongs before it


@dataclass(slots=True)
class MarkdownStream:
    """Text in, lines out. width: cells of a line. bullet, bar, rule: what stands for `-`, `>` and `---`."""

    width: int
    bullet: str = "•"
    bar: str = "│"
    rule: str = "─"
    _start: str = ""  # the source line so far, while it is undecided or kept whole
    _words: "_Words | None" = None
    _code: CodeBlock | None = None
    _rows: list[str] = field(default_factory=list)
    _gap: bool = False  # an empty line is due before the next one
    _printed: bool = False

    def push(self, text: str) -> list[Text]:
        """The lines that `text` completes."""
        lines: list[Text] = []
        for number, piece in enumerate(text.split("\n")):
            if number:
                lines += self._end_line()
            if piece:
                lines += self._extend(piece)
        return lines

    def open(self) -> list[Text]:
        """How the unfinished part looks now."""
        if self._words:
            return self._words.open()
        if self._code:
            return self._code.open(self._start) if self._start else []
        rows = [*self._rows, self._start] if self._start.lstrip().startswith("|") else self._rows
        return self._spaced(table_lines(rows, self.width, self.rule)) if rows else []

    def finish(self) -> list[Text]:
        """The rest: nothing more is coming."""
        lines = self._end_line() if self._start or self._words else []
        return lines + self._end_table()

    def leave(self, width: int) -> None:
        """Another width from here on. What is open was shown and stays as it is; a table is shown again, whole."""
        self.width = width
        if self._words:
            self._words.leave(self._prose)
        elif self._code:
            self._start = ""
            self._code.width = width

    @property
    def _prose(self) -> int:
        return min(self.width, _WIDEST_PROSE)

    def _extend(self, piece: str) -> list[Text]:
        if self._words:
            return self._words.push(piece)
        self._start += piece
        if self._code:
            done, self._start = self._code.cut_long(self._start)
            return done
        opening = self._decide(self._start, whole=False)
        return self._begin(opening) if opening else []

    def _end_line(self) -> list[Text]:
        if self._words:
            lines, self._words = self._words.close(), None
            return lines
        line, self._start = self._start, ""
        if self._code:
            return self._end_code_line(line)
        if not line.strip():
            lines = self._end_table()
            self._gap = True
            return lines
        if line.lstrip().startswith("|"):
            self._rows.append(line)
            return []
        lines = self._end_table()
        fence = _FENCE.fullmatch(line)
        if fence:
            self._code = CodeBlock(fence[2], len(fence[1].expandtabs(4)), fence[3], self.width)
            self._gap = True
            return lines + self._space()
        if _RULE.fullmatch(line.strip()):
            self._gap = True
            lines += [*self._space(), Text(self.rule * self._prose, "dim")]
            self._gap = True
            return lines
        opening = self._decide(line, whole=True)
        assert opening is not None
        return lines + self._begin(opening) + self._end_line()

    def _end_code_line(self, line: str) -> list[Text]:
        assert self._code is not None
        if self._code.closed_by(line):
            self._code, self._gap = None, True
            return []
        self._printed = True
        return self._code.end_line(line)

    def _end_table(self) -> list[Text]:
        rows, self._rows = self._rows, []
        if is_table(rows):
            lines = self._spaced(table_lines(rows, self.width, self.rule))
            self._printed, self._gap = True, True
            return lines
        return [line for row in rows for line in (*self._begin(Opening(row)), *self._end_line())]

    def _begin(self, opening: Opening) -> list[Text]:
        """Open the line that `opening` begins; the lines that its text completes already."""
        lines = self._end_table() if self._rows else []
        self._gap |= opening.spaced
        lines += self._space()
        self._start = ""
        flow = Flow(self._prose, *(Text().append(mark, "chat.mark") for mark in (opening.first, opening.rest)))
        self._words = _Words(flow, opening.style)
        self._printed = True
        return lines + self._words.push(opening.text)

    def _space(self) -> list[Text]:
        due, self._gap = self._gap and self._printed, False
        return [Text()] if due else []

    def _spaced(self, lines: Iterable[Text]) -> list[Text]:
        return [*([Text()] if self._gap and self._printed else []), *lines]

    def _decide(self, line: str, *, whole: bool) -> Opening | None:
        """What the line begins with; None while that is open. `whole`: the line is complete."""
        text = line.lstrip(" \t")
        indent = line[: len(line) - len(text)].expandtabs(4)
        if not whole and (not text or text[0] == "|" or text.startswith(("```", "~~~")) or _UNDECIDED.fullmatch(text)):
            return None
        if heading := _HEADING.match(text):
            style = "bold underline" if len(heading[1]) == 1 else "bold"
            return Opening(text[heading.end() :], style=style, spaced=True)
        if bullet := _BULLET.match(text):
            return Opening(text[bullet.end() :], f"{indent}{self.bullet} ", f"{indent}  ")
        if number := _NUMBER.match(text):
            mark = number.group().rstrip() + " "
            return Opening(text[number.end() :], indent + mark, indent + " " * len(mark))
        if quote := _QUOTE.match(text):
            bars = (self.bar + " ") * quote.group().count(">")
            return Opening(text[quote.end() :], bars, bars, "italic")
        return Opening(text, indent, indent)


class _Words:
    """The text of one source line: inline marks, then layout."""

    def __init__(self, flow: Flow, style: str) -> None:
        self._flow, self._style = flow, style
        self._waiting, self._before = "", ""

    def push(self, text: str) -> list[Text]:
        return self._read(self._waiting + text.replace("\t", _TAB), final=False)

    def open(self) -> list[Text]:
        return self._flow.open(styled(preview(self._waiting, self._before), self._style))

    def close(self) -> list[Text]:
        return self._read(self._waiting, final=True) + self._flow.close()

    def leave(self, width: int) -> None:
        if preview(self._waiting, self._before):
            self._waiting = ""
        self._flow.leave(width)

    def _read(self, source: str, *, final: bool) -> list[Text]:
        pieces, count = read(source, self._before, final=final)
        if count:
            self._before, self._waiting = source[count - 1], source[count:]
        else:
            self._waiting = source
        return self._flow.add(styled(pieces, self._style))


class PlainStream:
    """Text in lines, with a style for every piece and no Markdown. Lines as of MarkdownStream."""

    def __init__(self, width: int, prefix: str = "", style: str = "") -> None:
        self._width, self._prefix, self._style = width, Text().append(prefix, style), style
        self._flow: Flow | None = None

    def push(self, text: str, style: str | None = None) -> list[Text]:
        """The lines that `text` completes."""
        lines: list[Text] = []
        for number, piece in enumerate(text.split("\n")):
            if number:
                lines += self._end_line()
            if piece:
                lines += self._current().add(Text(piece.expandtabs(4), self._style if style is None else style))
        return lines

    def open(self) -> list[Text]:
        """The line that is not complete."""
        return self._flow.open(Text()) if self._flow else []

    def finish(self) -> list[Text]:
        """The rest, if there is any."""
        return self._end_line() if self._flow else []

    def leave(self, width: int) -> None:
        """Another width from here on; what is open was shown."""
        self._width = width
        if self._flow:
            self._flow.leave(min(width, _WIDEST_PROSE))

    def _current(self) -> Flow:
        self._flow = self._flow or Flow(min(self._width, _WIDEST_PROSE), self._prefix, self._prefix)
        return self._flow

    def _end_line(self) -> list[Text]:
        lines = self._current().close()
        self._flow = None
        return lines
