"""Filters, penalties and noise, each against its definition in NumPy."""

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.engine.randomness import gumbel_rows, uniform_rows
from dflash2_mlx.engine.sampling import Sampler, log_weights
from dflash2_mlx.errors import UsageError
from reference import kept_tokens, log_softmax, penalised

FILTERS = [
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 20},
    {"top_k": 100},
    {"top_p": 0.0},
    {"top_p": 0.1},
    {"top_p": 0.6},
    {"top_p": 0.95},
    {"top_p": 1.0},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 20, "top_p": 0.9},
    {"top_k": 20, "min_p": 0.05},
    {"top_k": 30, "top_p": 0.9, "min_p": 0.02},
]


def params(**changes: object) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "seed": 0, **changes})


def kept(row: list[float], **changes: object) -> list[int]:
    """The tokens that survive the filters in one row of logits."""
    weights = log_weights(mx.array([row], dtype=mx.float32), params(**changes))
    return [token for token, weight in enumerate(weights[0].tolist()) if weight != -np.inf]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_filters_keep_what_their_definition_keeps(filters, temperature):
    logits = (np.random.default_rng(0).normal(size=(3, 50)) * 3).astype(np.float32)
    weights = np.array(log_weights(mx.array(logits), params(temperature=temperature, **filters)))
    scaled = logits / np.float32(temperature)
    expected = np.stack([kept_tokens(row, params(**filters)) for row in scaled])
    assert np.array_equal(weights > -np.inf, expected)
    assert np.allclose(weights[expected], scaled[expected], rtol=1e-6)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_of_a_wide_vocabulary_differ_from_their_definition_by_rounding_only(filters):
    logits = (np.random.default_rng(0).normal(size=(1, 5000)) * 2).astype(np.float32)
    weights = np.array(log_weights(mx.array(logits), params(**filters)))
    top_p = filters.get("top_p", 1.0)
    bounds = (
        [{**filters, "top_p": min(1.0, max(0.0, top_p + error))} for error in (-1e-5, 1e-5)]
        if top_p < 1
        else [filters] * 2
    )
    fewest, most = (np.stack([kept_tokens(row, params(**bound)) for row in logits]) for bound in bounds)
    assert (weights > -np.inf)[fewest].all()
    assert not (weights > -np.inf)[~most].any()


def test_exactly_k_survive_ties_and_the_lower_ids_win():
    assert kept([1, 5, 3, 3, 3, 3, 0], top_k=3) == [1, 2, 3]
    assert kept([2, 2, 2, 2], top_k=3) == [0, 1, 2]


def test_ties_of_bfloat16_logits_are_cut_at_exactly_k():
    logits = mx.random.normal((4, 10_000), key=mx.random.key(0)).astype(mx.bfloat16).astype(mx.float32)
    for k in (1, 20, 64):
        assert (log_weights(logits, params(top_k=k)) > -mx.inf).sum(axis=-1).tolist() == [k] * 4


def test_top_p_keeps_the_token_that_crosses_the_threshold():
    row = np.log([0.5, 0.3, 0.15, 0.05]).tolist()
    assert kept(row, top_p=0.4) == [0]
    assert kept(row, top_p=0.55) == [0, 1]
    assert kept(row, top_p=0.9) == [0, 1, 2]
    assert kept(row, top_p=0.96) == [0, 1, 2, 3]


def test_top_p_cuts_ties_at_the_lower_ids():
    assert kept([0.0, 0.0, 0.0, 0.0], top_p=0.6) == [0, 1, 2]


def test_top_p_counts_only_what_top_k_left():
    row = np.log([0.4, 0.3, 0.2, 0.1]).tolist()
    assert kept(row, top_p=0.5) == [0, 1]
    assert kept(row, top_p=0.5, top_k=2) == [0]


def test_temperature_comes_before_the_filters():
    row = np.log([0.5, 0.3, 0.2]).tolist()
    assert kept(row, top_p=0.6) == [0, 1]
    assert kept(row, top_p=0.6, temperature=0.2) == [0]
    assert kept(row, min_p=0.5, temperature=5.0) == [0, 1, 2]


def test_min_p_is_relative_to_the_likeliest_token():
    assert kept(np.log([0.6, 0.31, 0.09]).tolist(), min_p=0.5) == [0, 1]


PENALTIES = [
    {"repetition_penalty": 1.7},
    {"presence_penalty": 1.1},
    {"frequency_penalty": 0.7},
    {"logit_bias": {0: 4.0, 5: -3.0}},
    {"repetition_penalty": 1.7, "presence_penalty": 1.1, "frequency_penalty": -0.7, "logit_bias": {0: 4.0, 5: -3.0}},
]


@pytest.mark.parametrize("settings", PENALTIES, ids=lambda s: "+".join(s))
def test_row_j_counts_the_history_and_the_drafts_before_j(settings):
    logits = (np.random.default_rng(1).normal(size=(4, 8)) * 2).astype(np.float32)
    prompt, output, draft = [5, 2], [1, 1], [3, 3, 0]
    sampler = Sampler(params(**settings), 8, prompt)
    sampler.record(mx.array(output))
    scores = np.array(sampler.scores(mx.array(logits), mx.array(draft)))
    expected = [penalised(row, prompt, output + draft[:j], params(**settings)) for j, row in enumerate(logits)]
    assert np.allclose(scores, expected, atol=1e-5)


def test_bias_comes_before_the_repetition_penalty():
    sampler = Sampler(params(repetition_penalty=2.0, logit_bias={1: 3.0}), 4, [1])
    assert sampler.scores(mx.array([[0.0, -1.0, 0.0, 0.0]]), None).tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_the_repetition_penalty_knows_the_sign_and_the_prompt():
    sampler = Sampler(params(repetition_penalty=2.0), 4, [0, 1])
    assert sampler.scores(mx.array([[4.0, -4.0, 4.0, -4.0]]), None).tolist() == [[2.0, -8.0, 4.0, -4.0]]


def test_presence_and_frequency_count_the_output_only():
    sampler = Sampler(params(presence_penalty=1.0, frequency_penalty=0.5), 3, [0, 0])
    sampler.record(mx.array([1, 1, 1]))
    assert sampler.scores(mx.zeros((1, 3)), None).tolist() == [[0.0, -2.5, 0.0]]


def test_logits_of_any_precision_are_scored_in_float32():
    assert Sampler(params(), 4, [0]).scores(mx.zeros((1, 4), dtype=mx.bfloat16), None).dtype == mx.float32


def test_a_bias_outside_the_vocabulary_is_refused_with_both_numbers():
    with pytest.raises(UsageError, match=r"token 512.*512 tokens"):
        Sampler(params(logit_bias={512: 1.0}), 512, [0])


def test_a_row_of_noise_depends_on_seed_and_position_only():
    rows = gumbel_rows(7, 10, 5, 100)
    assert mx.array_equal(gumbel_rows(7, 12, 1, 100)[0], rows[2])
    assert mx.array_equal(gumbel_rows(7, 8, 8, 100)[2:7], rows)
    assert mx.array_equal(uniform_rows(7, 12, 1, 2), uniform_rows(7, 10, 5, 2)[2:3])


def test_neighbouring_seeds_positions_and_purposes_share_no_noise():
    rows = [
        tuple(row)
        for seed in (-1, 0, 1, 2, 2**63)
        for purpose in range(4)
        for row in gumbel_rows(seed, 0, 20, 16, purpose).tolist()
    ]
    assert len(set(rows)) == len(rows) == 5 * 4 * 20


@pytest.mark.parametrize(("seed", "same"), [(5, 5 + 2**64), (5, 5 - 2**64), (-1, 2**64 - 1)])
def test_seeds_are_taken_modulo_2_to_the_64(seed, same):
    assert mx.array_equal(gumbel_rows(seed, 3, 2, 16), gumbel_rows(same, 3, 2, 16))


def test_noise_is_a_standard_gumbel():
    """40,000 numbers; the mean is within 5 standard errors of Euler's constant for 99.9999 % of seeds."""
    noise = gumbel_rows(3, 0, 40, 1000)
    assert abs(noise.mean().item() - 0.5772157) < 5 * (np.pi / 6**0.5) / 200
    assert abs(noise.var().item() - np.pi**2 / 6) < 0.1


def test_greedy_sampling_has_no_noise():
    assert Sampler(SamplingParams(), 4, [0]).noise(0, 3) is None


def test_the_reference_of_these_tests_is_a_distribution():
    assert np.exp(log_softmax(np.random.default_rng(0).normal(size=(3, 9)))).sum(axis=-1) == pytest.approx(1.0)
