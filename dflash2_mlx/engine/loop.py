"""The loop: draft, verify, accept, commit. Knows Target and Drafter by protocol, nothing of text.

Between rounds the target's cache holds every committed token except the anchor, and the drafter has been shown the
features of all of those. One blocking host transfer a round, in `Verdict.read`.
"""

from collections.abc import Generator, Sequence

import mlx.core as mx

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.accept import PROPOSE, Verdict, judge_rejection, judge_same
from dflash2_mlx.engine.prefill import Drafter, cut, room_for, take_in
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.events import Ended, FinishReason, Prefilling, Round
from dflash2_mlx.models.selector import Draft, Draw
from dflash2_mlx.targets.base import Target

_CLEAR_EVERY = 256  # tokens between two returns of unused memory to the system


def decode(
    target: Target, drafter: Drafter, prompt: Sequence[int], sampling: SamplingParams, params: EngineParams
) -> Generator[Prefilling | Round | Ended, None, None]:
    """Answer `prompt` with blocks of `params.block_size` rows (None = the drafter's).

    A round is yielded while the device already works on the next one. Closing the generator at any yield leaves
    target and drafter as the invariant above says.
    Raises: PromptError for an empty or over-long prompt.
    """
    room = room_for(prompt, target.context_limit, params)
    if room == 0:
        yield Ended("length")
        return
    yield from take_in(target, drafter, prompt, params.prefill_chunk)
    rounds = _Rounds(target, drafter, Sampler(sampling, target.vocab_size, prompt), params)
    block_size = params.block_size or drafter.block_size
    anchor = mx.array([prompt[-1]], dtype=mx.int32)
    produced, width = 0, 1  # the first token is a round with an empty draft
    done: Round | None = None
    reason: FinishReason | None = None
    try:
        while reason is None:
            verdict, features = rounds.launch(anchor, produced, min(width, room - produced))
            if done:
                yield done
            decision = verdict.read()
            count, reason = cut(decision.tokens, room - produced, params.end_tokens)
            rounds.commit(verdict, features, count)
            anchor = verdict.tokens[count - 1 : count]
            drafted = verdict.tokens.shape[0] - 1
            done = Round(decision.tokens, drafted, decision.accepted, decision.logprobs).cut(count)
            if (produced + count) // _CLEAR_EVERY > produced // _CLEAR_EVERY:
                mx.clear_cache()
            produced, width = produced + count, block_size
    finally:
        target.rollback()
    assert done is not None
    yield done
    yield Ended(reason)


class _Rounds:
    """Launches and commits the rounds of one answer."""

    def __init__(self, target: Target, drafter: Drafter, sampler: Sampler, params: EngineParams) -> None:
        self._target, self._drafter, self._sampler = target, drafter, sampler
        self._rejection = params.acceptance == "rejection" and not sampler.greedy

    def launch(self, anchor: mx.array, produced: int, width: int) -> tuple[Verdict, mx.array]:
        """Draft and verify a block of `width` rows after `produced` tokens; everything is launched, nothing awaited."""
        noise = None if self._rejection and width > 1 else self._sampler.noise(produced, width)
        draft = self._propose(anchor, produced, width, noise) if width > 1 else None
        if draft:
            mx.async_eval(draft.tokens)  # the drafter works while the target's graph is built
        block = mx.concatenate([anchor, draft.tokens.astype(anchor.dtype)]) if draft else anchor
        forward = self._target.verify(block)
        assert forward.features is not None, "the target was built without the drafter's taps"
        if draft and self._rejection:
            verdict = judge_rejection(forward.logits, draft, produced, self._sampler)
        else:
            verdict = judge_same(forward.logits, draft, noise, self._sampler)
        mx.async_eval(verdict.packed, forward.features)
        return verdict, forward.features

    def commit(self, verdict: Verdict, features: mx.array, count: int) -> None:
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
