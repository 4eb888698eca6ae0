"""Markdown to styled lines while it is being written. Knows blocks and their layout, nothing of a terminal.

The lines that `push` and `finish` return are final, and the same however the text came in pieces: whole blocks, code
line by line, the older part of a long paragraph. Only a table waits for its last row.
"""

import re
from dataclasses import dataclass, field, replace

from rich.text import Text

from dflash2_mlx.chat.blocks import Block, Marks, blocks
from dflash2_mlx.chat.code import WINDOW, code_line
from dflash2_mlx.chat.inline import STEP, inline, preview, settled
from dflash2_mlx.chat.layout import Flow, fitting
from dflash2_mlx.chat.table import table_lines

WIDEST_PROSE = 100
_INDENT = "  "  # of code
_LONGEST = 2000  # characters of a line of code
_STANDS_FOR = "\ue000"  # a letter, for the settled part of a paragraph
_UNDECIDED = re.compile(r"[\s>#*+\-_=~`|:]*(\d{1,9}[.)]?)?[\s|:\-]*")  # the start of a line that may become anything
_FENCE = re.compile(r" {0,3}(```|~~~)")
_MAYBE_FENCE = re.compile(r"\s*(`+|~+)\s*")


@dataclass(frozen=True, slots=True)
class _Place:
    """How far the lines came out: all blocks before the source line `line`, and of the one there `done` characters of
    text or lines of code, `flow` holding its last line. flow None: nothing of it."""

    line: int = 0
    done: int = 0
    flow: Flow | None = None


@dataclass(slots=True)
class MarkdownStream:
    """Text in, lines out. width: cells of a line."""

    width: int
    marks: Marks = field(default_factory=Marks)
    _source: str = ""  # from the start of the block that is open
    _due: bool | None = None  # whether an empty line belongs before it; None where nothing does
    _place: _Place = field(default_factory=_Place)
    _in_code: bool = False

    def push(self, text: str) -> list[Text]:
        """The lines that `text` completes."""
        lines: list[Text] = []
        while text:
            partial = len(self._source) - self._source.rfind("\n") - 1
            most = _LONGEST - partial if self._in_code else STEP - partial % STEP
            size = min(text.find("\n") + 1 or len(text), most)
            self._source += text[:size]
            if self._source.endswith("\n") or (size == most and partial + size > STEP):
                lines += self._advance()
            if self._in_code and partial + size == _LONGEST:
                self._source += "\n"
                lines += self._advance()
            text = text[size:]
        return lines

    def open(self) -> list[Text]:
        """How the unfinished part looks now."""
        found = self._blocks(self._visible())
        if found and found[-1].kind in ("text", "heading"):
            done = self._place.done if found[-1].line == self._place.line else 0
            content = found[-1].content
            found[-1] = replace(found[-1], content=content[:done] + preview(content[done:]))
        return self._lines(found, whole=True)[0]

    def finish(self) -> list[Text]:
        """The rest: nothing more is coming."""
        lines, _ = self._lines(self._blocks(self._source), whole=True)
        self._source, self._place, self._due, self._in_code = "", _Place(), None, False
        return lines

    def leave(self, width: int) -> None:
        """Another width from here on. What is open was shown and stays as it is; a table is shown again, whole."""
        self.width = width
        found = self._blocks(self._visible())
        if not found or found[-1].kind == "table":
            return
        last = found[-1]
        flow = Flow(self._prose, *(_mark(last.rest) for _ in range(2)))
        self._place = _Place(last.line, len(last.content), flow)
        if last.kind == "code":
            self._source = self._source[: self._source.rfind("\n") + 1]
            self._place = replace(self._place, done=last.content.count("\n"))

    @property
    def _prose(self) -> int:
        return min(self.width, WIDEST_PROSE)

    def _visible(self) -> str:
        """The source without a last line that may still become anything."""
        begin = self._source.rfind("\n") + 1
        undecided = _MAYBE_FENCE if self._in_code else _UNDECIDED
        return self._source[:begin] if undecided.fullmatch(self._source, begin) else self._source

    def _blocks(self, source: str) -> list[Block]:
        return blocks(source, self.marks, self._due)

    def _advance(self) -> list[Text]:
        """The lines that are final by now. Of the source, what is needed no more is forgotten."""
        found = self._blocks(self._source)
        if not found:
            return []
        lines, self._place = self._lines(found, whole=False)
        last = found[-1]
        self._in_code = last.kind == "code"
        if last.root:
            self._due = next(block.due for block in found if block.root == last.root)
            self._source = "\n".join(self._source.split("\n")[last.root :])
            self._place = replace(self._place, line=max(0, self._place.line - last.root))
        elif not last.rest and last.kind == "text" and self._place.done:
            tail = self._source[len(self._source.rstrip()) :]
            self._source = _STANDS_FOR + last.content[self._place.done :] + tail
            self._place = replace(self._place, done=1)
        elif not last.rest and self._place.done > 4 * WINDOW and _FENCE.match(self._source):
            opening, *code = self._source.split("\n")
            self._source = "\n".join([opening, *code[2 * WINDOW :]])
            self._place = replace(self._place, done=self._place.done - 2 * WINDOW)
        return lines

    def _lines(self, found: list[Block], *, whole: bool) -> tuple[list[Text], _Place]:
        """The lines of the blocks from `_place` on, and where that leads. whole: the last block is at its end, too."""
        lines: list[Text] = []
        place = self._place
        for block in found:
            if block.line < place.line:
                continue
            begun = block.line == place.line and place.flow is not None
            start = place if begun else _Place(block.line, 0, Flow(self._prose, _mark(block.first), _mark(block.rest)))
            ended = whole or block is not found[-1]
            more, after = self._block(block, start, ended)
            if ended or after.done:
                gap = block.gap and not begun
                lines += [*([_mark(block.above)] if gap else []), *more]
                place = _Place(block.line + 1) if ended else after
        return lines, place

    def _block(self, block: Block, place: _Place, ended: bool) -> tuple[list[Text], _Place]:
        """The lines of a block from `place` on, and where that leads. ended: nothing can be added to it."""
        if block.kind == "code":
            return self._code(block, place, ended)
        if block.kind in ("table", "rule"):
            return self._unbroken(block) if ended else [], place
        assert place.flow is not None
        flow, done, lines = place.flow.copy(), place.done, []
        while len(rest := block.content[done:]) > (0 if ended else STEP * 3 // 2):
            size = len(rest) if ended else settled(rest)
            text = inline(rest[:size], self.marks.hyperlinks)
            text.style = block.style
            lines += flow.push(text)
            done += size
        return lines + (flow.close() if ended else []), _Place(block.line, done, flow)

    def _code(self, block: Block, place: _Place, ended: bool) -> tuple[list[Text], _Place]:
        code = block.content.removesuffix("\n").split("\n") if block.content else []
        whole = ended or self._source.endswith("\n") or block.end <= self._source.count("\n")
        count = len(code) if whole else len(code) - 1
        width = self.width - len(block.rest) - len(_INDENT)
        lines: list[Text] = []
        for number in range(place.done, count):
            for row in code_line(code, number, block.language, width):
                first = not (lines or place.done)
                lines.append(_behind((block.first if first else block.rest) + _INDENT, row, self.width))
        return lines, replace(place, done=max(count, place.done))

    def _unbroken(self, block: Block) -> list[Text]:
        """A table or a rule."""
        cells = max(1, self.width - len(block.rest))
        if block.kind == "rule":
            rows = [Text(self.marks.rule * min(cells, self._prose), "dim")]
        else:
            source = self._source.split("\n")[block.line : block.end]
            rows = table_lines(source, cells, self.marks.rule, self.marks.hyperlinks)
        return [_behind(block.rest if n else block.first, row, self.width) for n, row in enumerate(rows)]


def _mark(text: str) -> Text:
    return Text().append(text, "chat.mark")


def _behind(mark: str, line: Text, width: int) -> Text:
    return fitting(_mark(mark), width).append_text(line)
