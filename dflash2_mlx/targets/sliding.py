"""Targets that mix sliding-window with full attention. Knows mlx-lm's `muse_glimmer` layers.

mlx-lm's rotating cache writes over old rows, so rejected ones cannot be taken back once the window has wrapped. Ours
keeps rows in order and drops what has left the window only before a block is written, so cutting back is exact.
"""

from typing import Any

import mlx.core as mx

from dflash2_mlx.targets.base import LayeredTarget

_SPARE_ROWS = 256


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
            capacity = max(2 * self._window, seen + count) + _SPARE_ROWS
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

    def trim(self, count: int) -> None:
        """Take back the last `count` rows; they must belong to the last update."""
        self._rows -= count
        self.offset -= count

    def _moved(self, old: mx.array | None, like: mx.array, keep: int, capacity: int) -> mx.array:
        fresh = mx.zeros((1, like.shape[1], capacity, like.shape[3]), dtype=like.dtype)
        if old is not None and keep:
            fresh[..., :keep, :] = old[..., self._rows - keep : self._rows, :]
        return fresh


class SlidingTarget(LayeredTarget):
    """Sliding and full attention in one model, as in mlx-lm's `muse_glimmer`."""

    def _make_caches(self) -> list[Any]:
        return [
            WindowCache(cache.max_size) if hasattr(cache, "max_size") else cache for cache in super()._make_caches()
        ]

    def _enter(self, ids: mx.array) -> mx.array:
        return mx.fast.rms_norm(self._model.embed_tokens(ids), None, self._model.embed_eps)

    def _logits(self, hidden: mx.array) -> mx.array:
        args = self._language_model.args
        cap = args.final_logit_softcapping
        return mx.tanh(self.head(hidden) * args.output_multiplier / cap) * cap

    def _masks(self, hidden: mx.array) -> Any:
        """(mask of sliding layers, mask of full layers)."""
        from mlx_lm.models.base import create_attention_mask, create_causal_mask

        count, sliding, full = hidden.shape[1], None, None
        for cache in self._caches:
            if isinstance(cache, WindowCache):
                sliding = cache
            else:
                full = cache
        window = None
        if sliding is not None and count > 1:
            seen = sliding.visible
            within = seen + count <= self._model.window
            window = "causal" if within else create_causal_mask(count, seen, window_size=self._model.window)
        return window, create_attention_mask(hidden, full) if full is not None else None

    def _layer(self, layer: Any, hidden: mx.array, cache: Any, masks: Any, reversible: bool) -> mx.array:
        out: mx.array = layer(hidden, masks[0 if isinstance(cache, WindowCache) else 1], cache)
        return out

    def _cut(self, rows: int, block: int) -> None:
        for cache in self._caches:
            cache.trim(block - rows)
