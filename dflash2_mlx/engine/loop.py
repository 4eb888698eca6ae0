"""The loop: draft, verify, accept, commit. Knows Target and Drafter by protocol, nothing of text.

Between rounds the target's cache holds every committed token except the anchor, and the drafter has been shown the
features of all of those. One blocking host transfer a round, in `Verdict.read`. A round without a draft is a plain
step.
"""

from collections.abc import Callable, Generator, Sequence

import mlx.core as mx

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.accept import PROPOSE, Verdict, judge_rejection, judge_same
from dflash2_mlx.engine.baseline import PlainSteps, Progress
from dflash2_mlx.engine.prefill import Drafter, room_for, take_in
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.events import Ended, Prefilling, Round
from dflash2_mlx.models.selector import Draft, Draw
from dflash2_mlx.targets.base import Target


def decode(
    target: Target, drafter: Drafter, prompt: Sequence[int], sampling: SamplingParams, params: EngineParams
) -> Generator[Prefilling | Round | Ended, None, None]:
    """Answer `prompt` with blocks of `params.block_size` rows (None = what the drafter says before each round).

    A drafted round is yielded while the device already works on the next draft. Closing the generator at any yield
    leaves target and drafter as the invariant above says.
    Raises: PromptError for an empty or over-long prompt.
    """
    room = room_for(prompt, target.context_limit, params)
    if room == 0:
        yield Ended("length")
        return
    yield from take_in(target, drafter, prompt, params.prefill_chunk)
    sampler = Sampler(sampling, target.vocab_size, prompt)
    steps, rounds = PlainSteps(target, drafter, sampler), _Rounds(target, drafter, sampler, params)
    answer = Progress(room, params.end_tokens)

    def width() -> int:
        return min(params.block_size or drafter.block_size, answer.left)

    yield from steps.begin(answer, prompt[target.position :], lambda: width() == 1)  # the first token needs no draft
    while answer.reason is None:
        yield from rounds.run(answer, width)
        if answer.reason is None:
            yield from steps.run(answer, lambda: width() == 1)
    yield Ended(answer.reason)


class _Rounds:
    """The drafted rounds of one answer."""

    def __init__(self, target: Target, drafter: Drafter, sampler: Sampler, params: EngineParams) -> None:
        self._target, self._drafter, self._sampler = target, drafter, sampler
        self._rejection = params.acceptance == "rejection" and not sampler.greedy

    def run(self, answer: Progress, width: Callable[[], int]) -> Generator[Round, None, None]:
        """Carry `answer` on until it ends, or until `width`, asked before every round, is 1."""
        done: Round | None = None
        try:
            while answer.reason is None and (rows := width()) > 1:
                noise = None if self._rejection else self._sampler.noise(answer.produced, rows)
                draft = self._propose(answer.anchor, answer.produced, rows, noise)
                mx.async_eval(draft.tokens)
                if done:  # here, since launching a verifying pass may wait for most of it: MLX bounds what is queued
                    yield done
                verdict, features = self._verify(answer.anchor, answer.produced, draft, noise)
                decision = verdict.read()
                count = answer.add(decision.tokens, verdict.tokens)
                self._commit(verdict, features, count)
                done = Round(decision.tokens, rows - 1, decision.accepted, decision.logprobs).cut(count)
        finally:
            self._target.rollback()
        if done:
            yield done

    def _verify(
        self, anchor: mx.array, produced: int, draft: Draft, noise: mx.array | None
    ) -> tuple[Verdict, mx.array]:
        """The verdict on `draft` after `produced` tokens and the features of its rows, launched and not awaited."""
        forward = self._target.verify(mx.concatenate([anchor, draft.tokens.astype(anchor.dtype)]))
        assert forward.features is not None, "the target was built without the drafter's taps"
        if self._rejection:
            verdict = judge_rejection(forward.logits, draft, produced, self._sampler)
        else:
            verdict = judge_same(forward.logits, draft, noise, self._sampler)
        mx.async_eval(verdict.packed, forward.features)
        return verdict, forward.features

    def _commit(self, verdict: Verdict, features: mx.array, count: int) -> None:
        """Keep the round's first `count` tokens: the anchor's row and those of all but the last of them."""
        self._target.commit(count)
        self._drafter.observe(features[:count], self._target.position)
        self._sampler.record(verdict.tokens[:count])

    def _propose(self, anchor: mx.array, produced: int, width: int, noise: mx.array | None) -> Draft:
        if self._sampler.greedy:
            return self._drafter.propose(anchor, width - 1)
        if noise is None:
            noise = self._sampler.noise(produced, width - 1, PROPOSE)
        assert noise is not None
        return self._drafter.propose(anchor, width - 1, Draw(self._sampler.params.temperature, noise[: width - 1]))
