"""A checkpoint folder on disk: its JSON files and the headers of its weights, checked before anything large is read.

Knows no MLX. Every fault of a folder becomes one line that names the file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from dflash2_mlx.errors import ConfigError, LoadError, WeightsError
from dflash2_mlx.parsing import parse_json

INDEX = "model.safetensors.index.json"
_AGAIN = "Fetch it again."
_HEADER_LIMIT = 2**27
_SHARD = re.compile(r"(.+-)\d{5}-of-(\d{5})\.safetensors")
_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8}
_BITS |= {f"{kind}{bits}": bits for kind in "UIF" for bits in (8, 16, 32, 64)} | {"BF16": 16}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as its file's header tells it. dtype: in the format's own words, `F32`, `BF16`, `U32`, ..."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A whole safetensors file and what its header says of each tensor."""

    path: Path
    tensors: Mapping[str, Tensor]


def list_folder(folder: Path) -> dict[str, int]:
    """Bytes of every file in the folder by name; folders, broken links and other things are left out.

    Raises: LoadError where the folder cannot be read.
    """
    found = {}
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                found[path.name] = path.stat().st_size
    except OSError as error:
        raise LoadError(f"{folder}: not a folder that can be read ({error.strerror}). Check its rights.") from None
    return found


def read_json(path: Path) -> dict[str, object]:
    """The mapping stored in `path`.

    Raises: ConfigError where the file is missing or is not a JSON mapping.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        content = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path.parent}: there is no {path.name} here. Give a model folder. {_AGAIN}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not readable as JSON ({error}). {_AGAIN}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a mapping was expected, found {type(content).__name__}. {_AGAIN}")
    return content


def shard_names(folder: Path, present: Mapping[str, int]) -> list[str]:
    """The safetensors files that make the checkpoint, there or not: those of its index, else of one numbered set.

    present: what `list_folder` found. Raises: ConfigError, WeightsError where nothing names any weights.
    """
    if INDEX in present:
        return _indexed(folder / INDEX)
    found = [name for name in present if name.startswith("model") and name.endswith(".safetensors")]
    if not found:
        other = ", ".join(sorted({Path(n).suffix for n in present if n.endswith((".gguf", ".bin", ".pt"))}))
        why = f"only {other} files, which MLX does not read" if other else "no model*.safetensors files"
        raise WeightsError(f"{folder}: {why}. Give a folder with MLX safetensors weights.")
    return sorted({*found, *(sibling for name in found for sibling in _siblings(name))})


def read_weights(folder: Path, names: Sequence[str], present: Mapping[str, int]) -> tuple[WeightFile, ...]:
    """The files called `names`, each whole, each tensor in one of them only.

    Raises: WeightsError naming what is missing, cut or twice there.
    """
    missing = [name for name in names if name not in present]
    if missing:
        raise WeightsError(
            f"{folder}: the model is incomplete: shard {missing[0]} is missing "
            f"({len(missing)} of {len(names)}). {_AGAIN}"
        )
    files = tuple(WeightFile(folder / name, read_header(folder / name, present[name])) for name in names)
    _refuse_twice(files)
    return files


def _refuse_twice(files: Sequence[WeightFile]) -> None:
    first: dict[str, Path] = {}
    for file in files:
        for name in file.tensors:
            other = first.setdefault(name, file.path)
            if other != file.path:
                raise WeightsError(
                    f"{file.path}: tensor {name} stands in {other.name} too, so it is open which of them is meant. "
                    "Remove the file that is not the model's, or fetch it again."
                )


def _siblings(name: str) -> list[str]:
    """All shards of the set that a file named ...-00001-of-00003.safetensors belongs to."""
    found = _SHARD.fullmatch(name)
    if not found:
        return []
    start, total = found.groups()
    return [f"{start}{number:0{len(total)}d}-of-{total}.safetensors" for number in range(1, int(total) + 1)]


def _indexed(index: Path) -> list[str]:
    """The names of the shards, each that of a file which can stand in the folder."""
    mapping = read_json(index).get("weight_map")
    if not isinstance(mapping, Mapping) or not mapping:
        raise WeightsError(f"{index}: it has no weight_map. {_AGAIN}")
    for name in mapping.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise WeightsError(f"{index}: it names {name!r}, a file outside the folder. {_AGAIN}")
        if not name.endswith(".safetensors"):
            raise WeightsError(f"{index}: it names {name!r}, which is no safetensors file. {_AGAIN}")
    return sorted(set(mapping.values()))


def read_header(path: Path, size: int) -> dict[str, Tensor]:
    """The tensors of a safetensors file of `size` bytes, which are as many as its header says.

    Raises: WeightsError for an empty or cut file, a Git LFS pointer, a web page, or anything else.
    """
    try:
        with path.open("rb") as file:
            start = file.read(512)
            if not start:
                raise WeightsError(f"{path}: the file is empty. {_AGAIN}")
            if start.startswith(b"version https://git-lfs"):
                raise WeightsError(f"{path}: a Git LFS pointer, not weights. Run `git lfs pull`, or fetch it again.")
            if start.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
                raise WeightsError(f"{path}: a web page was saved instead of the weights. {_AGAIN}")
            length = int.from_bytes(start[:8], "little")
            if len(start) < 8 or length > _HEADER_LIMIT:
                raise WeightsError(f"{path}: not a safetensors file. {_AGAIN}")
            file.seek(8)
            raw = file.read(length)
    except OSError as error:
        raise WeightsError(f"{path}: the file cannot be read ({error.strerror}). Check its rights.") from None
    if len(raw) < length:
        raise WeightsError(f"{path}: the file is cut: {size} bytes, its header alone needs {8 + length}. {_AGAIN}")
    try:
        tensors = dict(_tensors(parse_json(raw), ends := [0]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path}: its safetensors header is damaged ({error}). {_AGAIN}") from None
    wanted = 8 + length + max(ends)
    if size != wanted:
        how = "cut" if size < wanted else "longer than its header says"
        raise WeightsError(f"{path}: the file is {how}: {size} bytes of {wanted}. {_AGAIN}")
    return tensors


def _tensors(header: Mapping[str, Mapping[str, object]], ends: list[int]) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of each entry; where its data end is added to `ends`. Raises: ValueError and others."""
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = str(entry["dtype"]), _counts(name, "shape", entry["shape"])
        offsets = _counts(name, "data_offsets", entry["data_offsets"])
        if len(offsets) != 2 or offsets[0] > offsets[1]:
            raise ValueError(f"tensor {name} has data_offsets {list(offsets)}")
        begin, end = offsets
        bits = _BITS.get(dtype)
        if bits is not None and (prod(shape) * bits + 7) // 8 != end - begin:
            raise ValueError(f"tensor {name} of shape {list(shape)} in {dtype} has {end - begin} bytes of data")
        ends.append(end)
        yield name, Tensor(dtype, shape, end - begin)


def _counts(name: str, key: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(count) is int and 0 <= count < 2**63 for count in value):
        raise ValueError(f"tensor {name} has {key} {str(value)[:60]}")
    return tuple(value)
