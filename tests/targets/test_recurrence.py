"""The gated-delta rule in plain operations, beside mlx-lm's."""

import mlx.core as mx
import pytest
from mlx_lm.models.gated_delta import gated_delta_ops

from dflash2_mlx.targets.recurrence import GROUP, stepwise

HEADS, SHARED, DIM = 2, 2, 8


def inputs(rows: int) -> tuple[tuple[mx.array, ...], mx.array, mx.array, mx.array]:
    """(q, k, v), decay, beta and a state."""
    mx.random.seed(rows)
    q, k = (mx.random.normal((1, rows, HEADS, DIM)) for _ in range(2))
    v = mx.random.normal((1, rows, HEADS * SHARED, DIM))
    decay, beta = (mx.random.uniform(shape=(1, rows, HEADS * SHARED)) for _ in range(2))
    return (q, 0.3 * k, v), decay, beta, mx.random.normal((1, HEADS * SHARED, DIM, DIM))


@pytest.mark.parametrize("rows", [1, 5, GROUP, GROUP + 1, 3 * GROUP])
@pytest.mark.parametrize("begun", [True, False])
def test_outputs_and_every_state_are_those_of_mlx_lm(rows, begun):
    qkv, decay, beta, state = inputs(rows)
    before = state if begun else None
    out, groups = stepwise(qkv, decay, beta, before)
    zeros = mx.zeros(state.shape)
    expected, _ = gated_delta_ops(*qkv, decay, beta, state if begun else zeros)
    assert mx.array_equal(out, expected)
    after = mx.concatenate(groups, axis=1)
    assert after.shape[1] == rows
    for row in range(rows):
        parts = [part[:, : row + 1] for part in (*qkv, decay, beta)]
        assert mx.array_equal(after[:, row], gated_delta_ops(*parts, state if begun else zeros)[1])
