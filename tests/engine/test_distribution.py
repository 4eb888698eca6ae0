"""Sampled tokens have the target's distribution: chi-square tests on a vocabulary of eight.

The drafter's distribution q differs from the target's p in every row. Seeds are fixed, so a test that passes keeps
passing; for a fresh seed each would fail by chance once in 10,000 runs.
"""

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.config import SamplingParams
from fakes import ToyDrafter, ToyTarget, answer
from reference import frequency_p_value, probabilities, transition_p_value

V, FALSE_ALARM = 8, 1e-4
RANDOM = np.random.default_rng(11)
TARGET = (RANDOM.normal(size=(V, V)) * 1.5).astype(np.float32)
DRAFTER = mx.array((TARGET + RANDOM.normal(size=(V, V)) * 1.2).astype(np.float32))
ALIKE = np.repeat(TARGET[:1], V, axis=0)  # every row the same: tokens are independent

FILTERS = {
    "none": {},
    "top_p 0.6": {"top_p": 0.6},
    "top_p 0.95": {"top_p": 0.95},
    "top_k 1": {"top_k": 1},
    "top_k 3": {"top_k": 3},
    "top_k 100": {"top_k": 100},
    "min_p": {"min_p": 0.1},
    "all": {"top_k": 5, "top_p": 0.9, "min_p": 0.05},
}
FAST = [("none", 1.0, 5), ("top_p 0.6", 0.3, 4), ("all", 2.0, 6)]
ALL = [(name, temperature, size) for name in FILTERS for temperature, size in ((0.3, 8), (1.0, 4), (2.0, 8))]


class GreedyLiar(ToyDrafter):
    """Drafts its likeliest candidate and reports the probabilities of a draw that it did not make."""

    def _choose(self, scores: mx.array, noise: mx.array | None) -> mx.array:
        return super()._choose(scores, None)


def sample(
    table: np.ndarray, drafter: ToyDrafter | None, sampling: SamplingParams, count: int, acceptance: str
) -> list[int]:
    """The token 0 and `count` tokens after it."""
    return [0, *answer(ToyTarget(mx.array(table)), drafter, [0], sampling, max_tokens=count, acceptance=acceptance)]


def transitions(sampling: SamplingParams, drafter: ToyDrafter | None, count: int, acceptance: str) -> float:
    """The p-value of the successive pairs of one long answer."""
    matrix = np.stack([probabilities(row, sampling) for row in TARGET])
    return transition_p_value(sample(TARGET, drafter, sampling, count, acceptance), matrix)


@pytest.mark.parametrize(("name", "temperature", "size"), FAST)
def test_rejection_draws_successive_tokens_from_the_target(name, temperature, size):
    sampling = SamplingParams(temperature=temperature, seed=size, **FILTERS[name])
    assert transitions(sampling, ToyDrafter(DRAFTER, size), 500, "rejection") > FALSE_ALARM


@pytest.mark.parametrize(("name", "temperature", "size"), FAST[:1])
def test_coupling_draws_successive_tokens_from_the_target(name, temperature, size):
    sampling = SamplingParams(temperature=temperature, seed=size, **FILTERS[name])
    assert transitions(sampling, ToyDrafter(DRAFTER, size), 500, "coupled") > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", ["rejection", "coupled"])
@pytest.mark.parametrize(("name", "temperature", "size"), ALL)
def test_long_answers_draw_successive_tokens_from_the_target(name, temperature, size, acceptance):
    sampling = SamplingParams(temperature=temperature, seed=-size, **FILTERS[name])
    drafter = ToyDrafter(DRAFTER, size, block_size=8 if size == 4 else 3)
    assert transitions(sampling, drafter, 2000, acceptance) > FALSE_ALARM


@pytest.mark.parametrize("acceptance", ["rejection", pytest.param("coupled", marks=pytest.mark.slow)])
def test_single_tokens_and_pairs_of_independent_tokens_have_their_frequencies(acceptance):
    """Two tests a rule: both fail by chance at most once in 5,000 fresh seeds."""
    sampling = SamplingParams(temperature=1.0, top_p=0.95, seed=3)
    tokens = np.array(sample(ALIKE, ToyDrafter(DRAFTER, 6), sampling, 800, acceptance)[1:])
    chances = probabilities(ALIKE[0], sampling)
    assert frequency_p_value(np.bincount(tokens, minlength=V), chances) > FALSE_ALARM
    pairs = np.bincount(tokens[0::2] * V + tokens[1::2], minlength=V * V)
    assert frequency_p_value(pairs, np.outer(chances, chances)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", ["rejection", "coupled"])
def test_the_first_tokens_of_many_seeds_have_their_frequencies(acceptance):
    """1,500 answers of three tokens, each from its own seed: a seed must not favour a token."""
    counts, drafter = np.zeros((V, V)), ToyDrafter(DRAFTER, 6)
    for seed in range(1500):
        sampling = SamplingParams(temperature=1.0, seed=seed)
        _, _, second, third = sample(ALIKE, drafter, sampling, 3, acceptance)
        counts[second, third] += 1
    chances = probabilities(ALIKE[0], SamplingParams(temperature=1.0))
    assert frequency_p_value(counts, np.outer(chances, chances)) > FALSE_ALARM


def test_plain_decoding_draws_successive_tokens_from_the_target():
    assert transitions(SamplingParams(temperature=1.0, seed=1), None, 1500, "coupled") > FALSE_ALARM


def test_the_statistic_finds_a_drafter_that_drafts_greedily_but_claims_to_sample():
    sampling = SamplingParams(temperature=1.0, seed=1)
    assert transitions(sampling, GreedyLiar(DRAFTER, 6), 500, "rejection") < 1e-9


def test_the_statistic_finds_a_temperature_that_was_ignored():
    sampling = SamplingParams(temperature=0.6, seed=1)
    tokens = sample(TARGET, None, sampling, 1500, "coupled")
    matrix = np.stack([probabilities(row, SamplingParams(temperature=1.0)) for row in TARGET])
    assert transition_p_value(tokens, matrix) < 1e-9


def test_the_drafter_of_these_tests_is_sometimes_right_and_sometimes_wrong():
    target = np.stack([probabilities(row, SamplingParams(temperature=1.0)) for row in TARGET])
    drafter = np.stack([probabilities(row, SamplingParams(temperature=1.0)) for row in np.array(DRAFTER)])
    overlap = np.minimum(target, drafter).sum(axis=1)
    assert ((overlap > 0.2) & (overlap < 0.95)).all()
