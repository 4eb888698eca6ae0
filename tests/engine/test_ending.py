"""How an answer ends: the earliest event wins, inside an accepted run too, and nothing after it is counted."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.engine.steps import decode_plain
from dflash2_mlx.errors import PromptError
from dflash2_mlx.events import Ended, Prefilling, Round
from fakes import ScriptedDrafter, ToyTarget

V = 40
Events = list[Prefilling | Round | Ended]


def counting(context_limit: int = 10**6) -> ToyTarget:
    """A target that counts: after token t comes t + 1, after the last one 0."""
    return ToyTarget(mx.roll(mx.eye(V), 1, axis=1), context_limit)


def run(target: ToyTarget, prompt: list[int], right: int | None, **engine: object) -> Events:
    """All events of the answer that counts on from `prompt`, plain where `right` is None."""
    params = EngineParams(**engine)
    if right is None:
        return list(decode_plain(target, Task(prompt, SamplingParams(), params)))
    truth = [(prompt[0] + i) % V for i in range(200)]
    return list(decode(target, ScriptedDrafter(truth, right, vocab=V), Task(prompt, SamplingParams(), params)))


def tokens(events: Events) -> list[int]:
    return [token for event in events if isinstance(event, Round) for token in event.tokens]


def rounds(events: Events) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


@pytest.mark.parametrize("right", [None, 0, 7])
@pytest.mark.parametrize("max_tokens", [0, 1, 2, 7, 8, 9, 17])
def test_exactly_max_tokens_are_emitted_and_the_end_is_called_length(max_tokens, right):
    events = run(counting(), [3], right, max_tokens=max_tokens)
    assert tokens(events) == list(range(4, 4 + max_tokens))
    assert events[-1] == Ended("length")


@pytest.mark.parametrize("max_tokens", [2, 7, 8, 9])
def test_the_last_rounds_block_is_no_wider_than_the_room_left(max_tokens):
    first, *others = rounds(run(counting(), [3], 7, max_tokens=max_tokens))
    assert first == Round((4,), 0, 0)
    assert [r.drafted for r in others] == {2: [0], 7: [5], 8: [6], 9: [7]}[max_tokens]
    assert all(r.accepted == r.drafted for r in others)


@pytest.mark.parametrize("right", [None, 0, 3, 7])
@pytest.mark.parametrize("end", range(4, 22))
def test_an_end_token_ends_the_answer_wherever_it_falls_in_a_run(end, right):
    events = run(counting(), [3], right, max_tokens=60, end_tokens=frozenset({end, 30}))
    assert tokens(events) == list(range(4, end + 1))
    assert events[-1] == Ended("stop")


def test_nothing_after_the_end_token_is_counted():
    first, only = rounds(run(counting(), [3], 7, max_tokens=60, end_tokens=frozenset({7})))
    assert first == Round((4,), 0, 0)
    assert only == Round((5, 6, 7), 7, 3)


def test_an_end_token_that_is_the_targets_own_token_is_not_an_accepted_draft():
    *_, last = rounds(run(counting(), [3], 3, max_tokens=60, end_tokens=frozenset({8})))
    assert last == Round((5, 6, 7, 8), 7, 3)


@pytest.mark.parametrize("right", [None, 0, 7])
@pytest.mark.parametrize(("max_tokens", "reason"), [(4, "length"), (5, "stop"), (6, "stop")])
def test_the_earliest_of_two_ends_wins_and_an_end_token_in_the_last_place_is_a_stop(right, max_tokens, reason):
    events = run(counting(), [3], right, max_tokens=max_tokens, end_tokens=frozenset({8}))
    assert tokens(events) == list(range(4, min(8, 3 + max_tokens) + 1))
    assert events[-1] == Ended(reason)


def test_an_end_token_in_the_prompt_ends_nothing():
    assert len(tokens(run(counting(), [3], 7, max_tokens=5, end_tokens=frozenset({3})))) == 5


@pytest.mark.parametrize("right", [None, 0, 7])
def test_after_the_end_the_cache_holds_all_but_the_last_token(right):
    for end in range(4, 14):
        target = counting()
        events = run(target, [1, 2, 3], right, max_tokens=60, end_tokens=frozenset({end}))
        assert target.position == 3 + len(tokens(events)) - 1


@pytest.mark.parametrize("right", [None, 7])
def test_prompt_and_answer_are_cut_to_the_context(right):
    events = run(counting(context_limit=12), [1, 2, 3], right, max_tokens=50)
    assert tokens(events) == list(range(4, 13))
    assert events[-1] == Ended("length")


@pytest.mark.parametrize("right", [None, 7])
def test_without_max_tokens_the_answer_runs_to_the_end_of_the_context(right):
    assert len(tokens(run(counting(context_limit=30), [1, 2, 3], right))) == 27


@pytest.mark.parametrize("right", [None, 7])
def test_a_prompt_that_fills_the_context_leaves_no_room_and_is_no_error(right):
    assert run(counting(context_limit=3), [1, 2, 3], right, max_tokens=5) == [Ended("length")]


@pytest.mark.parametrize("right", [None, 7])
def test_a_longer_prompt_is_refused_with_both_numbers(right):
    with pytest.raises(PromptError, match="4 tokens > 3 maximum"):
        run(counting(context_limit=3), [1, 2, 3, 4], right, max_tokens=5)


@pytest.mark.parametrize("decoder", [decode_plain, lambda target, task: decode(target, ScriptedDrafter([], 0), task)])
def test_an_empty_prompt_is_refused(decoder: Callable[..., object]):
    with pytest.raises(PromptError, match="prompt is empty"):
        list(decoder(counting(), Task([], SamplingParams(), EngineParams())))


@pytest.mark.parametrize("right", [None, 7])
def test_prefilling_is_reported_before_the_first_round_and_the_end_comes_last(right):
    kinds = [type(event) for event in run(counting(), [1, 2, 3], right, max_tokens=9)]
    first = kinds.index(Round)
    assert set(kinds[:first]) == {Prefilling}
    assert set(kinds[first:-1]) == {Round}
    assert kinds[-1] is Ended


def test_a_cut_round_keeps_as_many_logprobs_as_tokens():
    whole = Round((1, 2, 3), 5, 2, (10, 20, 30))
    assert whole.cut(2) == Round((1, 2), 5, 2, (10, 20))
    assert whole.cut(1) == Round((1,), 5, 1, (10,))
