"""The demo target in PyTorch: the arithmetic of mlx-lm's `qwen3_5` text model, for training; knows nothing of data or optimisers."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

EPS = 1e-6


@dataclass(frozen=True)
class TargetConfig:
    """Sizes of the target, under the names that config.json uses."""

    vocab_size: int = 1536
    hidden_size: int = 128
    intermediate_size: int = 320
    num_hidden_layers: int = 10
    full_attention_interval: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 32
    linear_value_head_dim: int = 32
    linear_conv_kernel_dim: int = 4
    max_position_embeddings: int = 32768
    rope_theta: float = 1e6
    partial_rotary_factor: float = 0.25

    def is_linear(self, layer: int) -> bool:
        """True where `layer` is a gated-delta layer, False where it is full attention."""
        return (layer + 1) % self.full_attention_interval != 0

    @property
    def rotary_dim(self) -> int:
        """How many leading values of a head are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)

    def as_json(self, *, eos_token_id: list[int], pad_token_id: int) -> dict[str, object]:
        """The content of config.json, as mlx-lm and transformers read it."""
        sizes = dataclasses.asdict(self)
        theta, partial = sizes.pop("rope_theta"), sizes.pop("partial_rotary_factor")
        kinds = ["linear_attention" if self.is_linear(i) else "full_attention" for i in range(self.num_hidden_layers)]
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5",
            **sizes,
            "layer_types": kinds,
            "rope_parameters": {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": partial},
            "rms_norm_eps": EPS,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "dtype": "float32",
            "eos_token_id": eos_token_id,
            "pad_token_id": pad_token_id,
        }

    @classmethod
    def from_json(cls, raw: dict[str, object]) -> TargetConfig:
        """Read back what `as_json` wrote."""
        rope = raw["rope_parameters"]
        assert isinstance(rope, dict)
        flat = {**raw, **rope}
        return cls(**{field.name: flat[field.name] for field in dataclasses.fields(cls)})


def gated_delta(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, *, chunk: int = 32) -> Tensor:
    """The gated delta rule from a zero state, chunk by chunk; equals `gated_delta_naive`.

    q, k: [B, H, L, D]; v: [B, H, L, E]; log_decay, beta: [B, H, L]. Returns [B, H, L, E].
    Inside a chunk the writes U obey (I + A) U = beta (V - decay K S), A strictly lower triangular,
    S the state before the chunk; only S walks from chunk to chunk.
    Source: Yang et al., "Gated Delta Networks" (arXiv 2412.06464), section 3.3.
    """
    B, H, L, D = q.shape
    E, C = v.shape[-1], min(chunk, L)
    pad = -L % C
    if pad:
        q, k, v = (functional.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
        log_decay, beta = functional.pad(log_decay, (0, pad)), functional.pad(beta, (0, pad))
    N = (L + pad) // C
    q, k = q.reshape(B, H, N, C, D), k.reshape(B, H, N, C, D)
    v, beta = v.reshape(B, H, N, C, E), beta.reshape(B, H, N, C, 1)
    total = log_decay.reshape(B, H, N, C).cumsum(-1)  # log of the decay since the chunk began
    causal = torch.ones(C, C, dtype=torch.bool).tril()
    between = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~causal, -math.inf).exp()  # [B, H, N, C, C]
    decay = total.exp().unsqueeze(-1)

    keys = k.transpose(-1, -2)
    system = (k @ keys) * between * beta  # its diagonal is taken as one by the solver
    writes = torch.linalg.solve_triangular(
        system, torch.cat([v * beta, k * (beta * decay)], -1), upper=False, unitriangular=True
    )
    fresh, reads = writes.split([E, D], -1)
    scores = (q @ keys) * between
    if N == 1:
        return (scores @ fresh)[:, :, 0, :L]

    q = q * decay
    keys = (k * (total[..., -1:, None] - total.unsqueeze(-1)).exp()).transpose(-1, -2)
    last = decay[..., -1:, :]
    state: Tensor | None = None
    outs = []
    for n in range(N):
        new = fresh[:, :, n] if state is None else fresh[:, :, n] - reads[:, :, n] @ state
        out = scores[:, :, n] @ new
        outs.append(out if state is None else out + q[:, :, n] @ state)
        written = keys[:, :, n] @ new
        state = written if state is None else last[:, :, n] * state + written
    return torch.cat(outs, 2)[:, :, :L]


def gated_delta_naive(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """The same recurrence one position at a time: the oracle for `gated_delta`."""
    B, H, L, D = q.shape
    state = q.new_zeros(B, H, D, v.shape[-1])
    outs = []
    for t in range(L):
        state = state * log_decay[:, :, t, None, None].exp()
        seen = (state * k[:, :, t, :, None]).sum(-2)
        delta = (v[:, :, t] - seen) * beta[:, :, t, None]
        state = state + k[:, :, t, :, None] * delta.unsqueeze(-2)
        outs.append((state * q[:, :, t, :, None]).sum(-2))
    return torch.stack(outs, 2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the leading values of each head, first half against second; x: [B, H, L, D]; cos, sin: [L, R / 2]."""
    half = cos.shape[-1]
    a, b, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


class Norm(nn.Module):
    """RMS normalisation with a learnt scale."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., size]."""
        return functional.rms_norm(x, self.weight.shape, self.weight, EPS)


def linear(size_in: int, size_out: int) -> nn.Linear:
    """A projection without bias, unit gain at the start."""
    layer = nn.Linear(size_in, size_out, bias=False)
    nn.init.normal_(layer.weight, std=size_in**-0.5)
    return layer


def project(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Several projections of one input as a single matrix product."""
    joined = functional.linear(x, torch.cat([layer.weight for layer in layers]))
    return joined.split([layer.weight.shape[0] for layer in layers], -1)


class Attention(nn.Module):
    """Full attention: grouped heads, normalised queries and keys, partial rotary positions, an output gate."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        inner, outer = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.q_proj = linear(config.hidden_size, 2 * inner)
        self.k_proj = linear(config.hidden_size, outer)
        self.v_proj = linear(config.hidden_size, outer)
        self.o_proj = linear(inner, config.hidden_size)
        self.q_norm, self.k_norm = Norm(config.head_dim), Norm(config.head_dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [B, L, hidden]; rows look back only."""
        B, L, _ = x.shape
        config = self.config
        q, k, v = project(x, self.q_proj, self.k_proj, self.v_proj)
        q, gate = q.view(B, L, config.num_attention_heads, 2 * config.head_dim).chunk(2, -1)
        k, v = (y.reshape(B, L, config.num_key_value_heads, config.head_dim).transpose(1, 2) for y in (k, v))
        q = rotate(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(k), cos, sin)
        groups = config.num_attention_heads // config.num_key_value_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o_proj((out * gate.sigmoid()).reshape(B, L, -1))


class GatedNorm(Norm):
    """RMS normalisation whose output is multiplied by silu(gate)."""

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:  # type: ignore[override]
        """x, gate: [..., size]."""
        return super().forward(x) * functional.silu(gate)


class CausalConv(nn.Module):
    """A short convolution along the sequence, each channel by itself."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, width, 1) * width**-0.5)  # the layout mlx wants

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, L, channels]."""
        weight = self.weight.transpose(1, 2).unsqueeze(2)  # [channels, 1, 1, width]
        padded = functional.pad(x, (0, 0, weight.shape[-1] - 1, 0)).transpose(1, 2).unsqueeze(2)
        return (
            functional.conv2d(padded, weight, groups=weight.shape[0]).squeeze(2).transpose(1, 2)
        )  # 2-D: the faster kernel


class GatedDelta(nn.Module):
    """The recurrent layer: convolution, delta-rule memory with decay, gated norm."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.key_dim = config.linear_num_key_heads * config.linear_key_head_dim
        self.value_dim = config.linear_num_value_heads * config.linear_value_head_dim
        hidden, heads = config.hidden_size, config.linear_num_value_heads
        self.conv1d = CausalConv(2 * self.key_dim + self.value_dim, config.linear_conv_kernel_dim)
        self.in_proj_qkv = linear(hidden, 2 * self.key_dim + self.value_dim)
        self.in_proj_z = linear(hidden, self.value_dim)
        self.in_proj_b = linear(hidden, heads)
        self.in_proj_a = linear(hidden, heads)
        step = torch.exp(torch.linspace(math.log(1e-3), math.log(0.1), heads))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus(dt_bias) = step
        self.A_log = nn.Parameter(torch.log(torch.linspace(1, 8, heads)))
        self.norm = GatedNorm(config.linear_value_head_dim)
        self.out_proj = linear(self.value_dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, L, hidden]."""
        B, L, _ = x.shape
        config = self.config
        qkv, z, b, a = project(x, self.in_proj_qkv, self.in_proj_z, self.in_proj_b, self.in_proj_a)
        q, k, v = functional.silu(self.conv1d(qkv)).split([self.key_dim, self.key_dim, self.value_dim], -1)
        Hk, Hv, D = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_key_head_dim
        q, k = (y.reshape(B, L, Hk, D) for y in (q, k))
        q = functional.rms_norm(q, (D,), None, EPS / D) / D
        k = functional.rms_norm(k, (D,), None, EPS / D) * D**-0.5
        q, k = (y.transpose(1, 2).repeat_interleave(Hv // Hk, 1) for y in (q, k))
        v = v.reshape(B, L, Hv, config.linear_value_head_dim).transpose(1, 2)
        log_decay = -self.A_log.exp() * functional.softplus(a + self.dt_bias)
        out = gated_delta(q, k, v, log_decay.transpose(1, 2), b.sigmoid().transpose(1, 2))
        out = self.norm(out.transpose(1, 2), z.view(B, L, Hv, config.linear_value_head_dim))
        return self.out_proj(out.reshape(B, L, -1))


class FeedForward(nn.Module):
    """The gated two-layer network of each block."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.gate_proj = linear(config.hidden_size, config.intermediate_size)
        self.up_proj = linear(config.hidden_size, config.intermediate_size)
        self.down_proj = linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, L, hidden]."""
        gate, up = project(x, self.gate_proj, self.up_proj)
        return self.down_proj(functional.silu(gate) * up)


class Block(nn.Module):
    """One layer: a mixer along the sequence, then the feed-forward network, each on a normalised residual."""

    def __init__(self, config: TargetConfig, layer: int) -> None:
        super().__init__()
        self.is_linear = config.is_linear(layer)
        if self.is_linear:
            self.linear_attn = GatedDelta(config)
        else:
            self.self_attn = Attention(config)
        self.input_layernorm, self.post_attention_layernorm = Norm(config.hidden_size), Norm(config.hidden_size)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [B, L, hidden]."""
        y = self.input_layernorm(x)
        x = x + (self.linear_attn(y) if self.is_linear else self.self_attn(y, cos, sin))
        return x + self.mlp(self.post_attention_layernorm(x))


class Target(nn.Module):
    """The whole model; the output matrix is the embedding."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.05)
        self.layers = nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size)
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                weight.data /= (2 * config.num_hidden_layers) ** 0.5

    def hidden(self, ids: Tensor) -> Tensor:
        """ids: [B, L]. Returns the normalised output of the last layer, [B, L, hidden]."""
        half = self.config.rotary_dim // 2
        frequency = self.config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(ids.shape[1], dtype=torch.float32).unsqueeze(1) * frequency
        cos, sin = angle.cos(), angle.sin()
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [..., hidden]. Returns [..., V]."""
        return functional.linear(hidden, self.embed_tokens.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [B, L]. Returns logits [B, L, V]."""
        return self.logits(self.hidden(ids))


def save_weights(target: Target, folder: Path, *, eos_token_id: list[int], pad_token_id: int) -> None:
    """Write config.json and model.safetensors as mlx-lm loads them."""
    weights = {f"model.{name}": value.detach().float().contiguous() for name, value in target.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    config = target.config.as_json(eos_token_id=eos_token_id, pad_token_id=pad_token_id)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_weights(folder: Path) -> Target:
    """Read back what `save_weights` wrote."""
    target = Target(TargetConfig.from_json(json.loads((folder / "config.json").read_text())))
    weights = load_file(folder / "model.safetensors")
    target.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})
    return target


def main() -> None:
    """`python model.py TARGET_DIR FILE`: write random ids and their logits for the parity check."""
    target = load_weights(Path(sys.argv[1]))
    ids = torch.randint(target.config.vocab_size, (2, 150), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        save_file({"ids": ids, "logits": target(ids)}, sys.argv[2])


if __name__ == "__main__":
    main()
