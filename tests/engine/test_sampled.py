"""Under coupled acceptance a seed gives one text: with and without drafting, at any block size, with any drafter."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.config import SamplingParams
from fakes import ToyDrafter, ToyTarget, answer, rounds_of

FAMILIES = ["qwen3_5", "qwen3", "llama"]
KINDS = ["0", "1", "3", "7", "random", "real"]
BLOCKS = range(2, 9)
SETTINGS = {
    "plain": SamplingParams(temperature=1.0),
    "hot": SamplingParams(temperature=2.0),
    "card": SamplingParams(temperature=1.0, top_p=0.95, top_k=20),
    "nucleus": SamplingParams(temperature=0.6, top_p=0.6),
    "min_p": SamplingParams(temperature=1.0, min_p=0.1),
    "penalties": SamplingParams(temperature=0.8, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.3),
    "everything": SamplingParams(
        temperature=0.8, top_k=50, top_p=0.9, min_p=0.02, repetition_penalty=1.2, logit_bias={3: 6.0}
    ),
}


def prompt(length: int) -> list[int]:
    return [(37 * i + 11) % 512 for i in range(length)]


def fast_cases() -> list[tuple[str, str, int, str]]:
    """Every setting twice, through the families, block sizes and drafters."""
    turns = [name for name in SETTINGS for _ in range(2)]
    return [(FAMILIES[i % 3], name, BLOCKS[(3 * i) % 7], KINDS[(i + i // 6) % 6]) for i, name in enumerate(turns)]


@pytest.mark.parametrize(("model_type", "name", "block", "kind"), fast_cases())
def test_a_seeds_text_is_the_plain_text_of_that_seed(target_of, drafter_for, model_type, name, block, kind):
    target, sampling = target_of(model_type), replace(SETTINGS[name], seed=block)
    expected = answer(target, None, prompt(10), sampling, max_tokens=16)
    drafter = drafter_for(kind, target, prompt(10) + expected)
    assert answer(target, drafter, prompt(10), sampling, max_tokens=16, block_size=block) == expected


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_100_tokens_of_a_seed_are_the_plain_text(target_of, drafter_for, model_type, name, block):
    target = target_of(model_type)
    for turn, count in enumerate([100, 30, 30]):
        kind = KINDS[(block + list(SETTINGS).index(name) + 2 * turn) % 6]
        sampling, text = replace(SETTINGS[name], seed=100 * block + turn), prompt((block + 7 * turn) % 18 + 1)
        expected = answer(target, None, text, sampling, max_tokens=count)
        drafter = drafter_for(kind, target, text + expected)
        assert answer(target, drafter, text, sampling, max_tokens=count, block_size=block) == expected


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_top_k_1_is_greedy(target_of, drafter_for, acceptance):
    target = target_of("qwen3")
    expected = answer(target, None, prompt(10), max_tokens=20)
    sampling = SamplingParams(temperature=2.0, top_k=1, seed=5)
    drafter = drafter_for("real", target, expected)
    assert answer(target, drafter, prompt(10), sampling, max_tokens=20, acceptance=acceptance) == expected


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
@pytest.mark.parametrize("seed", [0, -1, 2**64 + 3, -(2**70)])
def test_any_whole_number_is_a_seed_that_repeats_its_text(acceptance, seed):
    toy, drafter = toy_pair()
    sampling = SamplingParams(temperature=1.0, seed=seed)
    first, second = (answer(toy, drafter, [0], sampling, max_tokens=20, acceptance=acceptance) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_seeds_and_the_lack_of_one_give_different_texts(acceptance):
    toy, drafter = toy_pair()
    seeds = [1, 2, 3, None, None]
    texts = {
        tuple(answer(toy, drafter, [0], SamplingParams(temperature=1.0, seed=s), max_tokens=50, acceptance=acceptance))
        for s in seeds
    }
    assert len(texts) == len(seeds)


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_a_drafter_with_the_targets_own_distribution_is_always_believed(acceptance):
    table = mx.array(np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32))
    toy, twin = ToyTarget(table), ToyDrafter(table, 8, block_size=8)
    sampling = SamplingParams(temperature=1.0, seed=1)
    _, *rounds = rounds_of(toy, twin, [0], sampling, max_tokens=200, acceptance=acceptance)
    assert sum(r.accepted for r in rounds) / sum(r.drafted for r in rounds) > 0.995


def test_rejection_needs_the_drafters_probabilities_and_says_so():
    toy, drafter = toy_pair()
    honest = drafter.propose
    drafter.propose = lambda anchor, count, draw=None: replace(honest(anchor, count, draw), probabilities=None)
    with pytest.raises(AssertionError, match="distribution that the draft was drawn from"):
        answer(toy, drafter, [0], SamplingParams(temperature=1.0, seed=1), max_tokens=9, acceptance="rejection")


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_a_token_outside_the_nucleus_is_never_emitted(acceptance):
    toy = ToyTarget(mx.array([[3.3, 2.9, -1, -1, -1, -1, -1, -1]] * 8))
    drafter = ToyDrafter(mx.zeros((8, 8)), 8)
    sampling = SamplingParams(temperature=1.0, top_p=0.5, seed=1)
    assert set(answer(toy, drafter, [0], sampling, max_tokens=150, acceptance=acceptance)) == {0}


def toy_pair() -> tuple[ToyTarget, ToyDrafter]:
    """A random target and a drafter of another distribution."""
    target, drafter = np.random.default_rng(1).normal(size=(2, 8, 8)).astype(np.float32)
    return ToyTarget(mx.array(target)), ToyDrafter(mx.array(drafter), 5)
