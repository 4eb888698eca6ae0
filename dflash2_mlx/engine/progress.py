"""What one answer is asked for, and how far it is. Knows tokens only."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.errors import PromptError, PromptTooLongError
from dflash2_mlx.events import FinishReason

_CLEAR_EVERY = 256  # tokens between two returns of unused memory to the system


@dataclass(frozen=True, slots=True)
class Task:
    """One answer to decode: the prompt's tokens, how tokens are chosen, how far it runs."""

    prompt: Sequence[int]
    sampling: SamplingParams
    params: EngineParams

    def room(self, context_limit: int) -> int:
        """How many tokens may be produced: max_tokens, cut to what the context leaves.

        Raises: PromptError for an empty prompt or one longer than the context.
        """
        if not self.prompt:
            raise PromptError("the prompt is empty: there is nothing to continue. Give some text.")
        left = context_limit - len(self.prompt)
        if left < 0:
            raise PromptTooLongError(
                f"prompt is too long: {len(self.prompt)} tokens > {context_limit} maximum, the model's context. "
                "Shorten it."
            )
        return left if self.params.max_tokens is None else min(left, self.params.max_tokens)


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


def cut(tokens: tuple[int, ...], room: int, end_tokens: frozenset[int]) -> tuple[int, FinishReason | None]:
    """How many of the round's tokens count, and why the answer ends there, if it does: the earliest event wins."""
    for index, token in enumerate(tokens[:room]):
        if token in end_tokens:
            return index + 1, "stop"
    return (room, "length") if len(tokens) >= room else (len(tokens), None)
