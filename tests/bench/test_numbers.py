"""Percentiles, spreads and slopes."""

import pytest

from dflash2_mlx.bench.numbers import percentile, percentiles, rate, shown, slope, spread


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.95, 10), (0.99, 10), (0.0, 1), (0.1, 1), (0.11, 2)])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(share, value):
    assert percentile([10, 1, 9, 2, 8, 3, 7, 4, 6, 5], share) == value


def test_percentiles_of_one_value_are_that_value_and_of_none_are_none():
    found = percentiles([3.0])
    assert found and (found.p50, found.p95, found.p99, found.count) == (3.0, 3.0, 3.0, 1)
    assert percentiles([]) is None


def test_a_spread_keeps_the_samples_in_their_order():
    found = spread([3.0, 1.0, 2.0, 10.0])
    assert found and (found.median, found.low, found.high, found.samples) == (2.5, 1.0, 10.0, (3.0, 1.0, 2.0, 10.0))
    assert spread([]) is None


def test_a_rate_without_tokens_or_time_is_none():
    assert rate(10, 2.0) == 5.0
    assert rate(0, 2.0) is None and rate(10, 0.0) is None


def test_a_slope_is_the_least_squares_line():
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2.0)
    assert slope([(0, 0), (1, 3), (2, 3)]) == pytest.approx(1.5)
    assert slope([(1, 7)]) == slope([(1, 7), (1, 9)]) == 0.0


@pytest.mark.parametrize(
    ("value", "text"), [(123.4, "123"), (12.345, "12.3"), (0.01234, "0.0123"), (0, "0"), (None, "-"), (1.0, "1.00")]
)
def test_numbers_are_shown_with_three_digits(value, text):
    assert shown(value) == text
