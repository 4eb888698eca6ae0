"""By how much plain decoding chose a token over another: the scores that decided, nothing left out of them.

Knows pairs and the engine's sampler, and mlx because the scores are its arrays; what comes out is a number.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import mlx.core as mx

from dflash2_mlx.bench.timing import TimedTarget
from dflash2_mlx.engine.sampling import Sampler, log_weights
from dflash2_mlx.events import Round
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.session.session import Request, Session, render
from dflash2_mlx.targets.base import Forward, LayeredTarget


def margin_of(pair: Pair, request: Request, at: int, other: int) -> float | None:
    """The lead of plain decoding's token `at` over the token `other`, in logits; None where its text ends before.

    The scores are those that are compared when the token is taken: after bias and penalties, and where a seed draws,
    with the seed's noise, brought back to the scale of the logits by the temperature. Where a filter (top_p, top_k,
    min_p) left `other` out, the lead is at least its distance to the least likely token that was kept.
    """
    watched = _Watched(pair.target)
    alone = replace(
        request,
        engine=replace(request.engine, max_tokens=at + 1, block_size=1),
        text=replace(request.text, stop=()),
    )
    session = Session(replace(pair, target=cast(LayeredTarget, watched)))
    tokens = [token for event in session.stream(alone) if isinstance(event, Round) for token in event.tokens]
    if len(tokens) <= at or watched.last is None:
        return None
    sampler = Sampler(request.sampling, pair.target.vocab_size, render(pair, request).tokens)
    if at:
        sampler.record(mx.array(tokens[:at]))
    scores, own = sampler.scores(watched.last, None), tokens[at]  # [1, V]
    noise = sampler.noise(at, 1)
    if noise is None:
        return abs(_number(scores[0, own] - scores[0, other]))
    drawn = scores[0] + noise[0] * request.sampling.temperature
    lead = _number(drawn[own] - drawn[other])
    kept = log_weights(scores, request.sampling) > -mx.inf
    if kept[0, other].item():
        return abs(lead)
    return max(lead, _number(mx.where(kept, scores, mx.inf).min() - scores[0, other]))


def _number(value: mx.array) -> float:
    return cast(float, value.item())


class _Watched(TimedTarget):
    """A target that remembers the logits [1, V] of its last row."""

    last: mx.array | None

    def __init__(self, inner: LayeredTarget) -> None:
        super().__init__(inner)
        object.__setattr__(self, "last", None)

    def enter(self, tokens: Sequence[int], *, keep: int | None) -> Forward:
        """See Target.enter."""
        return self._keep(self._inner.enter(tokens, keep=keep))

    def verify(self, block: mx.array) -> Forward:
        """See Target.verify."""
        return self._keep(super().verify(block))

    def _keep(self, forward: Forward) -> Forward:
        object.__setattr__(self, "last", forward.logits[-1:])
        return forward
