"""Charts as PNG through matplotlib, an optional extra. Imported only where it is installed. Knows charts only."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dflash2_mlx.bench.numbers import shown
from dflash2_mlx.bench.report import Chart

_COLOURS = ("#3566c9", "#d97b1f", "#2b8a5b", "#9154b8", "#0b8aa0", "#8a6d3b")
_LOSS = "#c8372d"
_WIDTH, _HEIGHT, _ROW = 8.4, 3.8, 0.24  # inches


def plot(chart: Chart, path: Path) -> None:
    """Write the chart to `path`. Raises: OSError."""
    rows = len(chart.categories) * (len(chart.series) + 0.7)
    figure = Figure(
        figsize=(_WIDTH, max(2.2, 1.3 + rows * _ROW) if chart.kind == "bars" else _HEIGHT),
        dpi=130,
        layout="constrained",
    )
    axes = figure.add_subplot()
    (_bars if chart.kind == "bars" else _lines)(axes, chart)
    axes.set_title(chart.title, loc="left", fontsize=11, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    if len(chart.series) > 1:
        figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncol=3)
    figure.savefig(path)


def _bars(axes: Axes, chart: Chart) -> None:
    height = 0.8 / max(1, len(chart.series))
    for number, series in enumerate(chart.series):
        places = [x + (number - (len(chart.series) - 1) / 2) * height for x in series.x]
        loses = [chart.mark is not None and value < chart.mark[0] for value in series.y]
        colours = [_LOSS if lost else _COLOURS[number % len(_COLOURS)] for lost in loses]
        errors = [
            [y - low for y, low in zip(series.y, series.low, strict=False)],
            [high - y for y, high in zip(series.y, series.high, strict=False)],
        ]
        axes.barh(places, series.y, height * 0.9, color=colours, label=series.name, xerr=errors if series.low else None)
        tops = series.high or series.y
        for place, top, value in zip(places, tops, series.y, strict=True):
            axes.annotate(shown(value), (max(top, value), place), (4, -3), textcoords="offset points", fontsize=7)
    axes.set_yticks(range(len(chart.categories)), chart.categories)
    axes.invert_yaxis()
    axes.set_xlabel(chart.x_label, fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    if chart.mark:
        axes.axvline(chart.mark[0], color="black", linestyle="--", linewidth=1)


def _lines(axes: Axes, chart: Chart) -> None:
    for number, series in enumerate(chart.series):
        colour = _COLOURS[number % len(_COLOURS)]
        style = "--" if series.dashed else "-"
        marker = "o" if len(series.x) <= 40 else ""
        axes.plot(series.x, series.y, style, color=colour, label=series.name, marker=marker, markersize=4)
        if series.low and series.high:
            axes.vlines(series.x, series.low, series.high, color=colour, alpha=0.6)
    if chart.log:
        axes.set_xscale("log", base=2)
    spots = sorted({x for series in chart.series for x in series.x})
    if len(spots) <= 16:
        axes.set_xticks(spots, [f"{spot:g}" for spot in spots])
        axes.minorticks_off()
    axes.set_ylim(bottom=min([0.0, *(y for series in chart.series for y in series.y)]))
    axes.set_xlabel(chart.x_label, fontsize=8)
    axes.set_ylabel(chart.y_label, fontsize=8)
    axes.grid(alpha=0.3)
    if chart.mark:
        axes.axhline(chart.mark[0], color="black", linestyle="--", linewidth=1)
        axes.annotate(chart.mark[1], (1, chart.mark[0]), (-2, 3), xycoords=("axes fraction", "data"),
                      textcoords="offset points", ha="right", fontsize=7)  # fmt: skip
