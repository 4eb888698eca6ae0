"""A block size that changes from round to round changes no text."""

import random
from dataclasses import dataclass, field

import pytest

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.accept import Decision, Verdict
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.engine.widths import WidthPolicy
from dflash2_mlx.events import Prefilling, Round
from fakes import ScriptedDrafter, answer, tiny_drafter

PROMPT = tuple((29 * i + 5) % 512 for i in range(20))
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=0.9, seed=11, top_k=40, repetition_penalty=1.1)


@dataclass
class RandomWidths:
    """A policy that chooses by chance, and checks what it is told."""

    rng: random.Random
    next: int = 5
    told: list[tuple[int, int]] = field(default_factory=list)

    def rows(self) -> int:
        return self.next

    def record(self, rows: int, accepted: int) -> None:
        assert 0 <= accepted < rows <= self.next
        self.told.append((rows, accepted))
        self.next = self.rng.choice([1, 1, 2, 5, 8])


def rounds(target, drafter, widths, sampling=GREEDY, max_tokens=60):
    target.reset()
    drafter.reset()
    events = decode(target, drafter, Task(PROMPT, sampling, EngineParams(max_tokens=max_tokens)), widths)
    return [event for event in events if isinstance(event, Round)]


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "model_type",
    ["qwen3_5", *(pytest.param(other, marks=pytest.mark.slow) for other in ("qwen3", "muse_glimmer"))],
)
@pytest.mark.parametrize("right", [None, *(pytest.param(right, marks=pytest.mark.slow) for right in (0, 3))])
def test_the_text_is_that_of_plain_decoding_and_the_policy_hears_of_every_round(target_of, model_type, sampling, right):
    target = target_of(model_type)
    plain = answer(target, None, PROMPT, sampling, max_tokens=60)
    policy = RandomWidths(random.Random(str(right)))  # None would be a new seed each time
    scripted = ScriptedDrafter([*PROMPT, *plain], right)
    done = rounds(target, scripted, policy, sampling)
    assert [token for one in done for token in one.tokens] == plain
    assert {one.drafted for one in done} > {0, 1}, "several widths were used"
    heard = [(one.drafted + 1, len(one.tokens) - 1) for one in done[1:]]
    assert policy.told == heard[: len(policy.told)] and len(heard) - len(policy.told) <= 1


def test_a_real_drafter_may_rest_and_come_back(target_of):
    target = target_of("qwen3_5")
    plain = answer(target, None, PROMPT, max_tokens=60)
    done = rounds(target, tiny_drafter(target), RandomWidths(random.Random(1)))
    assert [token for one in done for token in one.tokens] == plain


@pytest.mark.slow
def test_an_answer_closed_at_any_event_leaves_caches_that_go_on_to_the_same_text(target_of):
    target = target_of("qwen3_5")
    plain = answer(target, None, PROMPT, max_tokens=30)
    for count in range(1, 25, 4):
        drafter = tiny_drafter(target)
        widths = RandomWidths(random.Random(count))
        target.reset()
        events = decode(target, drafter, Task(PROMPT, GREEDY, EngineParams(max_tokens=30)), widths)
        taken = [next(events) for _ in range(count)]
        events.close()
        seen = [token for event in taken if isinstance(event, Round) for token in event.tokens]
        if seen:
            assert drafter.cache.position == target.position == len(PROMPT) + len(seen) - 1
        task = Task((*PROMPT, *seen), GREEDY, EngineParams(max_tokens=30 - len(seen)))
        follow = decode(target, drafter, task, widths)
        rest = [event for event in follow if not isinstance(event, Prefilling)]
        assert [*seen, *(token for event in rest if isinstance(event, Round) for token in event.tokens)] == plain


class TimedWidths(WidthPolicy):
    """The policy, of which only the times are of interest: the widths are chosen by chance."""

    def record(self, rows: int, accepted: int) -> None:
        super().record(rows, accepted)
        self._rows = self.rng.choice([1, 1, 1, 2, 5, 8])

    @property
    def least(self) -> dict[int, float]:
        """The shortest time of every width."""
        return {rows: min(times) for rows, times in enumerate(self._times, 1) if times}


@pytest.mark.parametrize("waits_for", ["read", pytest.param("launch", marks=pytest.mark.slow)])
def test_no_round_seems_shorter_than_it_is(target_of, monkeypatch, waits_for):
    """The clock moves by 1 s a row, where a GPU is waited for (reading) or where a CPU works (launching)."""
    now = [0.0]
    target = target_of("qwen3")

    def read(verdict: Verdict, read=Verdict.read) -> Decision:
        now[0] += verdict.tokens.shape[0]
        return read(verdict)

    def verify(block, verify=target.verify):
        now[0] += block.shape[0]
        return verify(block)

    if waits_for == "read":
        monkeypatch.setattr(Verdict, "read", read)
    else:
        monkeypatch.setattr(target, "verify", verify)
    policy = TimedWidths(8, clock=lambda: now[0])
    policy.rng = random.Random(2)
    rounds(target, tiny_drafter(target), policy, max_tokens=150)
    assert set(policy.least) >= {1, 2, 5, 8}
    assert policy.least[1] == 1.0 and all(least >= rows for rows, least in policy.least.items())
