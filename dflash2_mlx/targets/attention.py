"""Targets whose whole cache can be trimmed: plain attention in every layer. Knows mlx-lm's model layout."""

from typing import Any

import mlx.core as mx

from dflash2_mlx.targets.base import LayeredTarget


class AttentionTarget(LayeredTarget):
    """Full attention in every layer, as in mlx-lm's `qwen3` and `llama`."""

    def _layer(self, layer: Any, hidden: mx.array, cache: Any, mask: Any, reversible: bool) -> mx.array:
        out: mx.array = layer(hidden, mask, cache)
        return out

    def _cut(self, rows: int, block: int) -> None:
        for cache in self._caches:
            trimmed = cache.trim(block - rows)
            assert trimmed == block - rows
