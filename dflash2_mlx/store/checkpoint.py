"""A checkpoint folder on disk: its JSON files and the headers of its weights, checked before anything large is read.

Knows no MLX. Every fault of a folder becomes one line that names the file.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dflash2_mlx.errors import ConfigError, WeightsError
from dflash2_mlx.parsing import parse_json

_AGAIN = "Fetch it again."
_HEADER_LIMIT = 2**27
_SHARD = re.compile(r"(.+-)\d{5}-of-(\d{5})\.safetensors")


def read_json(path: Path) -> dict[str, object]:
    """The mapping stored in `path`.

    Raises: ConfigError where the file is missing or is not a JSON mapping.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path.parent}: there is no {path.name} here. Give a model folder. {_AGAIN}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not readable as JSON ({error}). {_AGAIN}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a mapping was expected, found {type(content).__name__}. {_AGAIN}")
    return content


def read_optional_json(path: Path) -> dict[str, object]:
    """As `read_json`, but a missing file is an empty mapping."""
    return read_json(path) if path.exists() else {}


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make the checkpoint, each checked to be whole.

    The index decides where there is one. Raises: WeightsError naming what is missing, cut or no weights at all.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = _shard_names(index)
        _refuse_missing(folder, names)
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("model*.safetensors"))
        _refuse_missing(folder, [name for file in files for name in _siblings(file.name)])
        if not files:
            found = ", ".join(sorted({p.suffix for p in folder.iterdir() if p.suffix in (".gguf", ".bin", ".pt")}))
            why = f"only {found} files, which MLX does not read" if found else "no model*.safetensors files"
            raise WeightsError(f"{folder}: {why}. Give a folder with MLX safetensors weights.")
    for file in files:
        check_safetensors(file)
    return files


def _refuse_missing(folder: Path, names: Sequence[str]) -> None:
    expected = set(names)
    missing = sorted(name for name in expected if not (folder / name).exists())
    if missing:
        raise WeightsError(
            f"{folder}: the model is incomplete: shard {missing[0]} is missing "
            f"({len(missing)} of {len(expected)}). {_AGAIN}"
        )


def _siblings(name: str) -> list[str]:
    """All shards of the set that a file named ...-00001-of-00003.safetensors belongs to."""
    found = _SHARD.fullmatch(name)
    if not found:
        return []
    start, total = found.groups()
    return [f"{start}{number:0{len(total)}d}-of-{total}.safetensors" for number in range(1, int(total) + 1)]


def _shard_names(index: Path) -> list[str]:
    mapping = read_json(index).get("weight_map")
    if not isinstance(mapping, Mapping) or not mapping:
        raise WeightsError(f"{index}: it has no weight_map. {_AGAIN}")
    names = sorted({str(name) for name in mapping.values()})
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise WeightsError(f"{index}: it names {outside[0]!r}, a file outside the folder. {_AGAIN}")
    return names


def check_safetensors(path: Path) -> dict[str, object]:
    """The header of a safetensors file whose length is what the header says.

    Raises: WeightsError for an empty or cut file, a Git LFS pointer, a web page, or anything else.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(512)
        if not start:
            raise WeightsError(f"{path}: the file is empty. {_AGAIN}")
        if start.startswith(b"version https://git-lfs"):
            raise WeightsError(f"{path}: a Git LFS pointer, not the weights. Run `git lfs pull`, or fetch it again.")
        if start.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
            raise WeightsError(f"{path}: a web page was saved instead of the weights. {_AGAIN}")
        length = int.from_bytes(start[:8], "little")
        if len(start) < 8 or length > _HEADER_LIMIT:
            raise WeightsError(f"{path}: not a safetensors file. {_AGAIN}")
        file.seek(8)
        return _check_header(path, file.read(length), length, size)


def _check_header(path: Path, raw: bytes, length: int, size: int) -> dict[str, object]:
    if len(raw) < length:
        raise WeightsError(f"{path}: the file is cut: {size} bytes, its header alone needs {8 + length}. {_AGAIN}")
    try:
        header = parse_json(raw)
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        data = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise WeightsError(f"{path}: its safetensors header is damaged. {_AGAIN}") from None
    if size != 8 + length + data:
        raise WeightsError(f"{path}: the file is cut: {size} bytes of {8 + length + data}. {_AGAIN}")
    return tensors
