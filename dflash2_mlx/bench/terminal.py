"""A report on the terminal: the tables and the verdict, to stderr. Knows reports and rich."""

import sys
from textwrap import fill

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dflash2_mlx.bench.report import Cell, Ratio, Report, Table, cell

_FILE_WIDTH, _ROOMY, _HEADING = 140, 110, 8
_SIDES = {1: "green", -1: "red", 0: ""}


def show(report: Report, console: Console | None = None) -> None:
    """Print the tables that fit a terminal, then the verdict, so that it is the last thing read."""
    console = console or _console()
    whole = not console.is_terminal  # in a file a line stays one, on a terminal it breaks between words
    console.print(Text(report.title, style="bold"))
    if report.about:
        console.print(Text(report.about), soft_wrap=whole)
    for section in report.sections:
        if section.table and section.table.rows and not section.wide:
            console.print(_table(section.title, section.table, roomy=console.width >= _ROOMY))
    if report.warning:
        console.print(Text(report.warning, style="yellow"), soft_wrap=whole)
    for number, line in enumerate(report.verdict):
        console.print(Text(line, style="" if number else "bold"), soft_wrap=whole)


def _console() -> Console:
    """stderr; where it is no terminal the tables are as wide as they need."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _FILE_WIDTH)


def _table(title: str, table: Table, *, roomy: bool) -> RichTable:
    rich_table = RichTable(
        title=title, title_justify="left", header_style="bold", box=None, pad_edge=False, collapse_padding=not roomy
    )
    for number, name in enumerate(table.columns):
        heading = name if roomy or number == 0 else fill(name, _HEADING)
        rich_table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=number > 0, overflow="fold")
    for row in table.rows:
        rich_table.add_row(*(_text(value, roomy=roomy) for value in row))
    return rich_table


def _text(value: Cell, *, roomy: bool) -> Text:
    """The cell; a ratio in the colour of its side, with its range where there is room."""
    if isinstance(value, Ratio):
        return Text(f"{value} ({value.range})" if roomy else str(value), style=_SIDES[value.side])
    return Text(cell(value))
