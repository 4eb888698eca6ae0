"""What answers add up to: acceptance, hits among the candidates, shares of the time, peak memory."""

import pytest
from bench_fakes import NO_PARTS, FakeSession, drafted_rounds, plain_rounds

from dflash2_mlx.bench.answers import measure
from dflash2_mlx.bench.figures import Passes, count_hits, count_rounds, figures, shares
from dflash2_mlx.bench.timing import Parts
from dflash2_mlx.config import SamplingParams
from dflash2_mlx.events import Round
from dflash2_mlx.session.session import Request

REQUEST = Request("hello", SamplingParams())


def answered(clock, rounds, **how):
    return measure(FakeSession(clock, rounds, **how), REQUEST, clock)


def test_the_first_token_is_no_round_and_acceptance_counts_what_was_kept_up_to_a_position(clock):
    found = count_rounds([answered(clock, drafted_rounds([1], [2, 3, 4], [5], [6, 7, 8, 9]))])
    assert (found.drafted_at, found.accepted_at, found.rounds, found.round_tokens) == ([3, 3, 3], [2, 2, 1], 3, 8)


def test_figures_of_drafted_answers_over_two_repeats(clock):
    fast = answered(clock, drafted_rounds([1], [2, 3, 4], [5]))  # 4 tokens in 0.2 s after the first
    slow = answered(clock, drafted_rounds([1], [2, 3, 4], [5]), step_s=0.2)
    found = figures(Passes((((fast,),), ((slow,),))))
    assert found.decode_rate and found.decode_rate.samples == pytest.approx((4 / 0.2, 4 / 0.4))
    assert found.tokens_per_round == 2.0 and found.acceptance == pytest.approx(2 / 6)
    assert found.acceptance_by_position == (0.5, 0.5, 0.0)
    assert found.first_token_s and found.first_token_s.samples == pytest.approx((0.6, 0.7))
    assert found.prefill_rate and found.prefill_rate.median == pytest.approx((11 / 0.6 + 11 / 0.7) / 2)
    assert found.completion_tokens == 5 and found.peak_bytes == 1000 and found.turns == ()


def test_plain_answers_have_one_token_a_round_and_no_acceptance(clock):
    found = figures(Passes((((answered(clock, plain_rounds([1, 2, 3])),),),)))
    assert found.tokens_per_round == 1.0 and found.rounds == 0 and found.acceptance_by_position == ()


def test_every_turn_of_a_conversation_has_its_own_figures(clock):
    first, second = answered(clock, plain_rounds([1, 2])), answered(clock, plain_rounds([3]), prefill_s=1.0)
    found = figures(Passes((((first, second),),)))
    assert [turn.completion_tokens for turn in found.turns] == [2, 1]
    assert [turn.first_token_s.median for turn in found.turns] == pytest.approx([0.6, 1.1])


def test_a_hit_is_the_texts_own_token_among_the_candidates_also_after_a_wrong_draft():
    rounds = drafted_rounds([10], [11, 12], [13, 14, 15], width=3)
    # position 1 of the first round was rejected, yet the text's token 12 was among its candidates
    candidates = (((11, 99), (12, 98)), ((13, 97), (96, 95)))
    parts = Parts(0, 0, 0, 0, (), (), candidates, tuple(rounds))
    assert count_hits([parts]) == (2, [2, 1], [2, 2])


def test_candidates_past_the_end_of_the_text_are_not_counted():
    rounds = (Round((10,), 0, 0), Round((11,), 2, 0))
    parts = Parts(0, 0, 0, 0, (), (), (((11, 1), (12, 2)),), rounds)
    assert count_hits([parts]) == (2, [1, 0], [1, 0])


def test_shares_are_those_of_all_answers_together_and_add_up_to_one():
    found = shares([Parts(1, 2, 0.5, 0.5, (), (), (), ()), Parts(1, 4, 0.5, 0.5, (), (), (), ())])
    assert found and (found.draft, found.verify, found.accept, found.host) == pytest.approx((0.2, 0.6, 0.1, 0.1))
    assert shares([NO_PARTS]) is None
