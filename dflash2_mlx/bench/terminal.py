"""A report on the terminal: the verdict and the tables, to stderr. Knows reports and rich."""

import sys

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dflash2_mlx.bench.page import cell
from dflash2_mlx.bench.report import Report, Table

_FILE_WIDTH = 140


def show(report: Report, console: Console | None = None) -> None:
    """Print the tables that fit a terminal, then the verdict, so that it is the last thing read."""
    console = console or _console()
    console.print(Text(report.title, style="bold"))
    for section in report.sections:
        if section.table and section.table.rows and not section.wide:
            console.print(_table(section.title, section.table))
    for line in report.verdict:
        console.print(Text(line), soft_wrap=True)


def _console() -> Console:
    """stderr; where it is no terminal the tables are as wide as they need."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _FILE_WIDTH)


def _table(title: str, table: Table) -> RichTable:
    shown = RichTable(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for number, name in enumerate(table.columns):
        shown.add_column(name, justify="left" if number == 0 else "right", no_wrap=number > 0, overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell(value)) for value in row))
    return shown
