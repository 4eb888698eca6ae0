"""Greedy drafting gives plain mlx-lm's text, token for token: any target, drafter, block size and prompt length."""

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.config import SamplingParams
from fakes import ToyTarget, answer, rounds_of, tiny_drafter
from reference import penalised

FAMILIES = ["qwen3_5", "qwen3", "llama"]
KINDS = ["0", "1", "3", "7", "random", "real"]
LENGTHS = {"qwen3_5": [1, 15, 18], "qwen3": [2, 16, 17], "llama": [5, 14]}  # the drafter's window is 16
BLOCKS = range(2, 9)
TABLE = np.random.default_rng(5).normal(size=(8, 8)).astype(np.float32) * 2

PENALTIES = {
    "repetition": SamplingParams(repetition_penalty=1.5),
    "weak repetition": SamplingParams(repetition_penalty=0.7),
    "presence": SamplingParams(presence_penalty=1.5),
    "frequency": SamplingParams(frequency_penalty=0.9),
    "bias": SamplingParams(logit_bias={3: 30.0, 7: -100.0}),
    "all": SamplingParams(
        repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4, logit_bias={3: 12.0, 9: 11.0}
    ),
}


def prompt(length: int) -> list[int]:
    return [(37 * i + 11) % 512 for i in range(length)]


@pytest.fixture
def toy() -> ToyTarget:
    return ToyTarget(mx.array(TABLE))


def fast_cases() -> list[tuple[str, int, str, int]]:
    """Every block size with every drafter, each family with a third of them, through its prompt lengths."""
    cases = []
    for number, (block, kind) in enumerate((block, kind) for block in BLOCKS for kind in KINDS):
        family = FAMILIES[(number + number // 6) % 3]
        cases.append((family, block, kind, LENGTHS[family][number // 3 % len(LENGTHS[family])]))
    return cases


@pytest.mark.parametrize(("model_type", "length"), [(family, LENGTHS[family][-1]) for family in FAMILIES])
def test_plain_decoding_gives_mlx_lms_text(target_of, mlx_lm_text, model_type, length):
    expected = mlx_lm_text(model_type, tuple(prompt(length)), 14)
    assert answer(target_of(model_type), None, prompt(length), max_tokens=14) == expected


@pytest.mark.parametrize(("model_type", "block", "kind", "length"), fast_cases())
def test_drafted_text_is_mlx_lms_text(target_of, mlx_lm_text, drafter_for, model_type, block, kind, length):
    target, expected = target_of(model_type), mlx_lm_text(model_type, tuple(prompt(length)), 14)
    drafter = drafter_for(kind, target, prompt(length) + expected)
    assert answer(target, drafter, prompt(length), max_tokens=14, block_size=block) == expected


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_200_drafted_tokens_are_mlx_lms_and_every_prompt_length_has_its_turn(
    target_of, mlx_lm_text, drafter_for, model_type, kind, block
):
    target, first = target_of(model_type), 6 * block + KINDS.index(kind)
    for turn, count in enumerate([200, 30, 30, 30]):
        text = prompt((first + 5 * turn) % 18 + 1)
        expected = mlx_lm_text(model_type, tuple(text), 200)
        drafter = drafter_for(kind, target, text + expected)
        assert answer(target, drafter, text, max_tokens=count, block_size=block) == expected[:count]


@pytest.mark.parametrize(
    "types", [["full_attention"] * 2, ["full_attention", "sliding_attention"]], ids=["full", "mixed"]
)
@pytest.mark.parametrize("causal", [True, False])
def test_drafters_of_other_kinds_do_not_change_the_text(target_of, mlx_lm_text, types, causal):
    target, expected = target_of("qwen3"), mlx_lm_text("qwen3", tuple(prompt(18)), 14)
    drafter = tiny_drafter(target, layer_types=types, is_causal=causal)
    assert answer(target, drafter, prompt(18), max_tokens=14) == expected


def test_a_dflash_1_drafter_does_not_change_the_text(target_of, mlx_lm_text):
    target, expected = target_of("qwen3_5"), mlx_lm_text("qwen3_5", tuple(prompt(18)), 14)
    drafter = tiny_drafter(target, architectures=["DFlashDraftModel"])
    assert answer(target, drafter, prompt(18), max_tokens=14) == expected


@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_prefill_chunks_do_not_change_the_text(target_of, mlx_lm_text, chunk):
    target, expected = target_of("qwen3_5"), mlx_lm_text("qwen3_5", tuple(prompt(40)), 10)
    assert answer(target, tiny_drafter(target), prompt(40), max_tokens=10, prefill_chunk=chunk) == expected


@pytest.mark.parametrize(
    ("name", "block", "kind"), [*((n, 8, "3") for n in PENALTIES), ("all", 8, "random"), ("all", 5, "real")]
)
def test_drafting_with_penalties_gives_plain_decodings_text(target_of, drafter_for, name, block, kind):
    target, sampling = target_of("qwen3"), PENALTIES[name]
    expected = answer(target, None, prompt(10), sampling, max_tokens=20)
    drafter = drafter_for(kind, target, prompt(10) + expected)
    assert answer(target, drafter, prompt(10), sampling, max_tokens=20, block_size=block) == expected


@pytest.mark.parametrize("name", PENALTIES)
def test_plain_decoding_with_penalties_takes_the_best_penalised_token_at_every_step(toy, name):
    sampling, text, output = PENALTIES[name], [2, 2, 5], []
    if name == "all":
        sampling = SamplingParams(
            repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4, logit_bias={3: 1.0}
        )
    while len(output) < 40:
        row = penalised(TABLE[(text + output)[-1]], text, output, sampling)
        output.append(int(row.argmax()))
    assert answer(toy, None, text, sampling, max_tokens=40) == output


def test_penalties_change_the_text_and_end_a_loop(toy):
    looping = answer(toy, None, [2], max_tokens=60)
    freed = answer(toy, None, [2], SamplingParams(frequency_penalty=0.5), max_tokens=60)
    assert len(set(looping[30:])) < len(set(freed[30:]))


@pytest.mark.parametrize(("kind", "tokens_a_round", "accepted"), [("0", 1, 0), ("3", 4, 3), ("7", 8, 7)])
def test_a_scripted_drafter_has_the_rounds_it_was_written_for(
    target_of, mlx_lm_text, drafter_for, kind, tokens_a_round, accepted
):
    target, truth = target_of("qwen3"), mlx_lm_text("qwen3", tuple(prompt(5)), 40)
    first, *rounds = rounds_of(target, drafter_for(kind, target, prompt(5) + truth), prompt(5), max_tokens=20)
    assert (len(first.tokens), first.drafted, first.accepted) == (1, 0, 0)
    whole = [r for r in rounds if r.drafted == 7]
    assert whole
    assert {(len(r.tokens), r.accepted) for r in whole} == {(tokens_a_round, accepted)}
