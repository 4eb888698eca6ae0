"""Keys and values of the context rows that a draft layer can see. Knows mlx only.

One buffer a layer, written left to right: context rows stay, a block's rows lie after them as scratch and are
overwritten by the next round. Nothing is trimmed and nothing is re-ordered, so row order is position order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx

from dflash2_mlx.models.config import SPARE_ROWS


class ContextCache:
    """Context keys and values of one draft layer; `window` None = every row is seen for ever."""

    def __init__(self, window: int | None) -> None:
        self._visible = None if window is None else window - 1
        self._keys: mx.array | None = None
        self._values: mx.array | None = None
        self.rows = 0  # context rows in the buffer; the last one belongs to the position before the anchor

    @property
    def nbytes(self) -> int:
        """Bytes held by the buffer."""
        return 0 if self._keys is None or self._values is None else self._keys.nbytes + self._values.nbytes

    def clear(self) -> None:
        """Forget all rows."""
        self._keys = self._values = None
        self.rows = 0

    def copy(self) -> tuple[mx.array, mx.array] | None:
        """Keys and values of the rows that a window can still see; None where all rows are kept, or none is there."""
        if self._visible is None or self._keys is None or self._values is None:
            return None
        rows = slice(max(0, self.rows - self._visible), self.rows)
        return mx.contiguous(self._keys[..., rows, :]), mx.contiguous(self._values[..., rows, :])

    def put_back(self, copied: tuple[mx.array, mx.array] | None, position: int) -> None:
        """What `copy` gave at `position`. The buffer is full then, so the next row moves it."""
        if self._visible is None:
            self.rows = position
            if self._keys is not None and self._values is not None and self._keys.shape[2] > 3 * position + SPARE_ROWS:
                # give back the room of rows that were cut off, where it is more than what is kept
                self._keys = mx.contiguous(self._keys[..., :position, :])
                self._values = mx.contiguous(self._values[..., :position, :])
                mx.eval(self._keys, self._values)
            return
        self._keys, self._values = copied or (None, None)
        self.rows = 0 if self._keys is None else self._keys.shape[2]

    def fork(self, position: int) -> "ContextCache":
        """A cache of its own that holds the first `position` rows, where all are kept; else an empty one."""
        new = ContextCache(None if self._visible is None else self._visible + 1)
        if self._visible is None and self._keys is not None and self._values is not None:
            new._keys = mx.contiguous(self._keys[..., :position, :])
            new._values = mx.contiguous(self._values[..., :position, :])
        return new

    def update(self, keys: mx.array, values: mx.array, context: int) -> tuple[mx.array, mx.array]:
        """Store the first `context` rows for good, the others as scratch; what the block's queries may see.

        keys, values: [1, kv_heads, context + block, head_dim]. Returns both as [1, kv_heads, seen + block, head_dim].
        """
        count = keys.shape[2]
        self._make_room(keys, values, count)
        assert self._keys is not None and self._values is not None
        self._keys[..., self.rows : self.rows + count, :] = keys
        self._values[..., self.rows : self.rows + count, :] = values
        end = self.rows + count
        self.rows += context
        start = 0 if self._visible is None else max(0, self.rows - self._visible)
        return self._keys[..., start:end, :], self._values[..., start:end, :]

    def _make_room(self, keys: mx.array, values: mx.array, count: int) -> None:
        """A buffer with room for `count` more rows: the old one, or a new one that keeps what can still be seen."""
        if self._keys is not None and self.rows + count <= self._keys.shape[2]:
            return
        keep = self.rows if self._visible is None else min(self.rows, self._visible)
        capacity = 2 * (keep + count) if self._visible is None else 2 * self._visible + count
        self._keys = self._moved(self._keys, keys, keep, capacity + SPARE_ROWS)
        self._values = self._moved(self._values, values, keep, capacity + SPARE_ROWS)
        self.rows = keep

    def _moved(self, old: mx.array | None, like: mx.array, keep: int, capacity: int) -> mx.array:
        fresh = mx.zeros((1, like.shape[1], capacity, like.shape[3]), dtype=like.dtype)
        if old is not None and keep:
            fresh[..., :keep, :] = old[..., self.rows - keep : self.rows, :]
        return fresh


@dataclass(frozen=True, slots=True)
class DraftSnapshot:
    """A place to come back to: what the windows saw when features up to `position` had been shown."""

    position: int
    parts: tuple[tuple[mx.array, mx.array] | None, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held by this snapshot alone."""
        return sum(array.nbytes for part in self.parts if part for array in part)


class DraftCache:
    """What a drafter remembers: the context of every layer, and the features [m, taps * H] not taken in yet."""

    def __init__(self, windows: Sequence[int | None]) -> None:
        self.layers = [ContextCache(window) for window in windows]
        self.pending: list[mx.array] = []
        self.position = 0  # features up to here were shown

    @property
    def nbytes(self) -> int:
        """Bytes held by all layers and by waiting features."""
        return sum(layer.nbytes for layer in self.layers) + sum(rows.nbytes for rows in self.pending)

    def clear(self) -> None:
        """Forget everything."""
        for layer in self.layers:
            layer.clear()
        self.pending, self.position = [], 0

    def snapshot(self) -> DraftSnapshot:
        """This place; it stays good while the cache goes on. Nothing may be waiting."""
        assert not self.pending, "features are waiting"
        parts = tuple(layer.copy() for layer in self.layers)
        mx.async_eval([part for part in parts if part])
        return DraftSnapshot(self.position, parts)

    def restore(self, snapshot: DraftSnapshot) -> None:
        """Go back to `snapshot`, which was taken of this cache or of the one that it was forked from."""
        assert snapshot.position <= self.position, f"{snapshot.position} rows asked for, {self.position} were shown"
        for layer, part in zip(self.layers, snapshot.parts, strict=True):
            layer.put_back(part, snapshot.position)
        self.pending, self.position = [], snapshot.position

    def fork(self, snapshot: DraftSnapshot) -> "DraftCache":
        """A cache of its own at `snapshot`; neither ever sees the other's rows."""
        new = DraftCache(())
        new.layers = [layer.fork(snapshot.position) for layer in self.layers]
        new.position = snapshot.position
        new.restore(snapshot)
        return new

    def release(self) -> None:
        """Drop what a snapshot brings back; `restore` must come before the next use."""
        for layer in self.layers:
            layer.put_back(None, self.position)
        self.pending = []


@lru_cache(maxsize=64)
def block_mask(context: int, block: int, *, window: int | None, causal: bool) -> mx.array | str | None:
    """Which keys the block's queries see: bool [block, context + block], "causal", or None where they see all.

    The keys are `context` rows that end right before the anchor, then the block. A context key is seen iff
    query position - key position < window. Once the window is full the mask no longer changes, so it is kept.
    """
    if window is None or context + block <= window:
        return "causal" if causal else None
    rows = []
    for query in range(context, context + block):
        first, last = query - window + 1, query if causal else context + block - 1
        rows.append([(first <= key or key >= context) and key <= last for key in range(context + block)])
    return mx.array(rows)
