"""Take a prompt in, and how much room is left after it. Knows Target and Drafter by protocol."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import mlx.core as mx

from dflash2_mlx.config import EngineParams
from dflash2_mlx.errors import PromptError, PromptTooLongError
from dflash2_mlx.events import FinishReason, Prefilling
from dflash2_mlx.models.selector import Draft, Draw
from dflash2_mlx.targets.base import Target

_TAIL_ROWS = 256  # the prompt's last tokens, taken in by the pass that gives the first token


class Drafter(Protocol):
    """Proposes tokens after an anchor, given the features of the positions before it."""

    @property
    def block_size(self) -> int:
        """Rows of the widest block it drafts, anchor included."""

    @property
    def context_rows(self) -> int | None:
        """How many positions before the anchor it can see; None = all."""

    def reset(self) -> None:
        """Forget the context."""

    def observe(self, features: mx.array, end: int) -> None:
        """Show the features [m, taps * H] of the positions `end - m` to `end - 1`."""

    def propose(self, anchor: mx.array, count: int, draw: Draw | None = None) -> Draft:
        """A draft of `count` tokens after `anchor` [1], greedy unless a draw is given; nothing is awaited."""


def room_for(prompt: Sequence[int], context_limit: int, params: EngineParams) -> int:
    """How many tokens may be produced: max_tokens, cut to what the context leaves.

    Raises: PromptError for an empty prompt or one longer than the context.
    """
    if not prompt:
        raise PromptError("the prompt is empty: there is nothing to continue. Give some text.")
    if len(prompt) > context_limit:
        raise PromptTooLongError(
            f"prompt is too long: {len(prompt)} tokens > {context_limit} maximum, the model's context. Shorten it."
        )
    left = context_limit - len(prompt)
    return left if params.max_tokens is None else min(left, params.max_tokens)


def take_in(
    target: Target, drafter: Drafter | None, prompt: Sequence[int], chunk: int, end: int | None = None
) -> Iterator[Prefilling]:
    """Bring the first `end` prompt tokens into the target's cache and the drafter's sight.

    end None: all but those that the first step takes along. Tokens that the cache already holds are not run again.
    """
    start = target.position
    assert start < len(prompt), f"{start} of {len(prompt)} prompt tokens are in the cache: none is left to run"
    if end is None:
        end = len(prompt) - target.rows_at_once(min(len(prompt) - start, chunk, _TAIL_ROWS))
    keep = drafter.context_rows if drafter else 0
    yield Prefilling(start, len(prompt))
    for done, features in target.prefill(prompt[start:end], chunk=chunk, keep=keep):
        if drafter and features is not None:
            drafter.observe(features, target.position)
        yield Prefilling(start + done, len(prompt))


def cut(tokens: tuple[int, ...], room: int, end_tokens: frozenset[int]) -> tuple[int, FinishReason | None]:
    """How many of the round's tokens count, and why the answer ends there, if it does: the earliest event wins."""
    for index, token in enumerate(tokens[:room]):
        if token in end_tokens:
            return index + 1, "stop"
    return (room, "length") if len(tokens) >= room else (len(tokens), None)
