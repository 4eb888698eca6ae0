"""Targets whose whole cache can be trimmed: plain attention in every layer. Knows mlx-lm's model layout."""

from typing import Any

import mlx.core as mx

from dflash2_mlx.targets.base import LayeredTarget


class AttentionTarget(LayeredTarget):
    """Full attention in every layer, as in mlx-lm's `qwen3` and `llama`."""

    def _masks(self, hidden: mx.array) -> Any:
        from mlx_lm.models.base import create_attention_mask

        return create_attention_mask(hidden, self._caches[0])

    def _layer(self, layer: Any, hidden: mx.array, cache: Any, masks: Any, reversible: bool) -> mx.array:
        out: mx.array = layer(hidden, masks, cache)
        return out

    def _cut(self, rows: int, block: int) -> None:
        for cache in self._caches:
            trimmed = cache.trim(block - rows)
            assert trimmed == block - rows
