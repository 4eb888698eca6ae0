"""Plain decoding, one token a step, with the loop's events: the oracle of tests, the baseline of measurements, and what
the loop does where it does not draft. Knows Target and Drafter by protocol."""

from collections.abc import Generator, Sequence

import mlx.core as mx

from dflash2_mlx.engine.accept import Verdict, judge_same
from dflash2_mlx.engine.prefill import take_in
from dflash2_mlx.engine.progress import Progress, Task
from dflash2_mlx.engine.protocols import Drafter, FixedWidth, Forward, Target, Widths
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.events import Ended, Prefilling, Round


def decode_plain(target: Target, task: Task) -> Generator[Prefilling | Round | Ended, None, None]:
    """Answer `task` without a drafter.

    Closing the generator at any yield leaves every committed token except the last in the cache.
    Raises: PromptError for an empty or over-long prompt.
    """
    answer = Progress(task.room(target.context_limit), task.params.end_tokens)
    if answer.room == 0:
        yield Ended("length")
        return
    yield from take_in(target, None, task)
    steps = PlainSteps(target, None, Sampler(task.sampling, target.vocab_size, task.prompt), FixedWidth(1))
    yield from steps.begin(answer, task.prompt[target.position :])
    assert answer.reason is not None
    yield Ended(answer.reason)


class PlainSteps:
    """Steps without a draft. The next step is launched before the current token is read.

    A drafter, if one is given, is shown the features of every committed token.
    """

    def __init__(self, target: Target, drafter: Drafter | None, sampler: Sampler, widths: Widths) -> None:
        self._target, self._drafter, self._sampler, self._widths = target, drafter, sampler, widths

    def begin(self, answer: Progress, tokens: Sequence[int]) -> Generator[Round, None, None]:
        """Take in the prompt's last `tokens`, and carry `answer` on from there as `run` does."""
        forward = self._target.enter(tokens, keep=self._drafter.context_rows if self._drafter else 0)
        self._show(forward.features)
        yield from self._steps(answer, self._judge(forward, answer.produced))

    def run(self, answer: Progress) -> Generator[Round, None, None]:
        """Carry `answer` on until it ends, or until a wider block is asked for and has room."""
        step = self._launch(answer.anchor, answer.produced)
        self._commit()
        yield from self._steps(answer, step)

    def _steps(self, answer: Progress, step: Verdict | None) -> Generator[Round, None, None]:
        try:
            while step:
                follows = answer.left == 2 or (answer.left > 2 and self._widths.rows() == 1)
                ahead = self._launch(step.tokens, answer.produced + 1) if follows else None
                decision = step.read()
                answer.add(decision.tokens, step.tokens)
                yield Round(decision.tokens, 0, 0, decision.logprobs)
                step = None if answer.reason else ahead
                if step:
                    self._commit()
        finally:
            self._target.commit(0)

    def _launch(self, token: mx.array, position: int) -> Verdict:
        """The verdict on the token after `token` [1], launched and not awaited; `_commit` keeps its row."""
        forward = self._target.verify(token)
        self._features = forward.features
        return self._judge(forward, position)

    def _commit(self) -> None:
        self._target.commit(1)
        self._show(self._features)
        self._widths.record(1, 0)

    def _show(self, features: mx.array | None) -> None:
        if self._drafter and features is not None:
            self._drafter.observe(features, self._target.position)

    def _judge(self, forward: Forward, position: int) -> Verdict:
        verdict = judge_same(forward.logits, None, self._sampler.noise(position, 1), self._sampler)
        self._sampler.record(verdict.tokens)
        mx.async_eval(verdict.packed, *([forward.features] if self._drafter and forward.features is not None else []))
        return verdict
