"""Drafters as modules: built from an opened folder, quantised on load, or kept quantised on disk. Knows mlx."""

import json

import mlx.core as mx
from mlx.utils import tree_flatten

from dflash2_mlx.config import STORED_BITS
from dflash2_mlx.errors import ConfigError, LoadError, UnsupportedError
from dflash2_mlx.loading.checks import refuse_foreign_drafter
from dflash2_mlx.loading.target import cannot_load, lay_out_for_cpu
from dflash2_mlx.models.drafter import DFlashDrafter, build_network, quantize_network
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.store.opening import OpenedModel
from dflash2_mlx.store.saved import find_saved, note_source, remove_older, saved_folder, writing
from dflash2_mlx.targets.base import LayeredTarget

_GROUP = 64


def name_network(opened: OpenedModel) -> DraftNetwork:
    """The network of an opened drafter, checked name by name and shape by shape; no weight is read yet.

    Raises: LoadError and its kinds.
    """
    if opened.fault:
        raise opened.fault
    refuse_foreign_drafter(opened)
    assert opened.drafter
    weights: dict[str, mx.array] = {}
    try:
        for file in opened.weights:
            loaded = mx.load(str(file.path))
            assert isinstance(loaded, dict)
            weights.update(loaded)
        return build_network(opened.drafter, weights)
    except (ValueError, RuntimeError, OverflowError, MemoryError) as error:  # sizes that no array has
        raise cannot_load(opened.folder, "MLX cannot build this drafter", error) from error


def finish_drafter(opened: OpenedModel, network: DraftNetwork, target: LayeredTarget, bits: int) -> DFlashDrafter:
    """The drafter in `bits`, its weights read, between the target's embedding and its head. Raises: LoadError."""
    network = _in_bits(bits, opened, network)
    mx.eval(network)
    lay_out_for_cpu(network)
    config = opened.drafter
    assert config
    table = target.embed(mx.array([0]))  # a table shorter than its config would be read out of bounds
    if table.shape[-1] != config.hidden_size:
        raise ConfigError(
            f"{config.source}: hidden_size {config.hidden_size}, the target's rows have {table.shape[-1]}."
        )
    return DFlashDrafter(config, network, target.embed, target.head)


def save_drafter(opened: OpenedModel, bits: int) -> OpenedModel:
    """The drafter quantised to `bits` as it is kept on disk, made unless it is there; loading then reads it.

    Copies of what the same drafter was before go. Raises: LoadError and its kinds, also for a full disk; OSError.
    """
    found = find_saved(opened, bits)
    if found:
        return found
    network = _in_bits(bits, opened, name_network(opened))
    place, config = saved_folder(opened, bits), {**opened.config, "quantization": {"group_size": _GROUP, "bits": bits}}
    with writing(place) as draft:
        (draft / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        note_source(draft, opened)
        try:
            mx.save_safetensors(str(draft / "model.safetensors"), dict(tree_flatten(network.parameters())))
        except RuntimeError as error:
            why = str(error).rstrip(".")
            raise LoadError(
                f"the quantised drafter cannot be written to {place.parent}: {why}. Free some space, or set "
                "DFLASH2_CACHE to another folder."
            ) from error
    remove_older(place)
    kept = find_saved(opened, bits)
    assert kept, "it was written whole just now"
    return kept


def _in_bits(bits: int, opened: OpenedModel, stored: DraftNetwork) -> DraftNetwork:
    """The drafter in `bits`: `stored`, the one saved earlier, or `stored` quantised now, in place."""
    if bits == STORED_BITS:
        return stored
    if opened.drafter and opened.drafter.quantization:
        raise UnsupportedError(f"{opened.folder} is quantised already. Drop --draft-bits, or use the bf16 drafter.")
    saved = find_saved(opened, bits)
    if saved:
        return name_network(saved)
    quantize_network(stored, bits, _GROUP)
    for layer in stored.layers:  # one at a time, so that only one layer exists in both precisions
        mx.eval(layer.parameters())
    return stored
