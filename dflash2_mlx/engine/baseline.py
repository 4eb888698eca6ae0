"""Plain decoding, one token a step, with the loop's events: the oracle of tests, the baseline of measurements, and what
the loop does where it does not draft."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.accept import Verdict, judge_same
from dflash2_mlx.engine.prefill import Drafter, cut, room_for, take_in
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.events import Ended, FinishReason, Prefilling, Round
from dflash2_mlx.targets.base import Forward, Target

_CLEAR_EVERY = 256  # tokens between two returns of unused memory to the system


def decode_plain(
    target: Target, prompt: Sequence[int], sampling: SamplingParams, params: EngineParams
) -> Generator[Prefilling | Round | Ended, None, None]:
    """Answer `prompt` without a drafter.

    Closing the generator at any yield leaves every committed token except the last in the cache.
    Raises: PromptError for an empty or over-long prompt.
    """
    room = room_for(prompt, target.context_limit, params)
    if room == 0:
        yield Ended("length")
        return
    yield from take_in(target, None, prompt, params.prefill_chunk)
    answer = Progress(room, params.end_tokens)
    steps = PlainSteps(target, None, Sampler(sampling, target.vocab_size, prompt))
    yield from steps.begin(answer, prompt[target.position :], lambda: True)
    assert answer.reason is not None
    yield Ended(answer.reason)


@dataclass(slots=True)
class Progress:
    """How far an answer is. room: the most tokens it may have; anchor: its last token [1], on the device."""

    room: int
    end_tokens: frozenset[int]
    anchor: mx.array = field(default_factory=lambda: mx.zeros((1,), dtype=mx.int32))
    produced: int = 0
    reason: FinishReason | None = None

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.room - self.produced

    def add(self, tokens: tuple[int, ...], row_tokens: mx.array) -> int:
        """Count the round's tokens up to the end of the answer, if it falls among them; how many count.

        row_tokens: the same tokens [n] on the device.
        """
        count, self.reason = cut(tokens, self.left, self.end_tokens)
        self.anchor = row_tokens[count - 1 : count]
        if (self.produced + count) // _CLEAR_EVERY > self.produced // _CLEAR_EVERY:
            mx.clear_cache()
        self.produced += count
        return count


class PlainSteps:
    """Steps without a draft. The next step is launched before the current token is read.

    A drafter, if one is given, is shown the features of every committed token.
    """

    def __init__(self, target: Target, drafter: Drafter | None, sampler: Sampler) -> None:
        self._target, self._drafter, self._sampler = target, drafter, sampler

    def begin(self, answer: Progress, tokens: Sequence[int], more: Callable[[], bool]) -> Generator[Round, None, None]:
        """Take in the prompt's last `tokens`, and carry `answer` on from there as `run` does."""
        forward = self._target.enter(tokens, keep=self._drafter.context_rows if self._drafter else 0)
        self._show(forward.features)
        yield from self._steps(answer, self._judge(forward, answer.produced), more)

    def run(self, answer: Progress, more: Callable[[], bool]) -> Generator[Round, None, None]:
        """Carry `answer` on until it ends, or until `more`, asked before every further step, says no."""
        step = self._launch(answer.anchor, answer.produced)
        self._commit()
        yield from self._steps(answer, step, more)

    def _steps(self, answer: Progress, step: Verdict | None, more: Callable[[], bool]) -> Generator[Round, None, None]:
        try:
            while step:
                follows = answer.left > 1 and more()
                ahead = self._launch(step.tokens, answer.produced + 1) if follows else None
                decision = step.read()
                answer.add(decision.tokens, step.tokens)
                yield Round(decision.tokens, 0, 0, decision.logprobs)
                step = None if answer.reason else ahead
                if step:
                    self._commit()
        finally:
            self._target.rollback()

    def _launch(self, token: mx.array, position: int) -> Verdict:
        """The verdict on the token after `token` [1], launched and not awaited; `_commit` keeps its row."""
        forward = self._target.verify(token)
        self._features = forward.features
        return self._judge(forward, position)

    def _commit(self) -> None:
        self._target.commit(1)
        self._show(self._features)

    def _show(self, features: mx.array | None) -> None:
        if self._drafter and features is not None:
            self._drafter.observe(features, self._target.position)

    def _judge(self, forward: Forward, position: int) -> Verdict:
        verdict = judge_same(forward.logits, None, self._sampler.noise(position, 1), self._sampler)
        self._sampler.record(verdict.tokens)
        mx.async_eval(verdict.packed, *([forward.features] if self._drafter and forward.features is not None else []))
        return verdict
