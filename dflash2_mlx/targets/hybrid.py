"""Targets that mix gated-delta layers, whose cache is recurrent, with attention. Knows mlx-lm's `qwen3_5` layers.

A recurrent state cannot be trimmed. A verify pass keeps what its gated-delta layers saw, by reference; cutting back
recomputes the state of the accepted rows with the same kernel, lazily, or picks it where plain operations went row by
row. Accepting the whole block costs nothing.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.cache import TargetCache
from dflash2_mlx.targets.recurrence import GROUP, has_kernel, stepwise


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one gated-delta layer saw of a block: enough to rebuild its cache after any number of its rows."""

    layer: Any
    cache: Any
    conv_input: mx.array  # [1, kernel - 1 + b, conv channels]
    inputs: tuple[mx.array, ...]  # q, k, v, a, b, each [1, b, ...]
    state: mx.array | None  # [1, value heads, Dv, Dk] before the block
    states: list[mx.array]  # the states after every row, as `stepwise` groups them, where no kernel ran


class HybridTarget(LayeredTarget):
    """Gated-delta and full-attention layers, as in mlx-lm's `qwen3_5`."""

    def use(self, cache: TargetCache) -> None:
        """Work on `cache` from now on."""
        super().use(cache)
        self._seen: list[_Seen] = []

    def _masks(self, hidden: mx.array) -> Any:
        from mlx_lm.models.base import create_attention_mask

        return create_attention_mask(hidden, self._caches[self._model.fa_idx])

    def _layer(self, layer: Any, hidden: mx.array, cache: Any, masks: Any, reversible: bool) -> mx.array:
        if not layer.is_linear:
            attended: mx.array = layer(hidden, masks, cache)
            return attended
        mixed, seen = _gated_delta(layer.linear_attn, layer.input_layernorm(hidden), cache)
        hidden = hidden + mixed
        out = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        if reversible:
            self._seen.append(seen)
        else:  # or what every layer's convolution saw of the prompt would be held until the last one is done
            mx.async_eval(out, cache[0])
        return out

    def commit(self, rows: int) -> None:
        """See Target.commit."""
        super().commit(rows)
        self._seen = []

    def _cut(self, rows: int, block: int) -> None:
        for seen in self._seen:
            _rebuild(seen, rows)
        for layer, cache in zip(self._model.layers, self._caches, strict=True):
            if not layer.is_linear:
                trimmed = cache.trim(block - rows)
                assert trimmed == block - rows


def _gated_delta(layer: Any, rows: mx.array, cache: Any) -> tuple[mx.array, _Seen]:
    """The layer's output [1, n, H] for normed rows [1, n, H], step for step as mlx-lm computes it."""
    from mlx_lm.models.gated_delta import compute_g, gated_delta_update, normalize_qk

    count, window = rows.shape[1], layer.conv_kernel_size - 1
    before: mx.array | None = cache[1]
    tail = cache[0]
    if tail is None:
        tail = mx.zeros((1, window, layer.conv_dim), dtype=rows.dtype)
    gate = layer.in_proj_z(rows).reshape(1, count, layer.num_v_heads, layer.head_v_dim)
    beta, decay = layer.in_proj_b(rows), layer.in_proj_a(rows)
    conv_input = mx.concatenate([tail, layer.in_proj_qkv(rows)], axis=1)
    mixed = nn.silu(layer.conv1d(conv_input))
    q, k, v = mx.split(mixed, [layer.key_dim, 2 * layer.key_dim], axis=-1)
    q = q.reshape(1, count, layer.num_k_heads, layer.head_k_dim)
    k = k.reshape(1, count, layer.num_k_heads, layer.head_k_dim)
    v = v.reshape(1, count, layer.num_v_heads, layer.head_v_dim)
    q, k = normalize_qk(q, k, inv_scale=layer.head_k_dim**-0.5, eps=1e-6)
    inputs = (q, k, v, decay, beta)
    states: list[mx.array] = []
    if has_kernel(layer.head_k_dim):
        out, after = gated_delta_update(*inputs, layer.A_log, layer.dt_bias, before)
    else:
        out, states = stepwise((q, k, v), compute_g(layer.A_log, decay, layer.dt_bias), mx.sigmoid(beta), before)
        after = mx.contiguous(states[-1][:, -1])  # a view would hold the states of all rows
    cache[0], cache[1] = mx.contiguous(conv_input[:, -window:]), after
    out = layer.out_proj(layer.norm(out, gate).reshape(1, count, -1))
    return out, _Seen(layer, cache, conv_input, inputs, before, states)


def _rebuild(seen: _Seen, rows: int) -> None:
    """Set the layer's cache to what it was after the first `rows` rows of the block."""
    from mlx_lm.models.gated_delta import gated_delta_update

    layer, window = seen.layer, seen.layer.conv_kernel_size - 1
    seen.cache[0] = mx.contiguous(seen.conv_input[:, rows : rows + window])
    seen.cache[1] = seen.state
    if rows and seen.states:
        group, row = divmod(rows - 1, GROUP)
        seen.cache[1] = mx.contiguous(seen.states[group][:, row])
    elif rows:
        accepted = (part[:, :rows] for part in seen.inputs)
        seen.cache[1] = gated_delta_update(*accepted, layer.A_log, layer.dt_bias, seen.state)[1]
