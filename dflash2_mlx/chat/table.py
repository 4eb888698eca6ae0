"""A Markdown table as lines. Knows rich's tables and the inline marks."""

import re
from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dflash2_mlx.chat.inline import read, styled
from dflash2_mlx.chat.look import THEME

_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_SPLIT = re.compile(r"(?<!\\)\|")


def is_table(rows: Sequence[str]) -> bool:
    """Whether the second of these rows is the line under a heading."""
    return len(rows) > 1 and "-" in rows[1] and bool(_DELIMITER.fullmatch(rows[1]))


def table_lines(rows: Sequence[str], width: int, rule: str = "─") -> list[Text]:
    """The rows as a table; as they are while it is open whether they are one."""
    if not is_table(rows):
        return [Text(set_cell_size(row, min(width, cell_len(row)))) for row in map(_flat, rows)]
    heading, aligned, *body = map(_cells, map(_flat, rows))
    head = box.Box(f"    \n    \n {rule}{rule} \n" + "    \n" * 5)
    table = Table(box=head, pad_edge=False, show_edge=False, header_style="bold")
    columns = max(map(len, (heading, *body)))
    for cell, mark in zip(_filled(heading, columns), _filled(aligned, columns), strict=True):
        justify = {"::": "center", "-:": "right"}.get(mark[:1] + mark[-1:], "left")
        table.add_column(_inline(cell), justify=justify)  # type: ignore[arg-type]
    for row in body:
        table.add_row(*map(_inline, _filled(row, columns)))
    console = Console(file=StringIO(), width=width, theme=THEME, legacy_windows=False)
    lines = []
    for segments in console.render_lines(table, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        lines.append(line)
    return lines


def _flat(row: str) -> str:
    """The row with a space for a tab, whose width is the terminal's."""
    return row.replace("\t", " ")


def _cells(row: str) -> list[str]:
    text = row.strip().removeprefix("|")
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return [cell.strip() for cell in _SPLIT.split(text)]


def _filled(cells: list[str], columns: int) -> list[str]:
    return (cells + [""] * columns)[:columns]


def _inline(cell: str) -> Text:
    return styled(read(cell, final=True)[0])
