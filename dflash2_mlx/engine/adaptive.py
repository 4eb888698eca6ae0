"""A drafter whose block size is chosen anew before each round. Knows the Drafter protocol and the policy."""

import mlx.core as mx

from dflash2_mlx.engine.prefill import Drafter
from dflash2_mlx.engine.widths import WidthPolicy
from dflash2_mlx.models.selector import Draft, Draw


class AdaptiveDrafter:
    """`drafter` with the block size that `policy` says. It tells the policy what became of every round.

    A round begins when the block size is asked for and ends when its features are shown: one row for the anchor and
    one for every draft token that was kept.
    """

    def __init__(self, drafter: Drafter, policy: WidthPolicy) -> None:
        self._drafter, self._policy = drafter, policy
        self._rows: int | None = None  # of the round under way
        policy.start()

    @property
    def block_size(self) -> int:
        """Rows of the next block; 1 = a plain step."""
        self._rows = 1
        return self._policy.rows

    @property
    def context_rows(self) -> int | None:
        """See Drafter.context_rows."""
        return self._drafter.context_rows

    def reset(self) -> None:
        """Forget the context."""
        self._drafter.reset()

    def observe(self, features: mx.array, end: int) -> None:
        """See Drafter.observe."""
        self._drafter.observe(features, end)
        if self._rows is not None:
            self._policy.record(self._rows, features.shape[0] - 1)
            self._rows = None

    def propose(self, anchor: mx.array, count: int, draw: Draw | None = None) -> Draft:
        """See Drafter.propose."""
        self._rows = count + 1
        return self._drafter.propose(anchor, count, draw)
