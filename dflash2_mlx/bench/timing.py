"""Timing proxies round a pair's target and drafter: seconds a part with a wait around each, and what was proposed.

The waits make a round slower than it is, so shares are measured in answers of their own. Knows mlx because only it can
wait for the device; what comes out is numbers only.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import mlx.core as mx

from dflash2_mlx.engine.protocols import Draft, Drafter, Draw, Forward, Target
from dflash2_mlx.events import Event, Finished, Round
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.session.known import known_of
from dflash2_mlx.session.session import Request, Session, render, warm_up
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.text.stream import TextPipeline


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the time of one answer went after its first token, and its drafts.

    draft_s, verify_s: until the device had finished. accept_s: choosing, the transfer, committing, the loop itself.
    host_s: turning tokens into text, done once more afterwards. verify_passes: rows and seconds of each; draft_passes:
    seconds of each; passes that were launched before the first token was handed over are left out.
    candidates: for every drafted round, the candidate ids of each drafted position.
    """

    draft_s: float
    verify_s: float
    accept_s: float
    host_s: float
    verify_passes: tuple[tuple[int, float], ...]
    draft_passes: tuple[float, ...]
    candidates: tuple[tuple[tuple[int, ...], ...], ...]
    rounds: tuple[Round, ...]

    @property
    def total_s(self) -> float:
        """Seconds from the first token to the last."""
        return self.draft_s + self.verify_s + self.accept_s + self.host_s


def measure_parts(pair: Pair, request: Request) -> Parts:
    """Answer `request` with a wait around each part. Raises: what `Session.stream` raises."""
    target = TimedTarget(pair.target)
    drafter = TimedDrafter(pair.drafter) if pair.drafter else None
    # another pair, so that the waits teach `pair` nothing
    timed = replace(pair, target=cast(LayeredTarget, target), drafter=cast(DFlashDrafter | None, drafter))
    warm_up(pair)
    known_of(timed).warm = True  # its modules are the same
    began, ended = 0.0, 0.0
    rounds: list[Round] = []
    for event in _stream(timed, request):
        if isinstance(event, Round):
            ended = time.perf_counter()
            if not rounds:
                began = ended
                target.passes.clear()  # the first token's pass, and what was launched with it, is not decoding
                if drafter:
                    drafter.passes.clear()
            rounds.append(event)
    draft_s = sum(drafter.passes) if drafter else 0.0
    verify_s = sum(seconds for _, seconds in target.passes)
    host_s = text_seconds(pair, request, rounds)
    return Parts(
        draft_s,
        verify_s,
        max(0.0, ended - began - draft_s - verify_s - host_s),
        host_s,
        tuple(target.passes),
        tuple(drafter.passes) if drafter else (),
        tuple(map(_rows, drafter.kept)) if drafter else (),
        tuple(rounds),
    )


def text_seconds(pair: Pair, request: Request, rounds: list[Round]) -> float:
    """Seconds that turning these rounds into text takes, done once more by itself."""
    prompt, ends = render(pair, request), request.engine.end_tokens or pair.end_tokens
    text = TextPipeline.answering(pair.tokenizer, prompt, request.text, ends)
    began = time.perf_counter()
    for done in rounds[1:]:
        text.push(done.tokens)
    return time.perf_counter() - began


def _stream(pair: Pair, request: Request) -> Iterator[Event]:
    for event in Session(pair).stream(request):
        yield event
        if isinstance(event, Finished):
            return


def _rows(candidates: mx.array) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in cast(list[list[int]], candidates.tolist()))


class TimedTarget:
    """A target whose verifying passes are waited for and timed; everything else is the inner target's."""

    def __init__(self, inner: Target) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "passes", [])  # (rows, seconds)

    passes: list[tuple[int, float]]
    _inner: Target

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)

    def verify(self, block: mx.array) -> Forward:
        """See Target.verify; logits and features are there when it returns."""
        mx.eval(block)
        began = time.perf_counter()
        forward = self._inner.verify(block)
        mx.eval(forward.logits, [] if forward.features is None else forward.features)
        self.passes.append((block.shape[0], time.perf_counter() - began))
        return forward


class TimedDrafter:
    """A drafter whose proposals are waited for, timed and kept; everything else is the inner drafter's."""

    def __init__(self, inner: Drafter) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "passes", [])  # seconds
        object.__setattr__(self, "kept", [])  # candidates [n, K]

    passes: list[float]
    kept: list[mx.array]
    _inner: Drafter

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)

    def propose(self, anchor: mx.array, count: int, draw: Draw | None = None) -> Draft:
        """See Drafter.propose; the draft is there when it returns."""
        mx.eval(anchor)
        began = time.perf_counter()
        draft = self._inner.propose(anchor, count, draw)
        mx.eval(draft.tokens, draft.candidates)
        self.passes.append(time.perf_counter() - began)
        self.kept.append(draft.candidates)
        return draft
