"""Keys and values of a sliding-window layer, exact to cut back. Knows mlx only.

mlx-lm's rotating cache writes over old rows, so rejected ones cannot be taken back once the window has wrapped. Ours
keeps rows in order and drops what has left the window only before a block is written, so cutting back is exact.
"""

import mlx.core as mx

from dflash2_mlx.targets.limits import SPARE_ROWS


class WindowCache:
    """Keys and values of the last `window` rows and of the block being verified; what mlx-lm layers ask of a cache."""

    def __init__(self, window: int) -> None:
        self._window = window
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = 0  # rows ever kept: the position of the next one
        self._rows = 0  # rows in the buffer; the last one has position offset - 1

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None]:
        """The arrays, for evaluation."""
        return self.keys, self.values

    @property
    def nbytes(self) -> int:
        """Bytes held by the buffer."""
        return 0 if self.keys is None or self.values is None else self.keys.nbytes + self.values.nbytes

    def empty(self) -> bool:
        """Whether nothing was ever stored."""
        return self.keys is None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Store [1, kv_heads, n, head_dim] and return what those n rows can see, oldest first."""
        count = keys.shape[2]
        seen = self.visible
        if self.keys is None or self._rows + count > self.keys.shape[2]:
            capacity = max(2 * self._window, seen + count) + SPARE_ROWS
            self.keys, self.values = (
                self._moved(old, new, seen, capacity) for old, new in ((self.keys, keys), (self.values, values))
            )
            self._rows = seen
        assert self.keys is not None and self.values is not None
        end = self._rows + count
        self.keys[..., self._rows : end, :] = keys
        self.values[..., self._rows : end, :] = values
        self._rows, self.offset = end, self.offset + count
        return self.keys[..., end - count - seen : end, :], self.values[..., end - count - seen : end, :]

    @property
    def visible(self) -> int:
        """How many stored rows the next row can see."""
        return min(self.offset, self._window - 1)

    def copy(self) -> tuple[mx.array, mx.array] | None:
        """Keys and values of the visible rows, in arrays that nothing writes into; None where nothing was stored."""
        if self.keys is None or self.values is None:
            return None
        rows = slice(self._rows - self.visible, self._rows)
        return mx.contiguous(self.keys[..., rows, :]), mx.contiguous(self.values[..., rows, :])

    def put_back(self, keys: mx.array | None, values: mx.array | None, offset: int) -> None:
        """Hold what `copy` gave when `offset` rows had been kept. The buffer is full, so the next row moves it."""
        self.keys, self.values, self.offset = keys, values, offset
        self._rows = 0 if keys is None else keys.shape[2]

    def trim(self, count: int) -> None:
        """Take back the last `count` rows; they must belong to the last update."""
        self._rows -= count
        self.offset -= count

    def _moved(self, old: mx.array | None, like: mx.array, keep: int, capacity: int) -> mx.array:
        fresh = mx.zeros((1, like.shape[1], capacity, like.shape[3]), dtype=like.dtype)
        if old is not None and keep:
            fresh[..., :keep, :] = old[..., self._rows - keep : self._rows, :]
        return fresh
