"""Prompts are taken in chunk by chunk; the chunks change neither caches nor the features that come out."""

import mlx.core as mx
import pytest

from dflash2_mlx.targets.base import LayeredTarget
from fakes import tiny_target

PROMPT = [(11 * i + 3) % 512 for i in range(30)]
FAMILIES = ["qwen3_5", "qwen3"]


@pytest.fixture(scope="module", params=FAMILIES)
def target(request) -> LayeredTarget:
    return tiny_target(request.param)


def whole(target: LayeredTarget) -> mx.array:
    """The features of all prompt tokens in one pass."""
    target.reset()
    ((_, features),) = target.prefill(PROMPT, chunk=2048, keep=None)
    return features


SIZES = [(chunk, keep) for chunk in (8, 16, 29, 2048) for keep in (1, 15, 100)]


@pytest.mark.parametrize(
    ("chunk", "keep"), [(1, 15), *SIZES[:2], *(pytest.param(*size, marks=pytest.mark.slow) for size in SIZES[2:])]
)
def test_every_chunk_brings_the_features_of_its_last_rows_so_that_closing_is_safe(target, chunk, keep):
    expected, start = whole(target), 0
    target.reset()
    for done, features in target.prefill(PROMPT, chunk=chunk, keep=keep):
        assert target.position == done
        assert mx.array_equal(features, expected[max(start, done - keep) : done])
        start = done
    assert start == 30


@pytest.mark.parametrize("chunk", [7, 15, 2048])
def test_without_a_limit_every_chunk_brings_its_own_features(target, chunk):
    expected = whole(target)
    target.reset()
    parts = list(target.prefill(PROMPT, chunk=chunk, keep=None))
    assert [done for done, _ in parts] == [*range(chunk, 30, chunk), 30]
    assert mx.array_equal(mx.concatenate([features for _, features in parts]), expected)


def test_no_features_come_out_where_none_are_asked_for(target):
    target.reset()
    assert [features for _, features in target.prefill(PROMPT, chunk=10, keep=0)] == [None, None, None]


@pytest.mark.parametrize("chunk", [3, 16])
def test_the_logits_after_a_prompt_do_not_depend_on_the_chunks(target, chunk):
    expected = None
    for size in (2048, chunk):
        target.reset()
        list(target.prefill(PROMPT, chunk=size, keep=0))
        logits = target.verify(mx.array([9, 8])).logits
        expected = logits if expected is None else expected
    assert mx.array_equal(logits, expected)


def test_the_position_counts_the_tokens_that_are_in_after_each_chunk(target):
    target.reset()
    positions = [(done, target.position) for done, _ in target.prefill(PROMPT, chunk=12, keep=15)]
    assert positions == [(12, 12), (24, 24), (30, 30)]


def test_an_empty_prompt_takes_no_step(target):
    target.reset()
    assert list(target.prefill([], chunk=20, keep=15)) == []
    assert target.position == 0


def test_a_prompt_in_two_calls_equals_one(target):
    whole(target)
    expected = target.verify(mx.array([9])).logits
    target.reset()
    list(target.prefill(PROMPT[:13], chunk=5, keep=0))
    list(target.prefill(PROMPT[13:], chunk=20, keep=0))
    assert mx.array_equal(target.verify(mx.array([9])).logits, expected)


def test_chunks_shrink_with_depth_so_that_scores_stay_small():
    target = tiny_target("qwen3")
    target._heads = 1024
    assert target.rows_at_once(2048) == 128
    target.cache.position = 10**6
    assert target.rows_at_once(2048) == 64
    assert target.rows_at_once(3) == 3


@pytest.mark.parametrize("before", [0, 29, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 10))])
@pytest.mark.parametrize("keep", [None, 4])
def test_the_last_tokens_of_a_prompt_bring_the_logits_after_it_and_their_features(target, before, keep):
    features = whole(target)
    expected = target.verify(mx.array([7])).logits
    target.reset()
    list(target.prefill(PROMPT[:before], chunk=8, keep=0))
    forward = target.enter(PROMPT[before:], keep=keep)
    tail = 30 - before if keep is None else min(keep, 30 - before)
    assert forward.logits.shape[0] == 1 and target.position == 30
    assert mx.array_equal(forward.features, features[30 - tail :])
    assert mx.array_equal(target.verify(mx.array([7])).logits, expected)
    target.commit(0)
    target.reset()
    list(target.prefill(PROMPT[:-1], chunk=2048, keep=0))
    assert mx.array_equal(forward.logits, target.verify(mx.array(PROMPT[-1:])).logits)
