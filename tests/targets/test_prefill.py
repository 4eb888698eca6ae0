"""Prompts are taken in chunk by chunk; the chunks change neither caches nor the features that come out."""

import gc

import mlx.core as mx
import pytest

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.engine.steps import decode_plain
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.families import build_target
from dflash2_mlx.targets.limits import SMALLEST_CHUNK, Pace, smallest_chunk
from fakes import TARGET_CONFIGS, random_model, tiny_target

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


def fast(target: LayeredTarget, least: int = SMALLEST_CHUNK) -> LayeredTarget:
    """The target on a machine on which no pass takes long."""
    target.pace = Pace(least)
    target.pace.record(10**6, 1.0)
    return target


def test_a_pass_shrinks_with_the_depth_at_which_it_ends_so_that_scores_stay_small():
    target = fast(tiny_target("qwen3"))
    target._heads = 1024
    assert target.rows_at_once(2048, 2048) == 128
    assert target.rows_at_once(2048, 10**6) == 64 and target.rows_at_once(3, 10**6) == 3


def test_no_pass_over_a_deep_prompt_keeps_more_scores_than_the_bound(monkeypatch):
    """The last pass, which gives the first token, is asked for at its own depth."""
    target, passes = fast(tiny_target("qwen3")), []
    monkeypatch.setattr("dflash2_mlx.targets.limits.SCORE_BYTES", 4 * 4 * 100 * 4000)
    run = target._run

    def counted(ids, **options):
        passes.append((ids.shape[0], target.position + ids.shape[0]))
        return run(ids, **options)

    monkeypatch.setattr(target, "_run", counted)
    task = Task([5] * 4000, SamplingParams(), EngineParams(max_tokens=1))
    target.cache.position = 3000  # as after a long conversation
    list(decode_plain(target, task))
    assert sum(rows for rows, _ in passes) == 1000 and passes[-1][0] == 100
    assert all(rows * depth <= 100 * 4000 for rows, depth in passes)


def test_a_pass_takes_about_a_second_and_is_never_shorter_than_the_chip_likes():
    pace = Pace()
    assert pace.rows == 128, "before anything is known"
    for rows, seconds, then in ((128, 0.1, 1024), (512, 15.0, 64), (64, 0.9, 64), (3, 3.0, 64), (64, 0.3, 128)):
        pace.record(rows, seconds)
        assert pace.rows == then
    assert Pace(smallest_chunk(256, "M5")).rows == 1024
    assert {smallest_chunk(*other) for other in ((256, "M4"), (128, "M5"), (256, ""))} == {SMALLEST_CHUNK}


@pytest.mark.parametrize(
    ("least", "chunk", "passes"),
    [
        (64, None, [512, 88]),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1024, None, [600]), (64, 300, [300, 300]))),
    ],
)
def test_a_prompt_is_taken_in_by_512_rows_where_the_chip_wants_no_more_and_none_are_given(least, chunk, passes):
    target, found, done = fast(tiny_target("qwen3"), least), [], 0
    target.pace.record = lambda rows, seconds: None
    for end, _ in target.prefill([5] * 600, chunk=chunk, keep=0):
        found.append(end - done)
        done = end
    assert found == passes


def test_a_slow_machine_reads_in_short_passes_and_a_cancelled_prompt_ends_after_one(monkeypatch):
    """A clock that moves by 10 ms a row: the first pass, of unknown speed, takes 1.3 s, every later one under 1 s."""
    target, now = tiny_target("qwen3"), [0.0]
    monkeypatch.setattr("dflash2_mlx.targets.base.time.perf_counter", lambda: now[0])
    run = target._run

    def slow(ids, **options):
        now[0] += 0.01 * ids.shape[0]
        return run(ids, **options)

    monkeypatch.setattr(target, "_run", slow)
    ends = [done for done, _ in target.prefill([5] * 600, chunk=None, keep=0)]
    assert ends[:3] == [128, 192, 256] and target.pace.rows == 64


def held_in_a_pass(layers: int, rows: int) -> int:
    """Bytes beside weights and caches, at most, while a hybrid target of wide convolutions takes `rows` tokens in."""
    config = {**TARGET_CONFIGS["qwen3_5"], "num_hidden_layers": layers, "linear_num_value_heads": 64}
    config |= {"linear_num_key_heads": 64, "linear_key_head_dim": 2, "linear_value_head_dim": 16}
    target = fast(build_target(random_model(config), "qwen3_5", (1,)))
    mx.eval(target.module.parameters())
    gc.collect()  # what earlier tests left is not to be freed in between
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    list(target.prefill([5] * rows, chunk=None, keep=1))
    return mx.get_peak_memory() - before - target.cache.nbytes


def test_a_pass_over_a_prompt_does_not_hold_what_every_convolution_saw():
    """Measured: 15 more convolutions hold 1.8 MiB more; 11.2 MiB where their tails were left to the end of the pass."""
    input_bytes = 4 * 128 * (2 * 64 * 2 + 64 * 16)  # of one convolution
    assert held_in_a_pass(24, 128) - held_in_a_pass(4, 128) < 8 * input_bytes


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
