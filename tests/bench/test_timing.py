"""Timing proxies: they change no token, and what they count adds up."""

import pytest

from dflash2_mlx.api import load
from dflash2_mlx.bench.timing import measure_parts
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.events import Round
from dflash2_mlx.session.known import known_of
from dflash2_mlx.session.session import Request, Session


@pytest.fixture(scope="module")
def pair():
    return load("demo")


def request(block_size):
    text = TextParams(reasoning="off")
    return Request("Who are you?", SamplingParams(), EngineParams(max_tokens=24, block_size=block_size), text)


def rounds_of(pair, asked):
    return [event for event in Session(pair).stream(asked) if isinstance(event, Round)]


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [1, 8])
def test_a_timed_answer_is_the_same_answer_round_by_round(pair, block_size):
    assert list(measure_parts(pair, request(block_size)).rounds) == rounds_of(pair, request(block_size))


def test_every_part_of_a_drafted_answer_takes_time_and_every_draft_is_kept(pair):
    found = measure_parts(pair, request(8))
    drafted = [done for done in found.rounds if done.drafted]
    assert min(found.draft_s, found.verify_s, found.accept_s, found.host_s) > 0
    assert len(found.candidates) == len(drafted) and len(drafted) - len(found.draft_passes) in (0, 1)
    assert [len(rows) for rows in found.candidates] == [done.drafted for done in drafted]
    assert {len(row) for rows in found.candidates for row in rows} == {16}


def test_a_plain_answer_has_one_row_a_pass_and_no_draft(pair):
    found = measure_parts(pair, request(1))
    assert {rows for rows, _ in found.verify_passes} == {1} and found.draft_s == 0.0 and found.candidates == ()


def test_the_pair_is_free_again_after_a_timed_answer(pair):
    measure_parts(pair, request(8))
    assert not known_of(pair).answering and rounds_of(pair, request(8))
