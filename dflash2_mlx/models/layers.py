"""The drafter's network as MLX modules, named as the published tensors. Knows mlx and the drafter's config only.

Source: the DFlash 2 checkpoints; Chen, Liang, Liu, arXiv:2602.06036; Inco AI, "DFlash 2: Keep Drafting Parallel".
"""

import mlx.core as mx
import mlx.nn as nn

from dflash2_mlx.models.cache import ContextCache, block_mask
from dflash2_mlx.models.config import ConvConfig, DrafterConfig
from dflash2_mlx.models.selector import CandidateSelector


class DynamicConv(nn.Module):
    """Per-row kernels for a short convolution before and after a sublayer; it does not reach into the context."""

    def __init__(self, hidden_size: int, config: ConvConfig) -> None:
        super().__init__()
        self._taps = config.kernel_size
        self._groups = hidden_size // config.group_size
        self.base_kernel = mx.zeros((2, config.kernel_size, hidden_size))
        self.kernel_projection = nn.Linear(hidden_size, 2 * config.kernel_size * self._groups, bias=False)

    def kernels(self, normed: mx.array) -> mx.array:
        """The dynamic parts of both kernels of every row of `normed` [b, H]: [b, side and tap, G, 1]."""
        return self.kernel_projection(normed).reshape(-1, 2 * self._taps, self._groups, 1)

    def convolve(self, rows: mx.array, dynamic: mx.array, side: int, residual: mx.array | None = None) -> mx.array:
        """`residual + sum over taps of (base + dynamic)[row, tap] * rows[row - tap]`.

        rows, residual: [b, H]; dynamic: what `kernels` gave; side: 0 before the sublayer, 1 after it.
        """
        return _convolved(rows, dynamic, self.base_kernel, side, residual)


@mx.compile
def _convolved(rows: mx.array, dynamic: mx.array, base: mx.array, side: int, residual: mx.array | None) -> mx.array:
    """See DynamicConv.convolve; base: [2, taps, H]. Compiled as a whole, so that it is built in one call."""
    grouped = rows.reshape(rows.shape[0], dynamic.shape[2], -1)  # [b, G, channels]
    taps = base.shape[1]
    base = base.reshape(2, taps, *grouped.shape[1:])
    out = (dynamic[:, side * taps] + base[side, 0]) * grouped
    for tap in range(1, min(taps, rows.shape[0])):
        shifted = mx.pad(grouped[:-tap], [(tap, 0), (0, 0), (0, 0)])
        out = out + (dynamic[:, side * taps + tap] + base[side, tap]) * shifted
    if residual is not None:
        out = residual.reshape(out.shape) + out
    return out.reshape(rows.shape)


@mx.compile
def _swiglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.silu(gate) * up


class DraftAttention(nn.Module):
    """Qwen3-type attention whose keys come from context rows and block rows, its queries from block rows only."""

    def __init__(self, config: DrafterConfig, layer: int) -> None:
        super().__init__()
        hidden, head_dim = config.hidden_size, config.head_dim
        self._heads, self._kv_heads, self._head_dim = config.num_heads, config.num_kv_heads, head_dim
        self._window, self._causal, self._theta = config.windows[layer], config.causal[layer], config.rope_theta
        self.q_proj = nn.Linear(hidden, self._heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self._kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self._kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(self._heads * head_dim, hidden, bias=False)
        self.q_norm = nn.RMSNorm(head_dim, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(head_dim, eps=config.rms_norm_eps)

    def __call__(self, block: mx.array, context: mx.array, position: int, cache: ContextCache) -> mx.array:
        """[b, H] for block rows [b, H] that start at `position`, after the context rows [m, H] right before it."""
        new = context.shape[0]
        rows = mx.concatenate([context, block]) if new else block
        keys, values = self._keys_values(rows, position - new)
        keys, values = cache.update(keys, values, new)
        queries = self._rotate(self.q_norm(self._split(self.q_proj(block), self._heads)), position)
        seen = keys.shape[2] - block.shape[0]
        mask = block_mask(seen, block.shape[0], window=self._window, causal=self._causal)
        out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self._head_dim**-0.5, mask=mask)
        return self.o_proj(out.transpose(0, 2, 1, 3).reshape(block.shape[0], -1))

    def absorb(self, context: mx.array, position: int, cache: ContextCache) -> None:
        """Store keys and values of the context rows [m, H] that end right before `position`."""
        keys, values = self._keys_values(context, position - context.shape[0])
        cache.update(keys, values, context.shape[0])

    def _keys_values(self, rows: mx.array, start: int) -> tuple[mx.array, mx.array]:
        keys = self._rotate(self.k_norm(self._split(self.k_proj(rows), self._kv_heads)), start)
        return keys, self._split(self.v_proj(rows), self._kv_heads).transpose(0, 2, 1, 3)

    def _split(self, rows: mx.array, heads: int) -> mx.array:
        return rows.reshape(1, rows.shape[0], heads, self._head_dim)

    def _rotate(self, rows: mx.array, start: int) -> mx.array:
        return mx.fast.rope(
            rows.transpose(0, 2, 1, 3), self._head_dim, traditional=False, base=self._theta, scale=1.0, offset=start
        )


class DraftMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def __call__(self, rows: mx.array) -> mx.array:
        return self.down_proj(_swiglu(self.gate_proj(rows), self.up_proj(rows)))


class DraftLayer(nn.Module):
    """Attention and MLP, each between the two halves of its convolution where the drafter has one."""

    def __init__(self, config: DrafterConfig, layer: int) -> None:
        super().__init__()
        self._window = config.windows[layer]
        self.self_attn = DraftAttention(config, layer)
        self.mlp = DraftMLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        if config.conv:
            self.attention_conv = DynamicConv(config.hidden_size, config.conv)
            self.mlp_conv = DynamicConv(config.hidden_size, config.conv)

    def __call__(self, rows: mx.array, context: mx.array, position: int, cache: ContextCache) -> mx.array:
        """[b, H] -> [b, H]; see DraftAttention for the arguments."""
        context = self._visible(context)
        normed = self.input_layernorm(rows)
        if "attention_conv" in self:
            conv = self.attention_conv
            kernels = conv.kernels(normed)
            mixed = self.self_attn(conv.convolve(normed, kernels, 0), context, position, cache)
            rows = conv.convolve(mixed, kernels, 1, residual=rows)
        else:
            rows = rows + self.self_attn(normed, context, position, cache)
        normed = self.post_attention_layernorm(rows)
        if "mlp_conv" in self:
            conv = self.mlp_conv
            kernels = conv.kernels(normed)
            fed = self.mlp(conv.convolve(normed, kernels, 0))
            return conv.convolve(fed, kernels, 1, residual=rows)
        return rows + self.mlp(normed)

    def absorb(self, context: mx.array, position: int, cache: ContextCache) -> None:
        """Take in context rows without a block."""
        self.self_attn.absorb(self._visible(context), position, cache)

    def _visible(self, context: mx.array) -> mx.array:
        """The context rows that this layer's window can reach."""
        return context if self._window is None else context[-(self._window - 1) :]


class DraftNetwork(nn.Module):
    """The whole drafter: features -> context rows, block rows -> hidden states, and the selector's codebooks."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = [DraftLayer(config, layer) for layer in range(len(config.windows))]
        if config.selector:
            assert config.vocab_size is not None
            self.candidate_selector = CandidateSelector(config.hidden_size, config.vocab_size, config.selector)

    def context_rows(self, features: mx.array) -> mx.array:
        """Context rows [m, H] of target features [m, taps * H]; the same for every layer."""
        rows: mx.array = self.hidden_norm(self.fc(features))
        return rows

    def __call__(self, rows: mx.array, context: mx.array, position: int, caches: list[ContextCache]) -> mx.array:
        """Hidden states [b, H] after the final norm, for embedded block rows [b, H] and new context rows [m, H]."""
        for layer, cache in zip(self.layers, caches, strict=True):
            rows = layer(rows, context, position, cache)
        normed: mx.array = self.norm(rows)
        return normed

    def absorb(self, context: mx.array, position: int, caches: list[ContextCache]) -> None:
        """Take in context rows [m, H] that end right before `position`, without drafting."""
        for layer, cache in zip(self.layers, caches, strict=True):
            layer.absorb(context, position, cache)
