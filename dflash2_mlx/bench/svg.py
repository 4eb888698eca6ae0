"""Charts as SVG, inside the report's page and as files of their own. Knows charts only.

Text has the size that it says, so a chart is drawn anew for a narrow page and not shrunk. Colours are those of STYLE.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from textwrap import wrap

from dflash2_mlx.bench.numbers import short
from dflash2_mlx.bench.report import Chart, Series

WIDE, NARROW = 840, 356
_LIGHT = (
    "--ink:#1b1f24;--soft:#5b6472;--paper:#fff;--card:#f6f7f9;--rule:#dfe3e8;--loss:#c8372d;--gain:#1f7a4d;"
    "--plain:#8a93a0;--dflash1:#d97b1f;--dflash2:#3566c9;"
    "--0:#2b8a5b;--1:#9154b8;--2:#0b8aa0;--3:#8a6d3b;--4:#c2528b;--5:#6b7a1f"
)
_DARK = (
    "--ink:#e6e8eb;--soft:#a3acb9;--paper:#15181c;--card:#1e2227;--rule:#343a42;--loss:#f0766d;--gain:#62c492;"
    "--plain:#8d96a3;--dflash1:#f0a35a;--dflash2:#7aa2f0;"
    "--0:#62c492;--1:#c095e0;--2:#53bfd3;--3:#c4a873;--4:#e58ab8;--5:#b3c265"
)
_COLOURS = ("plain", "dflash1", "dflash2", *"012345")
STYLE = (
    f":root{{color-scheme:light dark;{_LIGHT}}}@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    "svg{background:var(--card);border-radius:6px}svg text{fill:var(--ink);font:12px system-ui,sans-serif;"
    "paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}"
    "svg .title{font-weight:600;font-size:14px}svg .soft{fill:var(--soft);font-size:11px}.grid{stroke:var(--rule)}"
    ".mark{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 3}.dot{fill:var(--ink);opacity:.5}"
    ".loss{fill:var(--loss)}.faint{opacity:.45}polyline{fill:none;stroke-width:2.2}.dashed{stroke-dasharray:6 4}"
) + "".join(f".f-{name}{{fill:var(--{name})}}.l-{name}{{stroke:var(--{name})}}" for name in _COLOURS)
_BAR, _GAP, _ROW, _LETTER = 14, 12, 17, 6.6  # pixels; a letter at 12 px
_PLOT_HEIGHT, _FEW = 250, 40  # points that each get a dot
Scale = Callable[[float], float]


def draw(chart: Chart, width: int = WIDE, style: str = "") -> str:
    """The chart as an <svg> element. style: a sheet of its own, for a file that stands alone."""
    head, top = _head(chart, width)
    parts, bottom = (_bars if chart.kind == "bars" else _lines)(chart, width, top)
    parts.append(_text(width / 2, bottom + 33, chart.x_label, "middle", "soft"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 42:.0f}" role="img" '
        f'aria-label="{escape(chart.title, quote=True)}">{f"<style>{style}</style>" if style else ""}'
        f"{''.join([*head, *parts])}</svg>"
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, about `most` of them at most."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def span(chart: Chart) -> tuple[float, float]:
    """Where the axis of values begins and ends: at 0 unless a value is negative, and just beyond the largest."""
    values = [v for s in chart.series for part in (s.y, *s.samples) for v in part]
    values += [chart.mark[0]] if chart.mark else []
    low, high = min([0.0, *values]), max([0.0, *values])
    return low, high + ((high - low) * 0.04 or 1.0)


def _label(value: float) -> str:
    """A tick in few characters: 0.5, 20, 15k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:.4g}"


def _colour(series: Series, number: int) -> str:
    return series.colour or str(number % 6)


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    shape = f' class="{kind}"' if kind else ""
    return f'<text{shape} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _dots(places: Sequence[tuple[float, float]], kind: str, radius: float) -> list[str]:
    return [f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in places]


def _head(chart: Chart, width: int) -> tuple[list[str], float]:
    """Title and legend, in as many lines as they need, and where the plot begins."""
    lines = wrap(chart.title, int((width - 16) / 7.6)) or [""]
    parts = [_text(8, 18 + _ROW * n, line, kind="title") for n, line in enumerate(lines)]
    x, y = 8.0, 26.0 + _ROW * (len(lines) - 1)
    for number, series in enumerate(chart.series if len(chart.series) > 1 else ()):
        name = series.name if len(series.name) * _LETTER < width - 32 else series.name[: int(width / _LETTER) - 6] + "…"
        if x > 8 and x + 24 + _LETTER * len(name) > width:
            x, y = 8.0, y + _ROW
        kind = f"f-{_colour(series, number)}{' faint' if series.faint or series.dashed else ''}"
        parts += [
            f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="11" height="11" rx="2"/>',
            _text(x + 16, y + 10, name),
        ]
        x += 34 + _LETTER * len(name)
    if chart.y_label:
        y += _ROW if len(chart.series) > 1 else 0
        parts.append(_text(8, y + 10, chart.y_label, kind="soft"))
    return parts, y + (34 if chart.mark and chart.kind == "bars" else 22)


def _bars(chart: Chart, width: int, top: float) -> tuple[list[str], float]:
    """Lying bars, a group for each category, the value at the end; what stays below the mark is coloured as a loss."""
    above = _ROW if width == NARROW else 0  # the category's name stands over its bars where there is no room beside
    left = 8 if above else 16 + _LETTER * max(map(len, chart.categories), default=4)
    low, high = span(chart)
    group = len(chart.series) * _BAR + _GAP + above
    bottom = top + group * len(chart.categories)

    def place(value: float) -> float:
        return left + (value - low) * (width - left - 52) / (high - low)

    parts = []
    for tick in ticks(low, high, 4 if above else 8):
        parts += [_line(place(tick), top - 4, place(tick), bottom, "grid")]
        parts += [_text(place(tick), bottom + 15, _label(tick), "middle", "soft")]
    names = []  # written last, so that no line runs through them
    for row, category in enumerate(chart.categories):
        y = top + row * group
        names.append(
            _text(left, y + 11, category) if above else _text(left - 8, y + (group - _GAP) / 2 + 3, category, "end")
        )
        for number, series in enumerate(chart.series):
            if row in series.x:
                parts += _bar(chart, (number, series.x.index(row)), place, y + above + number * _BAR)
    if chart.mark:
        at = place(chart.mark[0])
        parts += [_line(at, top - 6, at, bottom, "mark"), _text(at + 5, top - 8, chart.mark[1], kind="soft")]
    return [*parts, *names], bottom


def _bar(chart: Chart, which: tuple[int, int], place: Scale, y: float) -> list[str]:
    """One bar with its samples and value; `which`: the number of the series, and of the point in it."""
    series = chart.series[which[0]]
    value, samples = series.y[which[1]], series.samples[which[1]] if series.samples else ()
    loses = chart.mark is not None and value < chart.mark[0]
    kind = ("loss" if loses else f"f-{_colour(series, which[0])}") + (" faint" if series.faint else "")
    start, end = sorted((place(0.0), place(value)))
    rect = f'<rect class="{kind}" x="{start:.1f}" y="{y:.1f}" width="{end - start:.1f}" height="{_BAR - 3}" rx="2"/>'
    dots = _dots([(place(sample), y + (_BAR - 3) / 2) for sample in samples], "dot", 1.8)
    return [rect, *dots, _text(max(place(v) for v in (0.0, value, *samples)) + 6, y + _BAR - 4, short(value))]


def _lines(chart: Chart, width: int, top: float) -> tuple[list[str], float]:
    """Lines with points and samples over a numeric axis."""
    low, high = span(chart)
    marks = ticks(low, high, 5)
    bottom, right = top + _PLOT_HEIGHT, width - 16
    left = 16 + _LETTER * max(len(_label(tick)) for tick in marks)
    spots = sorted({x for series in chart.series for x in series.x}) or [0.0, 1.0]
    x_low, x_high = _on_axis(chart, spots[0]), _on_axis(chart, spots[-1])

    def place_x(value: float) -> float:
        return left + 12 + (_on_axis(chart, value) - x_low) / ((x_high - x_low) or 1.0) * (right - left - 24)

    def place_y(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - top)

    parts = []
    for tick in marks:
        parts += [_line(left, place_y(tick), right, place_y(tick), "grid")]
        parts += [_text(left - 7, place_y(tick) + 4, _label(tick), "end", "soft")]
    few = len(spots) * 34 <= width
    for spot in spots if few else ticks(spots[0], spots[-1], 6 if width == NARROW else 10):
        parts.append(_text(place_x(spot), bottom + 16, _label(spot), "middle", "soft"))
    if chart.mark:
        at = place_y(chart.mark[0])
        parts += [_line(left, at, right, at, "mark"), _text(right - 4, at - 5, chart.mark[1], "end", "soft")]
    for number, series in enumerate(chart.series):
        points = [(place_x(x), place_y(y)) for x, y in zip(series.x, series.y, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        colour, dashed = _colour(series, number), " dashed" if series.dashed else ""
        parts.append(f'<polyline class="l-{colour}{dashed}" points="{path}"/>')
        for (x, _), samples in zip(points, series.samples, strict=False):
            parts += _dots([(x, place_y(sample)) for sample in samples], "dot", 1.8)
        parts += _dots(points, f"f-{colour}", 3.2) if len(points) <= _FEW else []
    return parts, bottom


def _on_axis(chart: Chart, x: float) -> float:
    return math.log2(x) if chart.log and x > 0 else x
