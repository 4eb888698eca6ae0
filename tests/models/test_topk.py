"""The search for the largest entries against NumPy's full sort."""

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.models.topk import largest


def check(rows: np.ndarray, count: int) -> None:
    ids, values = (np.array(part) for part in largest(mx.array(rows), count))
    assert ids.shape == values.shape == (rows.shape[0], count)
    assert (ids < rows.shape[1]).all()
    assert all(len(set(row)) == count for row in ids.tolist())
    assert np.array_equal(np.take_along_axis(rows, ids.astype(np.int64), axis=1), values)
    assert np.array_equal(-np.sort(-values, axis=1), -np.sort(-rows, axis=1)[:, :count])


@pytest.mark.parametrize("count", [1, 4, 16, 20])
@pytest.mark.parametrize("width", [20, 128, 511, 512, 4096, 4097, 5120, 5247, 8321])
def test_the_largest_are_those_of_a_full_sort(width, count):
    check(np.random.default_rng(width + count).normal(size=(3, width)).astype(np.float32), count)


@pytest.mark.parametrize("width", [512, 4097, 5120])
def test_ties_give_distinct_ids_and_the_right_values(width):
    check(np.random.default_rng(0).integers(0, 3, size=(4, width)).astype(np.float32), 16)


def test_equal_rows_give_distinct_ids():
    check(np.zeros((2, 5120), dtype=np.float32), 16)


def test_the_largest_may_all_share_one_chunk():
    rows = np.random.default_rng(0).normal(size=(2, 5120)).astype(np.float32)
    rows[:, 256:272] += 100
    check(rows, 16)


@pytest.mark.parametrize("width", [512, 5120])
def test_minus_infinity_sorts_last(width):
    rows = np.full((2, width), -np.inf, dtype=np.float32)
    rows[:, 7 : 7 + 20] = np.arange(20)
    check(rows, 16)


@pytest.mark.parametrize("finite", [0, 1, 15])
@pytest.mark.parametrize("width", [511, 4097, 5247])
def test_ids_stay_inside_the_row_where_fewer_entries_are_finite_than_asked_for(width, finite):
    rows = np.full((2, width), -np.inf, dtype=np.float32)
    rows[:, width - finite :] = 1.0
    check(rows, 16)


def test_bfloat16_rows_are_searched_in_their_own_precision():
    rows = mx.random.normal((2, 4097)).astype(mx.bfloat16)
    ids, values = largest(rows, 16)
    assert values.dtype == mx.bfloat16
    assert mx.array_equal(mx.sort(values, axis=-1), mx.sort(rows, axis=-1)[:, -16:])
    assert mx.array_equal(mx.take_along_axis(rows, ids, axis=-1), values)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_random_shapes_and_counts_equal_a_full_sort(seed):
    random = np.random.default_rng(seed)
    width = int(random.integers(1, 20_000))
    rows = random.normal(size=(int(random.integers(1, 5)), width)).astype(np.float32)
    if seed % 3 == 0:
        rows = np.round(rows)
    check(rows, int(random.integers(1, min(width, 64) + 1)))
