"""The arithmetic of measurements: medians, spreads, percentiles, rates. Pure functions over floats."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """One number measured several times: median, least, most, and every sample in its order."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...]

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.low)}-{shown(self.high)})"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """p50, p95 and p99 of `count` values."""

    p50: float
    p95: float
    p99: float
    count: int


def spread(samples: Sequence[float]) -> Spread | None:
    """The spread of the samples; None where there are none."""
    if not samples:
        return None
    return Spread(statistics.median(samples), min(samples), max(samples), tuple(samples))


def median_of(found: Spread | None) -> float | None:
    """The median, where there is one."""
    return found.median if found else None


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed (nearest rank).

    `values` must not be empty.
    """
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """p50, p95, p99 of the values; None where there are none."""
    if not values:
        return None
    return Percentiles(percentile(values, 0.5), percentile(values, 0.95), percentile(values, 0.99), len(values))


def shares_of(found: Percentiles | None) -> tuple[float | None, float | None, float | None]:
    """p50, p95 and p99, where there are any."""
    return (found.p50, found.p95, found.p99) if found else (None, None, None)


def rate(count: float, seconds: float) -> float | None:
    """count / seconds; None where nothing was counted or no time passed."""
    return count / seconds if count > 0 and seconds > 0 else None


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares slope through points (x, y); 0 for fewer than two different x."""
    if len(points) < 2:
        return 0.0
    mean_x, mean_y = (sum(p[axis] for p in points) / len(points) for axis in (0, 1))
    weight = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / weight if weight else 0.0


def shown(value: float | None) -> str:
    """The number with about three digits, a dash where there is none."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}"
