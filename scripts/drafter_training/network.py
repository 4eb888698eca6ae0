"""A fresh drafter, its config in the published format, and its checkpoint. Knows the drafter's modules and files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from dflash2_mlx.models.config import DFLASH2_ARCHITECTURE, DrafterConfig, parse_drafter_config
from dflash2_mlx.models.layers import DraftNetwork
from drafter_training.teacher import Teacher

ROPE_THETA = 10000.0
CODEBOOK_SCALE = 0.1


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a new drafter; None = the target's own."""

    method: str
    layers: int
    intermediate: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    window: int
    block_size: int
    selector_rank: int
    selector_top_k: int
    conv_group_size: int


def drafter_json(teacher: Teacher, shape: Shape, mask_token: int) -> dict[str, Any]:
    """The content of config.json."""
    args, target = teacher.args, teacher.target
    heads = shape.heads or args.num_attention_heads
    head_dim = shape.head_dim or getattr(args, "head_dim", None) or target.hidden_size // heads
    own: dict[str, Any] = {
        "block_size": shape.block_size,
        "target_layer_ids": list(teacher.taps),
        "mask_token_id": mask_token,
    }
    if shape.method == "dflash2":
        own |= {
            "selector_rank": shape.selector_rank,
            "selector_top_k": min(shape.selector_top_k, target.vocab_size),
            "conv_kernel_size": 2,
            "conv_group_size": shape.conv_group_size,
        }
    return {
        "architectures": [DFLASH2_ARCHITECTURE if shape.method == "dflash2" else "DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": target.hidden_size,
        "intermediate_size": shape.intermediate or getattr(args, "intermediate_size", None) or 3 * target.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": shape.kv_heads or args.num_key_value_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "vocab_size": target.vocab_size,
        "num_target_layers": target.num_layers,
        "max_position_embeddings": target.context_limit,
        "layer_types": ["sliding_attention"] * shape.layers,
        "sliding_window": shape.window,
        "is_causal": False,
        "rope_parameters": {"rope_theta": ROPE_THETA, "rope_type": "default"},
        "tie_word_embeddings": False,
        "dtype": "float32" if teacher.dtype == mx.float32 else "bfloat16",
        "dflash_config": own,
    }


def fresh_network(config: DrafterConfig, teacher: Teacher, seed: int) -> DraftNetwork:
    """A network to start from, in float32: the convolutions do nothing yet, the final norm is the target's."""
    mx.random.seed(seed)
    network = DraftNetwork(config)
    weight = teacher.final_norm()
    if weight is not None and weight.shape == network.norm.weight.shape:
        network.norm.weight = weight
    for layer in network.layers:
        for name in ("attention_conv", "mlp_conv"):
            if name in layer:
                conv = layer[name]
                conv.base_kernel[:, 0] = 1.0
                conv.kernel_projection.weight = mx.zeros_like(conv.kernel_projection.weight)
    if config.selector:
        selector = network.candidate_selector
        for name in ("predecessor_codebook", "successor_codebook"):
            selector[name] = mx.random.normal(selector[name].shape) * CODEBOOK_SCALE
    mx.eval(network.parameters())
    return network


def save_drafter(network: DraftNetwork, config: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and model.safetensors, in the type that the config names; each replaces the old one at once."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype = mx.float32 if config["dtype"] == "float32" else mx.bfloat16
    weights = {name: tensor.astype(dtype) for name, tensor in tree_flatten(network.parameters())}
    mx.save_safetensors(str(folder / "new.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "new.safetensors").replace(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def parsed(config: Mapping[str, Any], folder: Path) -> DrafterConfig:
    """`config` checked like a downloaded one. Raises: ConfigError naming the key."""
    return parse_drafter_config(config, str(folder / "config.json"))
