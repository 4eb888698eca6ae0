"""The blocks of a Markdown source, one after the other, each with what its lines begin with. Knows markdown-it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from markdown_it.token import Token

from dflash2_mlx.chat.inline import parser

_PARSER = parser()
_PARSER.core.ruler.disable(["inline", "text_join"])
_TAB = " " * 4
_TASK = re.compile(r"\[([ xX])\]\s+")
_APART = ("code", "table", "rule")
_BLANK = re.compile(r"[\s>]*")
_LEAVES = {
    "fence": "code",
    "code_block": "code",
    "hr": "rule",
    "table_open": "table",
    "paragraph_open": "text",
    "heading_open": "heading",
}


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands for `-`, `>`, `---`, `[ ]` and `[x]`. hyperlinks: whether the terminal can follow links."""

    bullet: str = "•"
    bar: str = "│"
    rule: str = "─"
    task: str = "☐"
    done: str = "☑"
    hyperlinks: bool = False


@dataclass(slots=True)
class Block:
    """A paragraph, a heading, code, a table, a rule, or an item with nothing in it.

    line, end: its source lines. root: where the top-level block, or the item of a top-level list, begins that it is
    part of. first, rest: what its lines begin with; above: the empty line in front of it. due: whether what is in front
    of it asks for that line; None where nothing is.
    """

    kind: str
    line: int
    end: int
    root: int
    first: str
    rest: str
    above: str
    style: str = ""
    content: str = ""
    language: str = ""
    due: bool | None = None

    @property
    def gap(self) -> bool:
        """Whether an empty line belongs in front of it."""
        return self.due is not None and (self.due or self.kind == "heading" or self.kind in _APART)


@dataclass(slots=True)
class _Around:
    """A quote or an item that blocks stand in. used: its first line was begun."""

    first: str
    rest: str
    lines: list[int]
    quote: bool = False
    used: bool = False


def blocks(source: str, marks: Marks, due: bool | None) -> list[Block]:
    """The blocks of `source` in order. due: of the first one."""
    lines, found = source.split("\n"), list(_blocks(_PARSER.parse(source), marks))
    for before, block in pairwise(found):
        block.due = before.kind in _APART or bool(_BLANK.fullmatch(lines[block.line - 1]))
    for block in found[:1]:
        block.due = due
    return found


def _blocks(tokens: list[Token], marks: Marks) -> Iterator[Block]:
    around: list[_Around] = []
    root = 0
    for token, inside in pairwise([*tokens, Token("", "", 0)]):
        if token.map and token.level == (token.type == "list_item_open"):
            root = token.map[0]
        if token.type == "blockquote_open":
            around.append(_Around(f"{marks.bar} ", f"{marks.bar} ", token.map or [], quote=True))
        elif token.type == "list_item_open":
            mark = f"{token.info}{token.markup} " if token.info else f"{marks.bullet} "
            around.append(_Around(mark, " " * len(mark), token.map or []))
        elif token.type in ("blockquote_close", "list_item_close"):
            if not around[-1].used and not around[-1].quote:
                yield _block("empty", around[-1].lines, around, root)
            around.pop()
        elif kind := _LEAVES.get(token.type):
            content = inside.content if inside.type == "inline" else token.content
            if kind in ("text", "heading"):
                content = _task(content.replace("\t", _TAB), around, marks)
            block = _block(kind, token.map or [], around, root)
            block.content, block.language = content, token.info.strip().partition(" ")[0]
            if kind == "heading":
                block.style += " bold underline" if token.tag == "h1" else " bold"
            yield block


def _block(kind: str, lines: list[int], around: list[_Around], root: int) -> Block:
    first = "".join(one.rest if one.used else one.first for one in around)
    above = "".join(one.rest for one in around if one.used)
    for one in around:
        one.used = True
    style = "italic" if any(one.quote for one in around) else ""
    return Block(kind, lines[0], lines[1], root, first, "".join(one.rest for one in around), above.rstrip(), style)


def _task(content: str, around: list[_Around], marks: Marks) -> str:
    """The words of a task, whose box becomes the item's mark or stands behind its number; other words as they are."""
    task = _TASK.match(content)
    if task is None or not around or around[-1].quote or around[-1].used:
        return content
    item = around[-1]
    sign = f"{marks.task if task[1] == ' ' else marks.done} "
    item.first = sign if item.first == f"{marks.bullet} " else item.first + sign
    item.rest = " " * len(item.first)
    return content[task.end() :]
