"""Reports to a folder: Markdown, one HTML page, the JSON document, a CSV a table, an SVG a chart."""

import csv
import io
from pathlib import Path

from dflash2_mlx.bench.page import page
from dflash2_mlx.bench.report import Cell, Chart, Ratio, Report, Section, Share, Table, cell
from dflash2_mlx.bench.svg import STYLE, draw


def write_report(report: Report, document: str, folder: Path) -> list[str]:
    """Write everything into `folder`, made where missing; what there is to say about it. Raises: OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"report.json": document + "\n", "report.html": page(report), "report.md": markdown(report)}
    for section in report.sections:
        if section.table and section.table.rows:
            files[f"{section.key}.csv"] = csv_text(section.table)
        files |= {name: draw(chart, style=STYLE) for name, chart in _pictures(section).items()}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [f"report: {folder / 'report.html'}"]


def markdown(report: Report) -> str:
    """The report as Markdown; charts are links to their files."""
    parts = [f"# {report.title}", report.about, *(f"**{value}** {words}" for value, words in report.figures)]
    parts += [f"**{report.warning}**" if report.warning else "", *report.verdict]
    for section in report.sections:
        parts += [f"## {section.title}", *section.words]
        parts += [f"![{chart.title}]({name})" for name, chart in _pictures(section).items()]
        if section.table and section.table.rows:
            parts.append(_markdown_table(section.table))
    parts.append("## Where and how")
    parts.append("\n".join(f"* {name}: {value}" for name, value in report.facts))
    return "\n\n".join(part for part in parts if part) + "\n"


def csv_text(table: Table) -> str:
    """The table as CSV: numbers in full, one a column; of a ratio its median, least and most."""
    ratios = {n for row in table.rows for n, value in enumerate(row) if isinstance(value, Ratio)}
    lines = io.StringIO()
    writer = csv.writer(lines)
    names = (
        (name, f"{name} least", f"{name} most") if n in ratios else (name,) for n, name in enumerate(table.columns)
    )
    writer.writerow([name for several in names for name in several])
    for row in table.rows:
        writer.writerow([number for n, value in enumerate(row) for number in _numbers(value, ratio=n in ratios)])
    return lines.getvalue()


def _numbers(value: Cell, *, ratio: bool) -> tuple[object, ...]:
    if isinstance(value, Ratio):
        return value.spread.median, value.spread.low, value.spread.high
    plain = value.value if isinstance(value, Share) else "" if value is None else value
    return (plain, "", "") if ratio else (plain,)


def _pictures(section: Section) -> dict[str, Chart]:
    """The section's charts by the name of their file."""
    charts = [chart for chart in section.charts if chart.series]
    return {f"{section.key}{f'-{n}' if n > 1 else ''}.svg": chart for n, chart in enumerate(charts, start=1)}


def _markdown_table(table: Table) -> str:
    rows = [table.columns, tuple("---" if i == 0 else "---:" for i in range(len(table.columns)))]
    rows += [tuple(_markdown_cell(value) for value in row) for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _markdown_cell(value: Cell) -> str:
    return f"{value} ({value.range})" if isinstance(value, Ratio) else cell(value).replace("|", "\\|")
