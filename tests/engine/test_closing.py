"""A generator may be closed at any yield. Between rounds the target's cache holds every committed token except the

anchor, and the drafter has been shown the features of all of those: an answer can go on from there.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.engine.protocols import Drafter
from dflash2_mlx.engine.steps import decode_plain
from dflash2_mlx.events import Ended, Prefilling, Round
from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.targets.base import LayeredTarget
from fakes import ScriptedDrafter, answer, tiny_drafter

PROMPT = [(37 * i + 11) % 512 for i in range(40)]
LENGTH = 6
PARAMS = EngineParams(max_tokens=LENGTH, prefill_chunk=16)
KINDS = {"full": {"layer_types": ["full_attention"] * 2}, "sliding": {}}


def end_shown(drafter: Drafter) -> int:
    """The position before which the drafter has been shown all features."""
    return drafter.cache.position if isinstance(drafter, DFlashDrafter) else drafter.position


def events_before_closing(events: Iterator[Prefilling | Round | Ended], count: int) -> list[Prefilling | Round | Ended]:
    """The first `count` events (fewer at the end of the answer), after which the generator is closed."""
    taken = list(islice(events, count))
    events.close()
    return taken


def tokens(events: list[Prefilling | Round | Ended]) -> list[int]:
    return [token for event in events if isinstance(event, Round) for token in event.tokens]


def closed_at(
    target: LayeredTarget, drafter: Drafter, count: int, sampling: SamplingParams, params: EngineParams = PARAMS
) -> list[Prefilling | Round | Ended]:
    """Events of an answer from empty caches that is closed after `count` of them."""
    target.reset()
    drafter.reset()
    return events_before_closing(decode(target, drafter, Task(PROMPT, sampling, params)), count)


def check_every_yield(target: LayeredTarget, drafter: Drafter, expected: list[int], chunk: int) -> None:
    """Close after the 1st, 2nd, ... event; each time the invariant holds and the answer goes on to the same text."""
    params = EngineParams(max_tokens=LENGTH, prefill_chunk=chunk)
    for count in range(1, 100):
        taken = closed_at(target, drafter, count, SamplingParams(), params)
        done = tokens(taken)
        prefilled = max(event.done for event in taken if isinstance(event, Prefilling))
        assert target.position == (len(PROMPT) + len(done) - 1 if done else prefilled)
        if done:
            assert end_shown(drafter) == target.position
        if isinstance(taken[-1], Ended):
            return
        rest = EngineParams(max_tokens=LENGTH - len(done), prefill_chunk=chunk)
        if rest.max_tokens:
            done += tokens(list(decode(target, drafter, Task(PROMPT + done, SamplingParams(), rest))))
        assert done == expected


@pytest.mark.parametrize(("model_type", "right"), [("qwen3_5", 1), ("qwen3", None)])
def test_an_answer_closed_at_any_round_goes_on_to_the_same_text(target_of, model_type, right):
    target = target_of(model_type)
    expected = answer(target, None, PROMPT, max_tokens=LENGTH)
    check_every_yield(target, Scripted(PROMPT + expected, right), expected, chunk=16)


class Scripted(ScriptedDrafter):
    """A scripted drafter that, like a real one, takes rows it has not seen before after any gap."""

    def observe(self, features, end):
        self.position = end


@pytest.mark.parametrize("kind", ["sliding", pytest.param("full", marks=pytest.mark.slow)])
def test_an_answer_of_a_real_drafter_closed_at_any_round_goes_on_to_the_same_text(target_of, kind):
    target = target_of("qwen3")
    expected = answer(target, None, PROMPT, max_tokens=LENGTH)
    check_every_yield(target, tiny_drafter(target, **KINDS[kind]), expected, chunk=64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_closing_during_prefill_leaves_the_drafts_of_a_run_that_was_never_closed(target_of, kind, count):
    target = target_of("qwen3")
    drafter, fresh = (tiny_drafter(target, **KINDS[kind]) for _ in range(2))
    closed_at(target, drafter, count, SamplingParams())
    rounds = [e for e in decode(target, drafter, Task(PROMPT, SamplingParams(), PARAMS)) if isinstance(e, Round)]
    target.reset()
    expected = [e for e in decode(target, fresh, Task(PROMPT, SamplingParams(), PARAMS)) if isinstance(e, Round)]
    assert rounds == expected


@pytest.mark.parametrize(
    "sampling", [SamplingParams(), SamplingParams(temperature=1.0, seed=3)], ids=["greedy", "sampled"]
)
def test_what_was_yielded_before_closing_is_the_beginning_of_the_whole_answer(target_of, sampling):
    target = target_of("qwen3")
    expected = answer(target, None, PROMPT, sampling, max_tokens=LENGTH)
    drafter = Scripted(PROMPT + expected, None)
    for count in range(5, 9, 2):
        done = tokens(closed_at(target, drafter, count, sampling))
        assert done == expected[: len(done)]


@pytest.mark.parametrize("model_type", ["qwen3_5", pytest.param("llama", marks=pytest.mark.slow)])
def test_plain_decoding_closed_at_any_yield_goes_on_to_the_same_text(target_of, model_type):
    target = target_of(model_type)
    expected = answer(target, None, PROMPT, max_tokens=LENGTH)
    for count in range(1, LENGTH + 6, 2):
        target.reset()
        taken = events_before_closing(decode_plain(target, Task(PROMPT, SamplingParams(), PARAMS)), count)
        done = tokens(taken)
        prefilled = max(event.done for event in taken if isinstance(event, Prefilling))
        assert target.position == (len(PROMPT) + len(done) - 1 if done else prefilled)
        if len(done) < LENGTH:
            rest = EngineParams(max_tokens=LENGTH - len(done), prefill_chunk=16)
            done += tokens(list(decode_plain(target, Task(PROMPT + done, SamplingParams(), rest))))
        assert done == expected


def test_an_answer_goes_on_after_another_question_without_prefilling_again(target_of):
    target = target_of("qwen3_5")
    drafter, more = tiny_drafter(target), [7, 8, 9]
    target.reset()
    first = tokens(list(decode(target, drafter, Task(PROMPT, SamplingParams(), PARAMS))))
    events = list(decode(target, drafter, Task(PROMPT + first + more, SamplingParams(), PARAMS)))
    assert events[0] == Prefilling(len(PROMPT + first) - 1, len(PROMPT + first + more))
    assert tokens(events) == answer(target, None, PROMPT + first + more, max_tokens=LENGTH)


@pytest.mark.parametrize("step", ["propose", "verify"])
def test_an_error_in_the_middle_leaves_the_cache_at_the_last_committed_token(target_of, monkeypatch, step):
    target = target_of("qwen3_5")
    drafter: Callable = tiny_drafter(target)
    target.reset()
    events = decode(target, drafter, Task(PROMPT, SamplingParams(), PARAMS))
    while not isinstance(next(events), Round):
        pass
    monkeypatch.setattr(drafter if step == "propose" else target, step, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(events)
    monkeypatch.undo()
    assert end_shown(drafter) == target.position
    assert target._block_rows == 0
