"""Plain decoding, one token a step, with the loop's events: the oracle of tests and the baseline of measurements."""

from collections.abc import Generator, Sequence

import mlx.core as mx

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.accept import Verdict, judge_same
from dflash2_mlx.engine.prefill import cut, room_for, take_in
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.events import Ended, FinishReason, Prefilling, Round
from dflash2_mlx.targets.base import Target

_CLEAR_EVERY = 256  # tokens between two returns of unused memory to the system


def decode_plain(
    target: Target, prompt: Sequence[int], sampling: SamplingParams, params: EngineParams
) -> Generator[Prefilling | Round | Ended, None, None]:
    """Answer `prompt` without a drafter. The next step is launched before the current token is read.

    Closing the generator at any yield leaves every committed token except the last in the cache.
    Raises: PromptError for an empty or over-long prompt.
    """
    room = room_for(prompt, target.context_limit, params)
    if room == 0:
        yield Ended("length")
        return
    yield from take_in(target, None, prompt, params.prefill_chunk)
    sampler = Sampler(sampling, target.vocab_size, prompt)
    reason: FinishReason | None = None
    produced = 0
    try:
        step = _launch(target, mx.array([prompt[-1]], dtype=mx.int32), produced, sampler)
        while reason is None:
            target.commit(1)
            following = _launch(target, step.tokens, produced + 1, sampler) if produced + 1 < room else None
            decision = step.read()
            _, reason = cut(decision.tokens, room - produced, params.end_tokens)
            produced += 1
            if produced % _CLEAR_EVERY == 0:
                mx.clear_cache()
            yield Round(decision.tokens, 0, 0, decision.logprobs)
            if following:
                step = following
    finally:
        target.rollback()
    yield Ended(reason)


def _launch(target: Target, token: mx.array, position: int, sampler: Sampler) -> Verdict:
    """The verdict on the token after `token` [1], launched and not awaited."""
    forward = target.verify(token)
    verdict = judge_same(forward.logits, None, sampler.noise(position, 1), sampler)
    sampler.record(verdict.tokens)
    mx.async_eval(verdict.packed)
    return verdict
