"""The arithmetic of measurements: spreads, percentiles, rates, and what is beyond noise. Pure functions over floats."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES, LEVEL = 2000, 0.99
FEWEST = 5  # samples that can tell a change from noise
FLOOR = 0.03  # what differs by less is no change, however sure


@dataclass(frozen=True, slots=True)
class Spread:
    """One number measured several times: median, least, most, and every sample in its order."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """p50, p95 and p99 of `count` values; None where there are too few values to have one."""

    p50: float
    p95: float | None
    p99: float | None
    count: int


def spread(samples: Sequence[float]) -> Spread | None:
    """The spread of the samples; None where there are none."""
    if not samples:
        return None
    return Spread(statistics.median(samples), min(samples), max(samples), tuple(samples))


def median_of(found: Spread | None) -> float | None:
    """The median, where there is one."""
    return found.median if found else None


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """p50, p95, p99 of the values, each a value that was measured; None where there are none.

    A percentile that no value lies above is the maximum by another name, so it is left out.
    """
    if not values:
        return None
    found = np.quantile(values, (0.5, 0.95, 0.99), method="inverted_cdf").tolist()
    p95, p99 = (value if len(values) >= least else None for value, least in zip(found[1:], (20, 100), strict=True))
    return Percentiles(found[0], p95, p99, len(values))


def shares_of(found: Percentiles | None) -> tuple[float | None, float | None, float | None]:
    """p50, p95 and p99, where there are any."""
    return (found.p50, found.p95, found.p99) if found else (None, None, None)


def rate(count: float, seconds: float) -> float | None:
    """count / seconds; None where nothing was counted or no time passed."""
    return count / seconds if count > 0 and seconds > 0 else None


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares slope through points (x, y); 0 for fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def draws(count: int, seed: int = 0) -> NDArray[np.int64]:
    """Places among `count` values, drawn with replacement [RESAMPLES, count]: the bootstrap's, the same every time.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13 (percentile interval).
    """
    return np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))


def interval(statistic: NDArray[np.float64], level: float = LEVEL) -> tuple[float, float]:
    """The middle `level` of a statistic of all draws [RESAMPLES]."""
    low, high = np.quantile(statistic, ((1 - level) / 2, (1 + level) / 2)).tolist()
    return low, high


def beyond_noise(ratios: Sequence[float]) -> int:
    """1 where the median of the ratios is above 1 beyond noise, -1 where it is below, else 0: the rule of `changed`."""
    found = np.asarray(ratios)
    return _side(float(np.median(found)), np.median(found[draws(len(found))], axis=1))


def changed(before: Sequence[float], after: Sequence[float]) -> int:
    """1 where the median has risen beyond noise, -1 where it has fallen, else 0.

    Beyond noise: the ratio of the medians is off 1 by more than FLOOR, and its bootstrapped interval leaves 1 out.
    """
    one, other = np.asarray(before), np.asarray(after)
    old, new = (np.median(v[draws(len(v), seed)], axis=1) for seed, v in enumerate((one, other)))
    if not np.median(one) or not old.all():
        return 0
    return _side(float(np.median(other) / np.median(one)), new / old)


def _side(ratio: float, statistic: NDArray[np.float64]) -> int:
    low, high = interval(statistic)
    if abs(ratio - 1) <= FLOOR:
        return 0
    return 1 if low > 1 else -1 if high < 1 else 0


def short(value: float | None) -> str:
    """The number with about three digits, a dash where there is none."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}"
