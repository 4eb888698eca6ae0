"""The engine's words for what it works with: a target, a drafter, and who says how wide a block is. Knows no model."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import mlx.core as mx

from dflash2_mlx.models.selector import Draft, Draw
from dflash2_mlx.targets.base import Forward

__all__ = ["Draft", "Drafter", "Draw", "FixedWidth", "Forward", "Target", "Widths"]


class Target(Protocol):
    """A language model whose cache can be cut back, exactly, to any prefix of the rows it just verified."""

    vocab_size: int
    context_limit: int

    @property
    def position(self) -> int:
        """Rows in the cache: every committed token except the anchor."""

    def reset(self) -> None:
        """Empty the cache."""

    def prefill(
        self, tokens: Sequence[int], *, chunk: int | None, keep: int | None
    ) -> Iterator[tuple[int, mx.array | None]]:
        """Take `tokens` in, chunk by chunk: (tokens done so far, features of the chunk's last `keep` tokens).

        chunk: the most tokens of one; None = as suits the machine. The features of all its tokens where `keep` is
        None; None where it is 0. Closing it at any chunk is safe.
        """

    def rows_at_once(self, rows: int, depth: int) -> int:
        """How many of `rows` tokens one pass may take that ends with `depth` tokens in the cache."""

    def enter(self, tokens: Sequence[int], *, keep: int | None) -> Forward:
        """Take in the last `tokens` of a prompt, at most `rows_at_once`; launched and not awaited.

        Logits [1, V] of the last one; features of the last `keep`, as `prefill` gives them.
        """

    def verify(self, block: mx.array) -> Forward:
        """Run over the rows of `block` [b], launched and not awaited. `commit` must follow before the next call."""

    def commit(self, rows: int) -> None:
        """Keep the first `rows` rows of the last verified block and undo the others; 0 where none is open is no-op."""


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


class Widths(Protocol):
    """Says how many rows each block has, and is told what became of it. The choice changes no text."""

    def rows(self) -> int:
        """Rows of the next block, anchor included; 1 = a plain step. Asking changes nothing."""

    def record(self, rows: int, accepted: int) -> None:
        """A round of `rows` rows kept `accepted` of its `rows - 1` draft tokens: a drafted one once it is over, a plain
        step once the device has begun the next."""


class FixedWidth:
    """The same width for every block."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def rows(self) -> int:
        """See Widths.rows."""
        return self._rows

    def record(self, rows: int, accepted: int) -> None:
        """Learns nothing."""
