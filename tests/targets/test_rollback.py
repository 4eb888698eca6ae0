"""After a block is cut back, caches and logits are those of a run that never saw the rejected rows."""

import random

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.families import build_target
from dflash2_mlx.targets.recurrence import GROUP
from fakes import TAPS, tiny_model, tiny_target

FAMILIES = ["qwen3_5", "qwen3", "llama"]
PROMPT = [(7 * i + 3) % 512 for i in range(20)]
BLOCK = [5, 400, 17, 17, 230, 99, 0, 511]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request) -> tuple[LayeredTarget, LayeredTarget]:
    """Two targets over the same weights, each with caches of its own."""
    model = tiny_model(request.param)
    return build_target(model, request.param, TAPS), build_target(model, request.param, TAPS)


def fresh(target: LayeredTarget, tokens: list[int]) -> LayeredTarget:
    """The target with exactly `tokens` in its cache, taken in at once."""
    target.reset()
    list(target.prefill(tokens, chunk=2048, keep=0))
    return target


def states(target: LayeredTarget) -> list[mx.array]:
    """Keys, values, convolution windows and recurrent states of all layers; a window of zeros is an empty one."""
    filled = [cache for cache in target.cache.layers if not cache.empty()]
    parts = [part for c in filled for part in (c.cache if isinstance(c, ArraysCache) else c.keys_and_values())]
    return [part for part in parts if part is not None and mx.any(part != 0).item()]


def assert_same(one: LayeredTarget, other: LayeredTarget) -> None:
    """Equal positions, caches and following logits, bit for bit."""
    assert one.position == other.position
    mine, theirs = states(one), states(other)
    assert len(mine) == len(theirs)
    assert all(mx.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    following = mx.array([42, 7, 300])
    assert mx.array_equal(one.verify(following).logits, other.verify(following).logits)
    one.commit(0)
    other.commit(0)


@pytest.mark.parametrize("kept", range(len(BLOCK) + 1))
def test_committing_some_rows_equals_a_fresh_run_of_the_kept_prefix(pair, kept):
    target, reference = pair
    fresh(target, PROMPT).verify(mx.array(BLOCK))
    target.commit(kept)
    assert_same(target, fresh(reference, PROMPT + BLOCK[:kept]))


@pytest.mark.parametrize("kept", [GROUP, GROUP + 1])
def test_a_block_wider_than_a_group_of_states_is_cut_back_too(pair, kept):
    target, reference = pair
    wide = [(11 * i + 5) % 512 for i in range(GROUP + 3)]
    fresh(target, PROMPT).verify(mx.array(wide))
    target.commit(kept)
    assert_same(target, fresh(reference, PROMPT + wide[:kept]))


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("evaluated", [False, True])
def test_a_block_on_an_empty_cache_is_cut_back_too(pair, kept, evaluated):
    target, reference = pair
    target.reset()
    forward = target.verify(mx.array(BLOCK[:2]))
    if evaluated:
        mx.eval(forward.logits, forward.features)
    target.commit(kept)
    assert_same(target, fresh(reference, BLOCK[:kept]))


@pytest.mark.parametrize("prompt", [1, 2, 3, 4])
def test_prompts_shorter_than_the_convolution_are_cut_back_too(pair, prompt):
    target, reference = pair
    fresh(target, PROMPT[:prompt]).verify(mx.array(BLOCK))
    target.commit(2)
    assert_same(target, fresh(reference, PROMPT[:prompt] + BLOCK[:2]))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_many_rounds_of_random_widths_and_commits_leave_no_trace(pair, seed):
    target, reference = pair
    dice, kept = random.Random(seed), list(PROMPT)
    fresh(target, PROMPT)
    for _ in range(20):
        block = [dice.randrange(512) for _ in range(dice.randrange(1, 9))]
        count = dice.randrange(len(block) + 1)
        mx.eval(target.verify(mx.array(block)).logits)
        target.commit(count)
        kept += block[:count]
    assert_same(target, fresh(reference, kept))


def test_rollback_undoes_an_uncommitted_block_and_only_that(pair):
    target, reference = pair
    fresh(target, PROMPT).verify(mx.array(BLOCK))
    target.commit(0)
    target.commit(0)
    assert_same(target, fresh(reference, PROMPT))


def test_a_second_block_before_the_first_is_committed_is_a_bug(pair):
    target, _ = pair
    fresh(target, PROMPT).verify(mx.array(BLOCK))
    with pytest.raises(AssertionError, match="not committed"):
        target.verify(mx.array(BLOCK))
    target.commit(0)


def test_more_rows_than_were_verified_cannot_be_committed(pair):
    target, _ = pair
    fresh(target, PROMPT).verify(mx.array(BLOCK[:3]))
    with pytest.raises(AssertionError):
        target.commit(4)
    target.commit(0)


def test_reset_empties_the_cache_and_drops_a_pending_block():
    target = fresh(tiny_target("qwen3_5"), PROMPT)
    held = target.cache.nbytes
    target.verify(mx.array(BLOCK))
    target.reset()
    assert held > 0
    assert (target.position, target.cache.nbytes) == (0, 0)
    target.verify(mx.array(BLOCK))
