"""Whether an opened pair can be loaded at all, from its configs and headers: what is refused, by name. Knows no MLX."""

from collections.abc import Mapping
from pathlib import Path

from dflash2_mlx.errors import ConfigError, UnsupportedError
from dflash2_mlx.models.config import DrafterConfig
from dflash2_mlx.store.opening import OpenedModel

# Foreign formats that mlx-lm turns into MLX's own while it loads; any other is refused by name.
_FORMATS_OF_MLX_LM = ("bitnet", "mxfp4", "mxfp8", "compressed-tensors", "modelopt", "awq", "gptq")
_FLOATS = ("F32", "F16", "BF16")


def text_config(target: OpenedModel) -> Mapping[str, object]:
    """The part of the target's config that is about text. Raises: ConfigError where it is no mapping."""
    config = target.config.get("text_config") or target.config
    if not isinstance(config, Mapping):
        raise ConfigError(f"{target.folder}/config.json: text_config is not a mapping. Fetch it again.")
    return config


def refuse_code(target: OpenedModel) -> None:
    """Raise UnsupportedError for a checkpoint that wants to run its own code."""
    code = target.config.get("model_file")
    if code is not None:
        raise UnsupportedError(
            f"{target.folder} wants its own code to be run (model_file: {code!r}), which is never done. Use a "
            "checkpoint in a format of mlx-lm."
        )


def mlx_quantization(target: OpenedModel) -> Mapping[str, object] | None:
    """MLX's own quantisation settings where they stand alone in `quantization_config`, as newer converters write them.

    Raises: UnsupportedError for a format that mlx-lm cannot convert.
    """
    settings = target.config.get("quantization_config") or text_config(target).get("quantization_config")
    if target.config.get("quantization") is not None or settings is None:
        return None
    settings = settings if isinstance(settings, Mapping) else {}
    method = settings.get("quant_method")
    if method is None and all(type(settings.get(key)) is int for key in ("group_size", "bits")):
        return settings
    if method == "fp8" and settings.get("scale_fmt") == "ue8m0" and settings.get("weight_block_size") == [32, 32]:
        return None  # the same bits as mxfp8
    if method not in _FORMATS_OF_MLX_LM:
        raise UnsupportedError(
            f"{target.folder} is stored as {method!r}, a format that mlx-lm does not convert. Use an MLX conversion of "
            "the model, say from mlx-community."
        )
    return None


def refuse_foreign_drafter(drafter: OpenedModel) -> None:
    """Raise UnsupportedError for numbers that a drafter in the published format does not have."""
    if "hf_quant_config.json" in drafter.files:
        raise UnsupportedError(
            f"the drafter in {drafter.folder} is stored as 'modelopt' (hf_quant_config.json), which is not read. Use "
            "the bf16 drafter, with --draft-bits 4 to quantise it on load."
        )
    allowed = (*_FLOATS, "U32", "U8") if drafter.drafter and drafter.drafter.quantization else _FLOATS
    for file in drafter.weights:
        for name, tensor in file.tensors.items():
            if tensor.dtype not in allowed:
                raise UnsupportedError(
                    f"{file.path}: tensor {name} is stored as {tensor.dtype}, a foreign format. Use the bf16 drafter, "
                    "with --draft-bits 4 to quantise it on load."
                )


def check_fit(drafter: DrafterConfig, target: Mapping[str, object], target_folder: Path) -> None:
    """Raise ConfigError unless the drafter was made for a target of this config."""
    layers, vocab = target.get("num_hidden_layers"), target.get("vocab_size")
    pairs = (
        ("hidden_size", drafter.hidden_size, target.get("hidden_size")),
        ("vocab_size", drafter.vocab_size, vocab),
        ("num_target_layers", drafter.num_target_layers, layers),
    )
    for key, ours, theirs in pairs:
        if ours is not None and ours != theirs:
            raise ConfigError(
                f"the drafter ({drafter.source}) was made for another target: its {key} is {ours}, "
                f"that of {target_folder} is {theirs}. Use the drafter published for this target."
            )
    if not isinstance(layers, int) or not isinstance(vocab, int):
        raise ConfigError(f"{target_folder}/config.json lacks num_hidden_layers or vocab_size. Fetch it again.")
    if drafter.target_layer_ids[-1] >= layers:
        raise ConfigError(
            f"{drafter.source}: target_layer_ids names layer {drafter.target_layer_ids[-1]}, but {target_folder} has "
            f"layers 0 to {layers - 1}. Use the drafter published for this target."
        )
    if drafter.mask_token_id >= vocab:
        raise ConfigError(
            f"{drafter.source}: mask_token_id {drafter.mask_token_id} is outside the target's vocabulary of {vocab}. "
            "Use the drafter published for this target."
        )
