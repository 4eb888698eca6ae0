"""Targets that mix sliding-window with full attention. Knows mlx-lm's `muse_glimmer` layers."""

from typing import Any

import mlx.core as mx

from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.window import WindowCache


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
