"""The report as one HTML page that needs nothing else: inline styles and charts, light and dark. Knows reports only."""

import re
from html import escape

from dflash2_mlx.bench.report import Cell, Chart, Ratio, Report, Section, Share, Table, cell
from dflash2_mlx.bench.svg import NARROW, STYLE, draw

_STYLE = (
    STYLE
    + """
body{margin:0 auto;max-width:66rem;padding:1.6rem 1rem 4rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:break-word}
h1{font-size:1.05rem;margin:0;color:var(--soft)}h2{font-size:1.15rem;margin:2.4rem 0 .5rem}
.about{margin:.2rem 0 1rem;font-size:1.05rem;font-weight:600}p{margin:.4rem 0;max-width:52rem}
.figures{display:flex;flex-wrap:wrap;gap:.4rem 2.4rem;margin:0 0 1rem}.figures b{display:block;font-size:2.1rem;
line-height:1.15;color:var(--dflash2)}.figures span{color:var(--soft);font-size:13px}
.warning{border:1px solid var(--loss);color:var(--loss);border-radius:4px;padding:.4rem .8rem;font-weight:600}
.verdict{background:var(--card);border-left:4px solid var(--dflash2);padding:.7rem 1rem;border-radius:4px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:.8rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .5rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom}.words{text-align:left}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--paper);white-space:normal;
min-width:6.5rem}small{color:var(--soft);margin-left:.35em}.up{color:var(--gain)}.down{color:var(--loss)}
figure{margin:1rem 0}svg{width:100%;height:auto;display:block}.narrow{display:none;max-width:30rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;font-size:13px}dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}code{font-size:.92em}
@media (max-width:760px){.narrow{display:block}.broad{display:none}dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}
small{display:none}th,td{padding:.28rem .35rem}.figures{gap:.4rem 1.2rem}.figures b{font-size:1.7rem}}
"""
)


def page(report: Report) -> str:
    """The whole document."""
    figures = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(words)}</span></div>" for value, words in report.figures
    )
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts)
    head = (
        f'<h1>{escape(report.title)}</h1><p class="about">{escape(report.about)}</p>'
        + (f'<div class="figures">{figures}</div>' if figures else "")
        + (f'<p class="warning">{_prose(report.warning)}</p>' if report.warning else "")
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body>{head}"
        f'<div class="verdict">{_paragraphs(report.verdict)}</div>{"".join(map(_section, report.sections))}'
        f"<h2>Where and how</h2><dl>{facts}</dl></body></html>\n"
    )


def _prose(line: str) -> str:
    """A line of words; what stands between backticks is what one types or sees."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line))


def _paragraphs(lines: tuple[str, ...]) -> str:
    return "".join(f"<p>{_prose(line)}</p>" for line in lines)


def _section(section: Section) -> str:
    charts = "".join(map(_chart, (chart for chart in section.charts if chart.series)))
    table = _table(section.table) if section.table and section.table.rows else ""
    return f"<h2>{escape(section.title)}</h2>{_paragraphs(section.words)}{charts}{table}"


def _chart(chart: Chart) -> str:
    """The chart twice, of which a style shows the one that fits."""
    return f'<figure><div class="broad">{draw(chart)}</div><div class="narrow">{draw(chart, NARROW)}</div></figure>'


def _table(table: Table) -> str:
    words = [any(isinstance(row[n], str) for row in table.rows) for n in range(len(table.columns))]
    kinds = [' class="words"' if word else "" for word in words]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(table.columns, kinds, strict=True))
    rows = "".join(
        "<tr>" + "".join(_cell(value, kind) for value, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(value: Cell, kind: str) -> str:
    if isinstance(value, Ratio):
        side = {1: ' class="up"', -1: ' class="down"'}.get(value.side, "")
        return f"<td><b{side}>{value}</b><small>{value.range}</small></td>"
    down = isinstance(value, Share) and value.signed and value.value < 0
    return f"<td{kind}>{escape(cell(value))}</td>" if not down else f'<td class="down">{cell(value)}</td>'
