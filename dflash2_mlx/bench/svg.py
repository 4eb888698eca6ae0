"""Charts as SVG for the report's page: colours and fonts come from the page's style sheet. Knows charts only."""

from collections.abc import Callable, Sequence
from html import escape

from dflash2_mlx.bench.axes import label, positions, ticks, value_range
from dflash2_mlx.bench.numbers import shown
from dflash2_mlx.bench.report import Chart, Series

_WIDTH, _HEIGHT = 760, 330
_TOP, _RIGHT, _BOTTOM = 46, 24, 46
_BAR, _GAP = 15, 12
_LEGEND_ROW = 18
_CHARACTER = 6.6  # pixels of a letter at 12 px
COLOURS = 6


def draw(chart: Chart) -> str:
    """The chart as an <svg> element."""
    return _bars(chart) if chart.kind == "bars" else _lines(chart)


def _svg(chart: Chart, height: float, parts: Sequence[str]) -> str:
    """The element, with the legend under the title where there is more than one series; it moves the chart down."""
    legend, rows = _legend(chart.series) if len(chart.series) > 1 else ([], 1)
    down = _LEGEND_ROW * (rows - 1)
    title = f'<text class="title" x="8" y="17">{escape(chart.title)}</text>'
    name = escape(chart.title, quote=True)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height + down:.0f}" role="img" aria-label="{name}" '
        f'xmlns="http://www.w3.org/2000/svg">{title}{"".join(legend)}<g transform="translate(0,{down})">'
        f"{''.join(parts)}</g></svg>"
    )


def _legend(series: Sequence[Series]) -> tuple[list[str], int]:
    """Every series' colour and name, in as many rows as they need, and how many those are."""
    parts, x, row = [], 8.0, 0
    for number, entry in enumerate(series):
        width = 34 + _CHARACTER * len(entry.name)
        if x > 8 and x + width > _WIDTH:
            x, row = 8.0, row + 1
        y = 28 + _LEGEND_ROW * row
        parts.append(f'<rect class="s{number % COLOURS}" x="{x:.0f}" y="{y}" width="11" height="11" rx="2"/>')
        parts.append(_text(x + 16, y + 10, entry.name))
        x += width
    return parts, row + 1


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    shape = f' class="{kind}"' if kind else ""
    return f'<text{shape} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _bars(chart: Chart) -> str:
    """Lying bars, a group for each category, the value at the end; what stays below the mark is coloured as a loss."""
    left = 16 + _CHARACTER * max(map(len, chart.categories), default=4)
    marks = ticks(*value_range(chart))
    scale = (_WIDTH - left - _RIGHT - 70) / (marks[-1] - marks[0])
    group = len(chart.series) * _BAR + _GAP
    bottom = _TOP + group * len(chart.categories)

    def place(value: float) -> float:
        return left + (value - marks[0]) * scale

    parts = []
    for tick in marks:
        parts += [_line(place(tick), _TOP - 4, place(tick), bottom, "grid")]
        parts += [_text(place(tick), bottom + 15, label(tick), "middle", "tick")]
    for row, category in enumerate(chart.categories):
        y = _TOP + row * group
        parts.append(_text(left - 8, y + (group - _GAP) / 2 + 4, category, "end"))
        for number, series in enumerate(chart.series):
            parts += _bar(chart, (number, series, row), place, y + number * _BAR)
    if chart.mark:
        at = place(chart.mark[0])
        parts += [_line(at, _TOP - 6, at, bottom, "mark"), _text(at + 5, _TOP - 10, chart.mark[1], kind="tick")]
    parts.append(_text((left + _WIDTH) / 2, bottom + 33, chart.x_label, "middle", "axis"))
    return _svg(chart, bottom + 42, parts)


def _bar(chart: Chart, which: tuple[int, Series, int], place: Callable[[float], float], y: float) -> list[str]:
    """One bar with whisker and value; `which`: the series' number, the series, the category's row."""
    number, series, row = which
    if row not in series.x:
        return []
    index = series.x.index(row)
    value = series.y[index]
    loses = chart.mark is not None and value < chart.mark[0]
    kind = "loss" if loses else f"s{number % COLOURS}"
    start, end = sorted((place(0.0), place(value)))
    parts = [f'<rect class="{kind}" x="{start:.1f}" y="{y:.1f}" width="{end - start:.1f}" height="{_BAR - 3}" rx="2"/>']
    right = end
    if series.low and series.high:
        middle, right = y + (_BAR - 3) / 2, max(end, place(series.high[index]))
        parts.append(_line(place(series.low[index]), middle, place(series.high[index]), middle, "whisker"))
    return [*parts, _text(right + 6, y + _BAR - 5, shown(value), kind="value")]


def _lines(chart: Chart) -> str:
    """Lines with points and whiskers over a numeric axis."""
    low, high = value_range(chart)
    marks = ticks(low, high)
    left = 22 + _CHARACTER * max(len(label(tick)) for tick in marks)
    spots = sorted({x for series in chart.series for x in positions(series.x, log=chart.log)}) or [0.0, 1.0]
    x_low, x_high = spots[0], spots[-1] if spots[-1] > spots[0] else spots[0] + 1
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT

    def place_x(value: float) -> float:
        return left + 12 + (value - x_low) / (x_high - x_low) * (right - left - 24)

    def place_y(value: float) -> float:
        return bottom - (value - marks[0]) / (marks[-1] - marks[0]) * (bottom - _TOP - 10)

    parts = []
    for tick in marks:
        parts += [_line(left, place_y(tick), right, place_y(tick), "grid")]
        parts += [_text(left - 7, place_y(tick) + 4, label(tick), "end", "tick")]
    named = {p: x for s in chart.series for p, x in zip(positions(s.x, log=chart.log), s.x, strict=True)}
    for spot in spots if len(spots) <= 16 else [t for t in ticks(x_low, x_high, 10) if x_low <= t <= x_high]:
        parts.append(_text(place_x(spot), bottom + 16, label(named.get(spot, spot)), "middle", "tick"))
    if chart.mark:
        at = place_y(chart.mark[0])
        parts += [_line(left, at, right, at, "mark"), _text(right - 4, at - 5, chart.mark[1], "end", "tick")]
    for number, series in enumerate(chart.series):
        points = [(place_x(x), place_y(y)) for x, y in zip(positions(series.x, log=chart.log), series.y, strict=True)]
        ends = [(place_y(a), place_y(b)) for a, b in zip(series.low, series.high, strict=True)]
        parts += _curve(points, ends, f"l{number % COLOURS}{' dashed' if series.dashed else ''}", number % COLOURS)
    parts.append(_text((left + right) / 2, _HEIGHT - 8, chart.x_label, "middle", "axis"))
    parts.append(f'<text class="axis" text-anchor="end" x="{right}" y="17">{escape(chart.y_label)}</text>')
    return _svg(chart, _HEIGHT, parts)


def _curve(points: list[tuple[float, float]], ends: list[tuple[float, float]], kind: str, number: int) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline class="{kind}" points="{path}"/>']
    parts += [_line(x, low, x, high, "whisker") for (x, _), (low, high) in zip(points, ends, strict=False)]
    if len(points) <= 40:
        parts += [f'<circle class="s{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>' for x, y in points]
    return parts
