"""Rounding or a fault: the lead of the token that plain decoding took, by the scores that decided."""

from dataclasses import replace

import pytest
from bench_fakes import FakeSession, plain_rounds

from dflash2_mlx.api import load
from dflash2_mlx.bench.answers import measure
from dflash2_mlx.bench.environment import describe
from dflash2_mlx.bench.judge import EXACT, Judge, first_difference
from dflash2_mlx.bench.margins import margin_of
from dflash2_mlx.bench.methods import Width, judge_of, method
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.session.session import Request, Session

STORY = "Tell me a story about a fox."


@pytest.fixture(scope="module")
def pair():
    return load("demo")


def request(prompt, tokens=12, **sampling):
    return Request(prompt, SamplingParams(**sampling), EngineParams(max_tokens=tokens), TextParams(reasoning="off"))


def plain_tokens(pair, asked):
    return measure(Session(pair), replace(asked, engine=replace(asked.engine, block_size=1))).tokens


@pytest.mark.parametrize(
    ("one", "other", "at"), [("abc", "abc", None), ("abc", "abd", 2), ("ab", "abc", 2), ("", "", None), ("x", "", 0)]
)
def test_the_first_difference_is_where_one_text_leaves_the_other(one, other, at):
    assert first_difference([ord(c) for c in one], [ord(c) for c in other]) == at


@pytest.mark.parametrize(("margin", "kind"), [(0.5, "fault"), (1e-4, "rounding"), (None, "fault")])
def test_a_difference_is_rounding_only_where_the_lead_is_known_and_small(clock, margin, kind):
    plain, drafted = (measure(FakeSession(clock, plain_rounds(t)), request("x"), clock) for t in ([1, 2], [1, 3]))
    asked = []
    found = Judge(EXACT, lambda request, at, other: asked.append((at, other)) or margin).of(
        request("x"), plain, drafted
    )
    assert (found.kind, found.at, found.margin, asked) == (kind, 1, margin, [(1, 3)])


SAMPLINGS = {
    "greedy": {},
    "seed": {"temperature": 1.0, "seed": 3},
    "warm seed": {"temperature": 0.7, "seed": 5, "top_k": 40},
    "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    "all": {"temperature": 1.3, "seed": 7, "presence_penalty": 0.5, "repetition_penalty": 1.2},
}


@pytest.mark.parametrize(
    "name", ["all", *(pytest.param(name, marks=pytest.mark.slow) for name in SAMPLINGS if name != "all")]
)
def test_the_margin_is_the_bias_that_turns_the_choice(pair, name):
    """A bias against the token taken that is a little less changes nothing, a little more brings the runner-up."""
    asked = request(STORY, 4, **SAMPLINGS[name])
    own = plain_tokens(pair, asked)
    at = max(i for i, token in enumerate(own) if token not in own[:i])

    def taken(bias):
        found = plain_tokens(pair, replace(asked, sampling=replace(asked.sampling, logit_bias={own[at]: bias})))
        assert found[:at] == own[:at]
        return found[at]

    other = taken(-100)
    margin = margin_of(pair, asked, at, other)
    assert margin is not None and taken(-margin + 0.01) == own[at] and taken(-margin - 0.01) == other != own[at]


@pytest.mark.slow
def test_a_token_that_a_filter_left_out_is_at_least_as_far_as_the_edge_of_the_filter(pair):
    """A seed whose noise would have taken it: only the filter stands between."""
    asked = request(STORY, 1, temperature=1.0, top_k=1)
    best, margins = plain_tokens(pair, asked)[0], []
    for seed in range(6):
        free = replace(asked, sampling=replace(asked.sampling, seed=seed, top_k=0))
        drawn = plain_tokens(pair, free)[0]
        if drawn != best:
            margins.append(margin_of(pair, replace(free, sampling=replace(free.sampling, top_k=1)), 0, drawn))
    assert margins and min(margins) > 0


def test_a_text_that_ends_before_has_no_margin(pair):
    asked = request(STORY)
    ends = replace(asked.engine, end_tokens=frozenset(plain_tokens(pair, asked)[:1]))
    assert margin_of(pair, replace(asked, engine=ends), 3, 5) is None


def test_another_seed_on_the_drafted_side_is_called_a_fault_in_nearly_every_answer(pair):
    """The planted fault. At temperature 1.5 a right answer never looks so; of 6 wrong ones 1 may by chance."""
    judge, drafted = judge_of(pair, describe(pair)), method(pair, "dflash2", Width(5)).open()
    found = []
    for seed in range(6):
        asked = request(STORY, 4, temperature=1.5, seed=seed)
        plain = measure(Session(pair), replace(asked, engine=replace(asked.engine, block_size=1)))
        planted = replace(asked, sampling=replace(asked.sampling, seed=seed + 100))
        found.append(judge.of(asked, plain, measure(drafted, planted)).kind)
    assert found.count("fault") >= 5, found
