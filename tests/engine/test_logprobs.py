"""Logprobs are the target's raw log-softmax, the same with and without drafting."""

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.events import Round, TokenLogprob
from fakes import ToyDrafter, ToyTarget, rounds_of, tiny_drafter
from reference import log_softmax

TABLE = np.random.default_rng(3).normal(size=(40, 40)).astype(np.float32) * 2
PROMPT = [9, 4, 4, 7]


def logprobs(rounds: list[Round]) -> list[TokenLogprob]:
    assert all(len(r.logprobs) == len(r.tokens) for r in rounds)
    return [entry for r in rounds for entry in r.logprobs]


def toy() -> ToyTarget:
    return ToyTarget(mx.array(TABLE))


def drafter() -> ToyDrafter:
    return ToyDrafter(mx.array(TABLE), 30)


@pytest.mark.parametrize("top", [0, 1, 3, 20])
@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.7, "top_k": 5, "seed": 1}, {"repetition_penalty": 1.5, "logit_bias": {3: 9.0}}],
    ids=["greedy", "sampled", "penalised"],
)
def test_they_are_numpys_log_softmax_of_the_raw_logits(top, settings):
    entries = logprobs(rounds_of(toy(), drafter(), [1], SamplingParams(logprobs=top, **settings), max_tokens=40))
    previous, raw = 1, log_softmax(TABLE)
    for entry in entries:
        assert entry.logprob == pytest.approx(raw[previous, entry.token], abs=1e-5)
        assert [token for token, _ in entry.top] == np.argsort(-raw[previous])[:top].tolist()
        assert [value for _, value in entry.top] == pytest.approx(np.sort(raw[previous])[::-1][:top], abs=1e-5)
        previous = entry.token


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_tokens_and_logprobs_belong_together(acceptance):
    sampling = SamplingParams(temperature=1.0, seed=2, logprobs=3)
    rounds = rounds_of(toy(), drafter(), [1], sampling, max_tokens=40, acceptance=acceptance)
    assert [entry.token for entry in logprobs(rounds)] == [t for r in rounds for t in r.tokens]
    assert max(r.accepted for r in rounds) > 0


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 4}], ids=["greedy", "sampled"])
def test_drafted_logprobs_equal_plain_ones_to_the_last_bit(target_of, settings):
    target, sampling = target_of("qwen3_5"), SamplingParams(logprobs=5, **settings)
    plain = logprobs(rounds_of(target, None, PROMPT, sampling, max_tokens=15))
    assert logprobs(rounds_of(target, tiny_drafter(target), PROMPT, sampling, max_tokens=15)) == plain


def test_the_likeliest_come_first():
    for entry in logprobs(rounds_of(toy(), drafter(), [1], SamplingParams(logprobs=20), max_tokens=20)):
        values = [value for _, value in entry.top]
        assert values == sorted(values, reverse=True)
        assert len({token for token, _ in entry.top}) == 20


def test_zero_asks_for_the_tokens_own_logprob_only():
    entries = logprobs(rounds_of(toy(), drafter(), [1], SamplingParams(logprobs=0), max_tokens=10))
    assert len(entries) == 10
    assert all(entry.top == () and entry.logprob < 0 for entry in entries)


def test_without_the_parameter_there_are_none():
    assert all(r.logprobs == () for r in rounds_of(toy(), drafter(), [1], max_tokens=10))


def test_more_than_the_vocabulary_gives_the_whole_vocabulary():
    small = ToyTarget(mx.array(TABLE[:8, :8]))
    rounds = rounds_of(small, ToyDrafter(mx.array(TABLE[:8, :8]), 8), [1], SamplingParams(logprobs=20), max_tokens=10)
    for entry in (entry for r in rounds for entry in r.logprobs):
        assert sorted(token for token, _ in entry.top) == list(range(8))
        assert np.exp([value for _, value in entry.top]).sum() == pytest.approx(1.0, abs=1e-4)


def test_logprobs_do_not_change_the_text(target_of):
    target = target_of("qwen3")
    texts = [
        [
            t
            for r in rounds_of(target, tiny_drafter(target), PROMPT, SamplingParams(logprobs=n), max_tokens=15)
            for t in r.tokens
        ]
        for n in (None, 0, 20)
    ]
    assert texts[0] == texts[1] == texts[2]
