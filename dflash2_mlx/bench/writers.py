"""Reports to a folder: Markdown, CSV, one HTML page, the JSON document, and PNG where matplotlib is installed."""

import csv
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path

from dflash2_mlx.bench.page import cell, page
from dflash2_mlx.bench.report import Report, Section, Table

NO_PLOTS = "no PNG plots: matplotlib is not installed. Install it: pip install 'dflash2-mlx[plots]'"


def write_report(report: Report, document: str, folder: Path) -> list[str]:
    """Write everything into `folder`, made where missing; what there is to say about it. Raises: OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(document + "\n", encoding="utf-8")
    (folder / "report.html").write_text(page(report), encoding="utf-8")
    plots, note = _plots(report, folder)
    (folder / "report.md").write_text(markdown(report, plots), encoding="utf-8")
    for section in report.sections:
        if section.table and section.table.rows:
            (folder / f"{section.key}.csv").write_text(csv_text(section.table), encoding="utf-8", newline="")
    return [f"report: {folder / 'report.html'}", *note]


def markdown(report: Report, plots: Sequence[str] = ()) -> str:
    """The report as Markdown; charts are links to the PNG files that exist."""
    parts = [f"# {report.title}", *report.verdict]
    for section in report.sections:
        parts += [f"## {section.title}", *section.words]
        pictures = (plot_name(section, number) for number in range(len(section.charts)))
        parts += [f"![{section.title}]({name})" for name in pictures if name in plots]
        if section.table and section.table.rows:
            parts.append(_markdown_table(section.table))
    parts.append("## Where and how")
    parts.append("\n".join(f"* {name}: {value}" for name, value in report.facts))
    return "\n\n".join(parts) + "\n"


def csv_text(table: Table) -> str:
    """The table as CSV, numbers in full."""
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(table.columns)
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return lines.getvalue()


def plot_name(section: Section, number: int) -> str:
    """The file name of the section's chart."""
    return f"{section.key}.png" if number == 0 else f"{section.key}-{number + 1}.png"


def _plots(report: Report, folder: Path) -> tuple[list[str], list[str]]:
    """Names of the PNG files written, and what to say."""
    if importlib.util.find_spec("matplotlib") is None:
        return [], [NO_PLOTS]
    from dflash2_mlx.bench.plots import plot

    written = []
    for section in report.sections:
        for number, chart in enumerate(section.charts):
            if chart.series:
                plot(chart, folder / plot_name(section, number))
                written.append(plot_name(section, number))
    return written, []


def _markdown_table(table: Table) -> str:
    rows = [table.columns, tuple("---" if i == 0 else "---:" for i in range(len(table.columns)))]
    rows += [tuple(cell(value).replace("|", "\\|") for value in row) for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
