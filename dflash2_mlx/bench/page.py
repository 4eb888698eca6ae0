"""The report as one HTML page that needs nothing else: inline styles and charts, light and dark. Knows reports only."""

import re
from html import escape

from dflash2_mlx.bench.numbers import shown
from dflash2_mlx.bench.report import Cell, Report, Section, Table
from dflash2_mlx.bench.svg import draw

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#667080;--paper:#fff;--card:#f6f7f9;--rule:#dfe3e8;
--c0:#3566c9;--c1:#d97b1f;--c2:#2b8a5b;--c3:#9154b8;--c4:#0b8aa0;--c5:#8a6d3b;--loss:#c8372d}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#98a2b0;--paper:#15181c;--card:#1e2227;--rule:#343a42;
--c0:#7aa2f0;--c1:#f0a35a;--c2:#62c492;--c3:#c095e0;--c4:#53bfd3;--c5:#c4a873;--loss:#f0766d}}
body{margin:0 auto;max-width:62rem;padding:2rem 1.2rem 4rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:1.6rem;margin:0 0 .6rem}h2{font-size:1.15rem;margin:2.4rem 0 .5rem}
.verdict{background:var(--card);border-left:4px solid var(--c0);padding:.7rem 1rem;border-radius:4px}
.verdict p{margin:.25rem 0}p{margin:.4rem 0;max-width:52rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:.8rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}td.words{text-align:left}
figure{margin:1rem 0}svg{width:100%;height:auto;background:var(--card);border-radius:6px}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .title{font-weight:600;font-size:14px}
svg .tick,svg .axis{fill:var(--soft);font-size:11px}svg .value{font-size:11px}
.grid{stroke:var(--rule)}.mark{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 3}
.whisker{stroke:var(--ink);stroke-width:1.4;opacity:.65}.loss{fill:var(--loss)}
polyline{fill:none;stroke-width:2.2}.dashed{stroke-dasharray:6 4}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;font-size:13px}dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
""" + "".join(f".s{n}{{fill:var(--c{n})}}.l{n}{{stroke:var(--c{n})}}" for n in range(6))


def page(report: Report) -> str:
    """The whole document."""
    verdict = "".join(f"<p>{_prose(line)}</p>" for line in report.verdict)
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts)
    sections = "".join(map(_section, report.sections))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body><h1>{escape(report.title)}</h1>"
        f'<div class="verdict">{verdict}</div>{sections}<h2>Where and how</h2><dl>{facts}</dl></body></html>\n'
    )


def cell(value: Cell) -> str:
    """A table's cell as people read it."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else shown(value)


def _prose(line: str) -> str:
    """A line of words; what stands between backticks is what one types or sees."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line))


def _section(section: Section) -> str:
    words = "".join(f"<p>{_prose(line)}</p>" for line in section.words)
    charts = "".join(f"<figure>{draw(chart)}</figure>" for chart in section.charts if chart.series)
    table = _table(section.table) if section.table and section.table.rows else ""
    return f"<h2>{escape(section.title)}</h2>{words}{charts}{table}"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(value: Cell) -> str:
    text = cell(value)
    words = isinstance(value, str) and not any(character.isdigit() for character in value[:1])
    return f'<td class="words">{escape(text)}</td>' if words else f"<td>{escape(text)}</td>"
