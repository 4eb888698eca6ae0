"""A Markdown table as lines. Knows rich's tables and the inline marks."""

import re
from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dflash2_mlx.chat.inline import inline
from dflash2_mlx.chat.look import THEME

_BAR = re.compile(r"\\.|(`+).*?(?<!`)\1(?!`)|(\|)")


def cells(row: str) -> list[str]:
    """The cells of a row, also of one with more of them than the heading; a bar inside code parts nothing."""
    text = row.replace("\t", " ").strip(" >")
    found: list[str] = []
    begin = 0
    for bar in (match for match in _BAR.finditer(text) if match[2]):
        found.append(text[begin : bar.start()])
        begin = bar.end()
    found.append(text[begin:])
    found = found[not found[0].strip() : len(found) - (not found[-1].strip())]
    return [cell.strip().replace("\\|", "|") for cell in found]


def table_lines(rows: Sequence[str], width: int, rule: str = "─", hyperlinks: bool = False) -> list[Text]:
    """The source lines of a table, the line under the heading included, as lines on screen."""
    heading, aligned, *body = map(cells, rows)
    head = box.Box(f"    \n    \n {rule}{rule} \n" + "    \n" * 5)
    table = Table(box=head, pad_edge=False, show_edge=False, header_style="bold")
    columns = max(map(len, (heading, *body)))
    for cell, mark in zip(_filled(heading, columns), _filled(aligned, columns), strict=True):
        justify = {"::": "center", "-:": "right"}.get(mark[:1] + mark[-1:], "left")
        table.add_column(inline(cell, hyperlinks), justify=justify)  # type: ignore[arg-type]
    for row in body:
        table.add_row(*(inline(cell, hyperlinks) for cell in _filled(row, columns)))
    console = Console(file=StringIO(), width=width, theme=THEME, legacy_windows=False)
    lines = []
    for segments in console.render_lines(table, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        lines.append(line)
    return lines


def _filled(row: list[str], columns: int) -> list[str]:
    return (row + [""] * columns)[:columns]
