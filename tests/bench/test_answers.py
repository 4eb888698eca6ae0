"""When tokens came: gaps, phases, the course of an answer, measured with a clock that is told the time."""

import pytest
from bench_fakes import FakeSession, drafted_rounds, plain_rounds

from dflash2_mlx.bench.answers import measure, phase_rate, rate_over_answer, token_gaps
from dflash2_mlx.config import SamplingParams
from dflash2_mlx.session.session import Request

REQUEST = Request("hello", SamplingParams())


def test_decoding_is_what_follows_the_first_token(clock):
    answer = measure(FakeSession(clock, plain_rounds([5, 6, 7])), REQUEST, clock)
    assert answer.first_token_s == pytest.approx(0.6) and answer.decoded == 2
    assert answer.decode_s == pytest.approx(0.2) and answer.tokens == (5, 6, 7)
    assert answer.total_s == pytest.approx(0.8) and answer.text == " 5 6 7"


def test_the_gap_of_a_round_is_divided_among_its_tokens(clock):
    answer = measure(FakeSession(clock, drafted_rounds([1], [2, 3, 4], [5])), REQUEST, clock)
    assert answer.gaps == pytest.approx([0.1, 0.1])
    assert token_gaps(answer) == pytest.approx([0.1 / 3] * 3 + [0.1])


def test_thinking_and_answer_are_timed_apart(clock):
    session = FakeSession(clock, drafted_rounds([1], [2, 3], [4], [5, 6, 7]), channels=["reasoning"] * 2)
    answer = measure(session, REQUEST, clock)
    assert [stamp.thinking for stamp in answer.stamps] == [True, True, False, False]
    assert phase_rate([answer], thinking=True) == (2, pytest.approx(20.0))
    assert phase_rate([answer], thinking=False) == (4, pytest.approx(20.0))


def test_an_answer_that_only_thought_has_no_answer_phase(clock):
    answer = measure(FakeSession(clock, plain_rounds([1, 2]), channels=["reasoning"] * 2), REQUEST, clock)
    assert phase_rate([answer], thinking=True)[0] == 1 and phase_rate([answer], thinking=False) == (0, None)


def test_an_answer_without_reasoning_is_all_answer(clock):
    answer = measure(FakeSession(clock, plain_rounds([1, 2])), REQUEST, clock)
    assert phase_rate([answer], thinking=True) == (0, None)


def test_the_rate_over_an_answer_is_that_of_every_full_window(clock):
    fast = measure(FakeSession(clock, drafted_rounds([1], [2, 3, 4], [5, 6, 7, 8], [9])), REQUEST, clock)
    slow = measure(FakeSession(clock, plain_rounds(range(5)), step_s=0.2), REQUEST, clock)
    # fast: 3 tokens after 0.1 s, 7 after 0.2 s, 8 after 0.3 s; slow: 4 after 0.8 s, never 8
    assert rate_over_answer([fast], 4) == [(4, pytest.approx(4 / 0.125)), (8, pytest.approx(4 / 0.175))]
    assert rate_over_answer([fast, slow], 4) == [(4, pytest.approx(8 / 0.925)), (8, pytest.approx(4 / 0.175))]
    assert rate_over_answer([slow], 64) == []


def test_a_window_that_ends_inside_a_round_ends_at_its_share_of_the_round(clock):
    answer = measure(FakeSession(clock, drafted_rounds([1], [2, 3, 4, 5]), step_s=0.4), REQUEST, clock)
    assert rate_over_answer([answer], 3) == [(3, pytest.approx(3 / 0.3))]
