"""Configs of the published pairs, for a machine that has not fetched them yet. Knows no MLX and no files.

Without revisions: the shapes did not change between them. Everything that decides sizes and graphs is here.
"""

import re
from collections.abc import Mapping

from dflash2_mlx.models.config import DrafterConfig, parse_drafter_config

Config = Mapping[str, object]

QWEN_TARGET: Config = {
    "model_type": "qwen3_5",
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 248320,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262144,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "tie_word_embeddings": False,
    "rope_parameters": {"type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}
MUSE_TARGET: Config = {
    "model_type": "muse_glimmer",
    "hidden_size": 6656,
    "intermediate_size": 19968,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 202048,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
    "sliding_window": 2048,
    "rope_theta": 5e5,
}
_DRAFTER: Config = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "is_causal": False,
    "num_hidden_layers": 5,
    "layer_types": ["sliding_attention"] * 5,
    "sliding_window": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
_DFLASH2: Config = {"selector_rank": 256, "selector_top_k": 16, "conv_kernel_size": 2, "conv_group_size": 16}


def _drafter_for(target: Config, rope_theta: float, draft: Config) -> Config:
    """A drafter whose sizes are its target's."""
    own = {key: target[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "rms_norm_eps")}
    return {
        **_DRAFTER,
        **own,
        "num_target_layers": target["num_hidden_layers"],
        "rope_parameters": {"rope_theta": rope_theta, "rope_type": "default"},
        "dflash_config": {**_DFLASH2, **draft},
    }


QWEN_DRAFTER = _drafter_for(
    QWEN_TARGET, 1e7, {"block_size": 8, "target_layer_ids": [5, 19, 33, 47, 61], "mask_token_id": 248070}
)
MUSE_DRAFTER = _drafter_for(
    MUSE_TARGET,
    5e5,
    {
        "block_size": 16,
        "target_layer_ids": [1, 13, 25, 37, 49],
        "mask_token_id": 201818,
        "output_multiplier": 0.19611613513818404,
        "final_logit_softcapping": 20.0,
    },
)
_TARGETS = {"Qwen3.8-27B": QWEN_TARGET, "Muse-Glimmer-30B": MUSE_TARGET}
_DRAFTERS = {
    "z-lab/Qwen3.8-27B-DFlash2": QWEN_DRAFTER,
    "z-lab/Muse-Glimmer-30B-DFlash2": MUSE_DRAFTER,
    "meta-models/Muse-Glimmer-30B-assistant": {**MUSE_DRAFTER, "architectures": ["MuseGlimmerAssistantModel"]},
}


def published_target(repository: str) -> Config | None:
    """The config of a published target by its repository id, with or without revision."""
    found = re.fullmatch(r"mlx-community/(.+)-(4bit|8bit|bf16)", repository.split("@")[0])
    config = _TARGETS.get(found.group(1)) if found else None
    if config is None or found is None:
        return None
    bits = {"4bit": 4, "8bit": 8}.get(found.group(2))
    return {**config, "quantization": {"group_size": 64, "bits": bits}} if bits else dict(config)


def published_drafter(repository: str) -> DrafterConfig | None:
    """The config of a published drafter by its repository id."""
    name = repository.split("@")[0]
    config = _DRAFTERS.get(name)
    return parse_drafter_config(config, name) if config else None
