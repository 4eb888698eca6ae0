"""The loop: draft, verify, accept, commit. Knows Target and Drafter by protocol, nothing of text.

Between rounds the target's cache holds every committed token except the anchor, and the drafter has been shown the
features of all of those. One blocking host transfer a round, in `Verdict.read`. A round without a draft is a plain
step.
"""

from collections.abc import Generator

import mlx.core as mx

from dflash2_mlx.engine.accept import PROPOSE, Verdict, judge_rejection, judge_same
from dflash2_mlx.engine.prefill import take_in
from dflash2_mlx.engine.progress import Progress, Task
from dflash2_mlx.engine.protocols import Draft, Drafter, Draw, FixedWidth, Target, Widths
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.engine.steps import PlainSteps
from dflash2_mlx.events import Ended, Prefilling, Round


def decode(
    target: Target, drafter: Drafter, task: Task, widths: Widths | None = None
) -> Generator[Prefilling | Round | Ended, None, None]:
    """Answer `task` with blocks of as many rows as `widths` says; None = `task.params.block_size`, or the widest.

    A drafted round is yielded while the device already works on the next draft. Closing the generator at any yield
    leaves target and drafter as the invariant above says.
    Raises: PromptError for an empty or over-long prompt.
    """
    widths = widths or FixedWidth(task.params.block_size or drafter.block_size)
    answer = Progress(task.room(target.context_limit), task.params.end_tokens)
    if answer.room == 0:
        yield Ended("length")
        return
    yield from take_in(target, drafter, task)
    sampler = Sampler(task.sampling, target.vocab_size, task.prompt)
    steps = PlainSteps(target, drafter, sampler, widths)
    rounds = DraftedRounds(target, drafter, sampler, rejection=task.params.acceptance == "rejection")
    yield from steps.begin(answer, task.prompt[target.position :])  # the first token needs no draft
    while answer.reason is None:
        yield from rounds.run(answer, widths)
        if answer.reason is None:
            yield from steps.run(answer)
    yield Ended(answer.reason)


class DraftedRounds:
    """The drafted rounds of one answer. rejection: the acceptance rule where sampling, else coupled."""

    def __init__(self, target: Target, drafter: Drafter, sampler: Sampler, *, rejection: bool) -> None:
        self._target, self._drafter, self._sampler = target, drafter, sampler
        self._rejection = rejection and not sampler.greedy

    def run(self, answer: Progress, widths: Widths) -> Generator[Round, None, None]:
        """Carry `answer` on until it ends, or until `widths`, asked before every round, says 1."""
        done: Round | None = None
        kept = 0  # rows of the verified block that stay; it is cut behind the next draft, as the device works on that
        try:
            while answer.reason is None and (rows := min(widths.rows(), answer.left)) > 1:
                noise = None if self._rejection else self._sampler.noise(answer.produced, rows)
                draft = self._propose(answer, rows - 1, noise)
                mx.async_eval(draft.tokens)
                self._target.commit(kept)
                kept = 0
                if done:  # here, since launching a verifying pass may wait for most of it: MLX bounds what is queued
                    yield done
                verdict, features = self._verify(answer, draft, noise)
                decision = verdict.read()
                kept = answer.add(decision.tokens, verdict.tokens)
                self._drafter.observe(features[:kept], self._target.position + kept)
                self._sampler.record(verdict.tokens[:kept])
                widths.record(rows, kept - 1)
                done = Round(decision.tokens, rows - 1, decision.accepted, decision.logprobs).cut(kept)
        finally:
            self._target.commit(kept)
        if done:
            yield done

    def _propose(self, answer: Progress, count: int, noise: mx.array | None) -> Draft:
        if self._sampler.greedy:
            return self._drafter.propose(answer.anchor, count)
        if noise is None:
            noise = self._sampler.noise(answer.produced, count, PROPOSE)
        assert noise is not None
        return self._drafter.propose(answer.anchor, count, Draw(self._sampler.params.temperature, noise[:count]))

    def _verify(self, answer: Progress, draft: Draft, noise: mx.array | None) -> tuple[Verdict, mx.array]:
        """The verdict on `draft` and the features of its rows, launched and not awaited."""
        forward = self._target.verify(mx.concatenate([answer.anchor, draft.tokens.astype(answer.anchor.dtype)]))
        assert forward.features is not None, "the target was built without the drafter's taps"
        if self._rejection:
            verdict = judge_rejection(forward.logits, draft, answer.produced, self._sampler)
        else:
            verdict = judge_same(forward.logits, draft, noise, self._sampler)
        mx.async_eval(verdict.packed, forward.features)
        return verdict, forward.features
