"""The drafter over many blocks at once, with gradients: same modules, same numbers as at inference. Knows mlx only.

B pieces of L tokens, A anchors each, blocks of W rows. Every block sees the context rows before its anchor, within
the window, and its own rows; context keys are computed once for all blocks of a piece.
"""

from typing import Any

import mlx.core as mx

from dflash2_mlx.models.config import DrafterConfig
from dflash2_mlx.models.layers import DraftAttention, DraftLayer, DraftNetwork, DynamicConv


class BlockPass:
    """The network of `config` for training; `block_mask` of the inference path has its counterpart in `_seen`."""

    def __init__(self, config: DrafterConfig) -> None:
        assert not any(config.causal), "blocks are trained to see themselves whole"
        self._config = config

    def hidden(self, network: DraftNetwork, features: mx.array, anchors: mx.array, rows: mx.array) -> mx.array:
        """Hidden states [B, A, W, H] after the final norm.

        features: [B, L, taps * H]; anchors: positions [B, A] int32; rows: embedded blocks [B, A, W, H].
        """
        context = network.context_rows(features)
        for number, layer in enumerate(network.layers):
            seen = self._seen(anchors, features.shape[1], rows.shape[2], self._config.windows[number])
            rows = self._layer(layer, rows, context, anchors, seen)
        out: mx.array = network.norm(rows)
        return out

    def _seen(self, anchors: mx.array, length: int, width: int, window: int | None) -> mx.array:
        """Which context keys each block row sees: bool [B, 1, A, 1, W, L]."""
        keys = mx.arange(length)
        before = keys < anchors[..., None, None]  # [B, A, 1, L]
        if window is not None:
            queries = anchors[..., None] + mx.arange(width)  # [B, A, W]
            before = before & (queries[..., None] - keys < window)
        return before[:, None, :, None]

    def _layer(
        self, layer: DraftLayer, rows: mx.array, context: mx.array, anchors: mx.array, seen: mx.array
    ) -> mx.array:
        def attend(normed: mx.array) -> mx.array:
            return self._attend(layer.self_attn, normed, context, anchors, seen)

        rows = rows + _around(layer.get("attention_conv"), attend, layer.input_layernorm(rows))
        return rows + _around(layer.get("mlp_conv"), layer.mlp, layer.post_attention_layernorm(rows))

    def _attend(
        self, attention: DraftAttention, rows: mx.array, context: mx.array, anchors: mx.array, seen: mx.array
    ) -> mx.array:
        """[B, A, W, H] for normed block rows of the same shape, context rows [B, L, H]."""
        config, (pieces, anchored, width, _), length = self._config, rows.shape, context.shape[1]
        groups = config.num_heads // config.num_kv_heads
        shape = (pieces, config.num_kv_heads, anchored)  # [B, K, A]
        blocks = rows.reshape(pieces * anchored, width, -1)
        starts, zeros = anchors.reshape(-1), mx.zeros((pieces,), dtype=mx.int32)

        def by_head(heads: mx.array) -> mx.array:
            """[B * A, K * n, W, D] -> [B, K, A, n * W, D]."""
            apart = heads.reshape(pieces, anchored, config.num_kv_heads, -1, config.head_dim)
            return apart.swapaxes(1, 2)

        queries = by_head(self._heads(attention.q_proj(blocks), attention.q_norm, starts)) * config.head_dim**-0.5
        own_keys = by_head(self._heads(attention.k_proj(blocks), attention.k_norm, starts))
        own_values = by_head(self._split(attention.v_proj(blocks)))
        old_keys = self._heads(attention.k_proj(context), attention.k_norm, zeros)  # [B, K, L, D]
        old_values = self._split(attention.v_proj(context))  # [B, K, L, D]
        old = queries.reshape(*shape[:2], -1, config.head_dim) @ old_keys.swapaxes(-1, -2)  # [B, K, A * G * W, L]
        old = mx.where(seen, old.reshape(*shape, groups, width, length), -mx.inf)
        own = (queries @ own_keys.swapaxes(-1, -2)).reshape(*shape, groups, width, width)
        weights = mx.softmax(mx.concatenate([old, own], axis=-1), axis=-1)
        mixed = (weights[..., :length].reshape(*shape[:2], -1, length) @ old_values).reshape(queries.shape)
        mixed = mixed + weights[..., length:].reshape(*shape, groups * width, width) @ own_values  # [B, K, A, G * W, D]
        mixed = mixed.reshape(*shape, groups, width, -1).transpose(0, 2, 4, 1, 3, 5)  # [B, A, W, K, G, D]
        out: mx.array = attention.o_proj(mixed.reshape(pieces, anchored, width, -1))
        return out

    def _split(self, projected: mx.array) -> mx.array:
        """[n, rows, heads * D] -> [n, heads, rows, D]."""
        return projected.reshape(*projected.shape[:2], -1, self._config.head_dim).transpose(0, 2, 1, 3)

    def _heads(self, projected: mx.array, norm: Any, starts: mx.array) -> mx.array:
        """[n, heads, rows, D], normed and rotated; row r of entry i stands at position starts[i] + r."""
        rows = projected.reshape(*projected.shape[:2], -1, self._config.head_dim)
        return mx.fast.rope(
            norm(rows).transpose(0, 2, 1, 3),
            self._config.head_dim,
            traditional=False,
            base=self._config.rope_theta,
            scale=1.0,
            offset=starts,
        )


def _around(conv: DynamicConv | None, sublayer: Any, normed: mx.array) -> mx.array:
    """`sublayer(normed)` between the two halves of the convolution, if there is one; normed [B, A, W, H]."""
    if conv is None:
        out: mx.array = sublayer(normed)
        return out
    base = conv.base_kernel.reshape(*conv.base_kernel.shape[:2], -1, 1)  # [2, tap, H, 1]
    dynamic = conv.kernels(normed.reshape(-1, normed.shape[-1]))  # [B * A * W, 2 * tap, G, 1]
    groups = dynamic.shape[2]
    kernels = dynamic.reshape(-1, *base.shape[:2], groups, 1) + base.reshape(*base.shape[:2], groups, -1)
    return _convolve(sublayer(_convolve(normed, kernels[:, 0])), kernels[:, 1])


def _convolve(rows: mx.array, kernel: mx.array) -> mx.array:
    """`sum over taps of kernel[row, tap] * rows[row - tap]` in every block; rows [B, A, W, H]."""
    taps, groups, width = kernel.shape[1], kernel.shape[2], rows.shape[2]
    grouped = rows.reshape(-1, width, groups, rows.shape[-1] // groups)  # [B * A, W, G, channels]
    kernel = kernel.reshape(-1, width, *kernel.shape[1:])
    out = kernel[:, :, 0] * grouped
    for tap in range(1, min(taps, width)):
        shifted = mx.pad(grouped[:, :-tap], [(0, 0), (tap, 0), (0, 0), (0, 0)])
        out = out + kernel[:, :, tap] * shifted
    return out.reshape(rows.shape)
