"""Writes checkpoints of any size in the published layout without their bytes: the files have holes for data."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from dflash2_mlx.models.config import parse_drafter_config
from dflash2_mlx.models.layers import DraftNetwork

_STORED = {mx.bfloat16: ("BF16", 2), mx.float32: ("F32", 4), mx.uint32: ("U32", 4)}

Shapes = Mapping[str, tuple[tuple[int, ...], mx.Dtype]]


def shapes_of(module: nn.Module) -> Shapes:
    """Shape and dtype of every parameter; nothing is evaluated."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tree_flatten(module.parameters())}


def lazy_model(config: Mapping[str, object], bits: int | None) -> nn.Module:
    """mlx-lm's bf16 model, quantised to `bits`, whose weights are never evaluated."""
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(dict(config))
    model = model_class(args_class.from_dict(dict(config)))
    model.set_dtype(mx.bfloat16)
    if bits:
        nn.quantize(model, group_size=64, bits=bits)
    return model


def lazy_drafter(config: Mapping[str, object]) -> DraftNetwork:
    """The bf16 drafter, never evaluated."""
    network = DraftNetwork(parse_drafter_config(config, "drafter/config.json"))
    network.set_dtype(mx.bfloat16)
    return network


def write_sparse(path: Path, shapes: Shapes) -> int:
    """A safetensors file of zeros that takes no room on the disk; bytes of its tensors."""
    header, end = {}, 0
    for name, (shape, dtype) in shapes.items():
        kind, width = _STORED[dtype]
        begin, end = end, end + width * prod(shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return end


def write_sparse_shards(folder: Path, used: Shapes, skipped: Shapes, shards: int) -> int:
    """`used` and `skipped` tensors spread over shards with an index; bytes of the used ones."""
    everything, index = {**used, **skipped}, {}
    names = sorted(everything)
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: everything[name] for name in names[number::shards]}
        write_sparse(folder / file, part)
        index.update(dict.fromkeys(part, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return sum(_STORED[dtype][1] * prod(shape) for shape, dtype in used.values())
