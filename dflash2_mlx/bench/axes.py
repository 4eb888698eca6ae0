"""Axis ticks and ranges for charts. Pure functions."""

import math
from collections.abc import Sequence

from dflash2_mlx.bench.report import Chart


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most about `most`, both ends covered."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def value_range(chart: Chart) -> tuple[float, float]:
    """The least and most y of a chart with its whiskers and its mark; the least is 0 unless a value is negative."""
    values = [v for s in chart.series for part in (s.y, s.low, s.high) for v in part]
    values += [chart.mark[0]] if chart.mark else []
    return min([0.0, *values]), max([*values, 1e-9])


def label(value: float) -> str:
    """A tick in few characters: 0.5, 20, 1.5k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:.4g}"


def positions(values: Sequence[float], *, log: bool) -> list[float]:
    """The values as they lie on the axis."""
    return [math.log2(value) if log and value > 0 else value for value in values]
