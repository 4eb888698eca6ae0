"""Two folders -> a checked pair. Every config is checked before any weight is read. Knows mlx and mlx-lm."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from dflash2_mlx.config import STORED_BITS, LoadParams
from dflash2_mlx.errors import ConfigError, LoadError, UnsupportedError, WeightsError
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.models.config import DrafterConfig, is_drafter, parse_drafter_config
from dflash2_mlx.models.drafter import DFlashDrafter, build_network, quantize_network
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.store.checkpoint import check_safetensors, read_json, read_optional_json, weight_files
from dflash2_mlx.store.hub import find_folder
from dflash2_mlx.store.pairs import known_pair, target_and_drafter
from dflash2_mlx.store.saved import find_saved, saved_folder, writing
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.families import build_target, target_family
from dflash2_mlx.text.prompt import ChatFormat

_TURN_END = "<|im_end|>"
_GROUP = 64
# Foreign formats that mlx-lm turns into MLX's own while it loads; any other is refused by name.
_FORMATS_OF_MLX_LM = ("bitnet", "mxfp4", "mxfp8", "compressed-tensors", "modelopt", "awq", "gptq")
_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Pair:
    """A loaded target and, unless `speculation_off` says why not, its drafter.

    defaults: sampling settings of the target's generation_config. end_tokens: every id that ends an answer.
    """

    model_name: str
    draft_name: str | None
    target: LayeredTarget
    drafter: DFlashDrafter | None
    speculation_off: str | None
    tokenizer: Any
    chat: ChatFormat
    end_tokens: frozenset[int]
    defaults: Mapping[str, float]

    @property
    def weight_bytes(self) -> int:
        """Bytes of both models' weights."""
        modules = [self.target.module, self.drafter.network] if self.drafter else [self.target.module]
        return sum(tensor.nbytes for module in modules for _, tensor in tree_flatten(module.parameters()))


def load_pair(params: LoadParams) -> Pair:
    """The pair that `params` names, its configs checked against each other before weights are read.

    Raises: LoadError and its kinds.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # read on import; its advice is not for our users
    model_name, draft_name, off = target_and_drafter(params)
    folder = find_folder(model_name)
    config = read_json(folder / "config.json")
    _refuse_drafter_as_target(folder, config)
    text_config = config.get("text_config", config)
    if not isinstance(text_config, Mapping):
        raise ConfigError(f"{folder}/config.json: text_config is not a mapping. Fetch it again.")
    target_family(config.get("model_type"))
    _refuse_code_and_foreign_formats(folder, config)
    draft_folder = find_folder(draft_name, params.draft_revision) if draft_name else None
    found = _open_drafter(draft_folder, folder, text_config) if draft_folder else None
    model = _load_model(folder)
    lay_out_for_cpu(model)
    mx.eval(model)  # all of it, parameters or not: what stays lazy fails on another thread
    taps = found.config.target_layer_ids if found else ()
    target = build_target(model, config.get("model_type"), taps, chip_family=probe().family)
    drafter = _load_drafter(found, target, params) if found else None
    mx.clear_cache()  # buffers of tables that were laid out anew or quantised
    tokenizer = _load_tokenizer(folder)
    generation = read_optional_json(folder / "generation_config.json")
    return Pair(
        model_name=params.model,
        draft_name=draft_name,
        target=target,
        drafter=drafter,
        speculation_off=off,
        tokenizer=tokenizer,
        chat=ChatFormat(tokenizer),
        end_tokens=_end_tokens(tokenizer, (config, text_config, generation)),
        defaults=_sampling_defaults(generation) if generation else _published_defaults(params.model),
    )


def with_drafter(pair: Pair, draft: str, draft_bits: int | None = None) -> Pair:
    """The same target, its weights held once, under another drafter: what compares drafters in one process.

    Raises: LoadError and its kinds.
    """
    params = LoadParams(pair.model_name, draft, draft_bits)
    model_name, draft_name, _ = target_and_drafter(params)
    assert draft_name is not None
    folder, draft_folder = find_folder(model_name), find_folder(draft_name)
    config = read_json(folder / "config.json")
    text_config = config.get("text_config", config)
    assert isinstance(text_config, Mapping), "the pair was loaded, so its config was read before"
    found = _open_drafter(draft_folder, folder, text_config)
    taps = found.config.target_layer_ids
    target = build_target(pair.target.module, config.get("model_type"), taps, chip_family=probe().family)
    drafter = _load_drafter(found, target, params)
    return replace(pair, draft_name=draft, target=target, drafter=drafter, speculation_off=None)


def _refuse_drafter_as_target(folder: Path, config: Mapping[str, object]) -> None:
    if is_drafter(config):
        raise ConfigError(
            f"{folder} is a drafter: it borrows embedding, head and tokenizer of a target. "
            "Pass it as --draft, and its target as --model."
        )


def _refuse_code_and_foreign_formats(folder: Path, config: Mapping[str, object]) -> None:
    """Before any weight is read: no code of the checkpoint's own, no format that mlx-lm cannot convert."""
    code = config.get("model_file")
    if code is not None:
        raise UnsupportedError(
            f"{folder} wants its own code to be run (model_file: {code!r}), which is never done. Use a checkpoint in a "
            "format of mlx-lm."
        )
    text = config.get("text_config")
    settings = config.get("quantization_config") or (
        text.get("quantization_config") if isinstance(text, dict) else None
    )
    if config.get("quantization") is not None or settings is None:
        return
    settings = settings if isinstance(settings, Mapping) else {}
    method = settings.get("quant_method")
    if method == "fp8" and settings.get("scale_fmt") == "ue8m0" and settings.get("weight_block_size") == [32, 32]:
        return  # the same bits as mxfp8
    if method not in _FORMATS_OF_MLX_LM:
        raise UnsupportedError(
            f"{folder} is stored as {method!r}, a format that mlx-lm does not convert. Use an MLX conversion of the "
            "model, say from mlx-community."
        )


def _refuse_foreign_drafter(folder: Path, config: DrafterConfig) -> None:
    """Every file whole, and only numbers that a drafter in the published format has."""
    if (folder / "hf_quant_config.json").exists():
        raise UnsupportedError(
            f"the drafter in {folder} is stored as 'modelopt' (hf_quant_config.json), which is not read. Use the bf16 "
            "drafter, with --draft-bits 4 to quantise it on load."
        )
    allowed = (*_FLOATS, "U32", "U8") if config.quantization else _FLOATS
    for file in weight_files(folder):
        for name, entry in check_safetensors(file).items():
            kind = entry.get("dtype") if isinstance(entry, Mapping) else None
            if kind not in allowed:
                raise UnsupportedError(
                    f"{file}: tensor {name} is stored as {kind}, a foreign format. Use the bf16 drafter, with "
                    "--draft-bits 4 to quantise it on load."
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


def _load_model(folder: Path) -> Any:
    """mlx-lm's model with the tensors that the index names; those it has no use for (vision, mtp) are never read."""
    from mlx_lm.utils import load_model

    try:
        with _only(weight_files(folder), folder) as exact, redirect_stdout(sys.stderr):
            model, _ = load_model(exact)
    except (ValueError, KeyError, TypeError, RuntimeError, FileNotFoundError) as error:
        first = str(error).splitlines()[0].rstrip(" .:") if str(error) else type(error).__name__
        raise WeightsError(
            f"{folder}: mlx-lm cannot load this model: {first}. Fetch it again, or try `mlx_lm`."
        ) from error
    return model


def lay_out_for_cpu(module: nn.Module) -> None:
    """Without Metal, keep unquantised weight tables column by column: same values, same shapes, same sums.

    The products of several rows then read memory in order. Measured with the plain Linux wheel on the bundled pair:
    a verifying pass over 5 rows takes 8.3 ms instead of 13.1, a plain step 4.1 instead of 4.6, with equal logits.
    """
    if mx.metal.is_available():
        return
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight = mx.contiguous(part.weight.T).T
            mx.eval(part.weight)  # one at a time, so that only one table exists twice


@contextmanager
def _only(files: Sequence[Path], folder: Path) -> Iterator[Path]:
    """A folder in which `model*.safetensors`, which is what mlx-lm reads, are exactly these files: `folder` itself,
    or one of links, gone after use."""
    if set(files) == set(folder.glob("model*.safetensors")):
        yield folder
        return
    with TemporaryDirectory(prefix="dflash2-mlx-") as links:
        for source in folder.glob("*.json"):
            (Path(links) / source.name).symlink_to(source.resolve())
        for number, file in enumerate(files):
            (Path(links) / f"model-{number}.safetensors").symlink_to(file.resolve())
        yield Path(links)


def save_drafter(folder: Path, bits: int) -> Path:
    """The folder with the drafter of `folder` quantised to `bits`, made unless it is there; `load_pair` then reads it.

    Raises: LoadError and its kinds, also for a full disk; OSError where the disk refuses.
    """
    source = folder / "config.json"
    stored = read_json(source)
    config = parse_drafter_config(stored, str(source))
    _refuse_foreign_drafter(folder, config)
    found = find_saved(folder, bits)
    if found:
        return found
    network = _in_bits(bits, folder, config, build_network(config, _read_weights(folder)))
    settings = {"group_size": _GROUP, "bits": bits}
    place = saved_folder(folder, bits)
    with writing(place) as draft:
        (draft / "config.json").write_text(json.dumps({**stored, "quantization": settings}, indent=1), encoding="utf-8")
        try:
            mx.save_safetensors(str(draft / "model.safetensors"), dict(tree_flatten(network.parameters())))
        except RuntimeError as error:
            why = str(error).rstrip(".")
            raise LoadError(
                f"the quantised drafter cannot be written to {place.parent}: {why}. Free some space, or set "
                "DFLASH2_CACHE to another folder."
            ) from error
    return place


@dataclass(frozen=True, slots=True)
class _Opened:
    """A drafter's folder, checked against its target; the network's weights are named but not read yet."""

    folder: Path
    config: DrafterConfig
    network: DraftNetwork


def _open_drafter(folder: Path, target_folder: Path, target_config: Mapping[str, object]) -> _Opened:
    source = folder / "config.json"
    config = parse_drafter_config(read_json(source), str(source))
    check_fit(config, target_config, target_folder)
    _refuse_foreign_drafter(folder, config)
    return _Opened(folder, config, build_network(config, _read_weights(folder)))


def _load_drafter(opened: _Opened, target: LayeredTarget, params: LoadParams) -> DFlashDrafter:
    config = opened.config
    bits = params.bits_of_drafter(target_quantized=target.quantized, drafter_quantized=bool(config.quantization))
    return _finish_drafter(config, _in_bits(bits, opened.folder, config, opened.network), target)


def _in_bits(bits: int, folder: Path, config: DrafterConfig, stored: DraftNetwork) -> DraftNetwork:
    """The drafter of `folder` in `bits`: `stored`, the one saved earlier, or `stored` quantised now, in place."""
    if bits == STORED_BITS:
        return stored
    if config.quantization:
        raise UnsupportedError(f"{folder} is quantised already. Drop --draft-bits, or use the bf16 drafter.")
    saved = find_saved(folder, bits)
    if saved:
        source = saved / "config.json"
        return build_network(parse_drafter_config(read_json(source), str(source)), _read_weights(saved))
    quantize_network(stored, bits, _GROUP)
    for layer in stored.layers:  # one at a time, so that only one layer exists in both precisions
        mx.eval(layer.parameters())
    return stored


def _finish_drafter(config: DrafterConfig, network: DraftNetwork, target: LayeredTarget) -> DFlashDrafter:
    mx.eval(network)
    lay_out_for_cpu(network)
    _check_head(config, target)
    return DFlashDrafter(config, network, target.embed, target.head)


def _read_weights(folder: Path) -> dict[str, mx.array]:
    """All tensors of the folder by name; nothing is read before it is evaluated."""
    weights: dict[str, mx.array] = {}
    for file in weight_files(folder):
        loaded = mx.load(str(file))
        assert isinstance(loaded, dict)
        weights.update(loaded)
    return weights


def _check_head(config: DrafterConfig, target: LayeredTarget) -> None:
    """The embedding's real width, since a table shorter than its config would be read out of bounds."""
    table = target.embed(mx.array([0]))
    if table.shape[-1] != config.hidden_size:
        raise ConfigError(
            f"{config.source}: hidden_size {config.hidden_size}, the target's rows have {table.shape[-1]}."
        )


def _load_tokenizer(folder: Path) -> Any:
    from mlx_lm.utils import load_tokenizer
    from transformers.utils import logging as talk

    if os.environ.get("TRANSFORMERS_VERBOSITY") == "error":
        talk.set_verbosity_error()  # transformers may have been imported before the variable was set
    try:
        with redirect_stdout(sys.stderr):
            return load_tokenizer(folder, {"trust_remote_code": False})
    except Exception as error:  # transformers raises what it likes; all of it is the folder's fault
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LoadError(f"{folder}: no usable tokenizer ({first}). Fetch the model again.") from error


def _end_tokens(tokenizer: Any, configs: tuple[Mapping[str, object], ...]) -> frozenset[int]:
    """Ids that end an answer: those of the configs, of the tokenizer, and the end of a ChatML turn."""
    ids = set(tokenizer.eos_token_ids)
    for config in configs:
        value = config.get("eos_token_id")
        ids.update(i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int))
    turn_end = tokenizer.convert_tokens_to_ids(_TURN_END) if _TURN_END in tokenizer.get_vocab() else None
    return frozenset(ids | ({turn_end} if isinstance(turn_end, int) else set()))


def _sampling_defaults(generation: Mapping[str, object]) -> dict[str, float]:
    """The sampling settings that the config gives; greedy where it says do_sample: false."""
    if generation.get("do_sample") is False:
        return {"temperature": 0.0}
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    found = {name: generation.get(name) for name in names}
    return {k: v for k, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _published_defaults(name: str) -> dict[str, float]:
    """What the makers recommend for a known target whose folder has no generation_config.json; else greedy."""
    pair = known_pair(name)
    return dict(pair.sampling) if pair else {}
