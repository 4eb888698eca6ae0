"""What the files of a model should be: the note that a pull, or `verify --record`, leaves beside them. Knows no MLX.

Beside a snapshot of the Hugging Face cache it is `dflash2-mlx/COMMIT.json`, in a folder of one's own
`dflash2-mlx.json`. So half a download, and a file found to be damaged, are never taken for a model.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dflash2_mlx.parsing import parse_json

NOTE, MISSING = "dflash2-mlx.json", "missing"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it should be. git_sha1 is the id of the git blob, which small files have instead of a sha256."""

    size: int | None
    sha256: str | None = None
    git_sha1: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a model's folder should hold, and which of these files were found to be damaged."""

    files: Mapping[str, StoredFile]
    damaged: tuple[str, ...] = ()

    @property
    def hashed(self) -> bool:
        """Whether every file's sha256 was computed, and right, once they were all there."""
        return not self.damaged and all(file.sha256 for file in self.files.values())


def read_manifest(folder: Path) -> Manifest | None:
    """What the model in `folder` should hold; None where nobody noted it, or the note is unreadable."""
    try:
        content = parse_json(_note(folder).read_text(encoding="utf-8"))
        files = {str(name): StoredFile(**entry) for name, entry in content["files"].items()}
        return Manifest(files, tuple(str(name) for name in content["damaged"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Note what the model in `folder` should hold, in one step. Raises: OSError."""
    path = _note(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "files": {name: asdict(file) for name, file in manifest.files.items()},
        "damaged": list(manifest.damaged),
    }
    draft = path.with_suffix(f".{os.getpid()}.part")
    draft.write_text(json.dumps(content, indent=1), encoding="utf-8")
    draft.replace(path)


def problem_of(manifest: Manifest, present: Mapping[str, int]) -> str | None:
    """Why files of these sizes are no usable model, in words that follow "is"; None where they are one."""
    if manifest.damaged:
        return f"damaged: the sha256 of {listed(manifest.damaged)} is wrong"
    missing = [
        name for name, file in manifest.files.items() if name not in present or file.size not in (None, present[name])
    ]
    return f"incomplete: {listed(missing)} missing or cut" if missing else None


def listed(names: Sequence[str]) -> str:
    """The first three of the names, in words."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def compare(folder: Path, files: Mapping[str, StoredFile]) -> tuple[dict[str, StoredFile], dict[str, str]]:
    """The files that are right, with their sha256, and those that are not, each with the reason."""
    hashed, wrong = {}, {}
    for name, file in files.items():
        path = folder / name
        if not path.is_file():
            wrong[name] = MISSING
        elif file.size not in (None, path.stat().st_size):
            wrong[name] = f"it has {path.stat().st_size} bytes and should have {file.size}"
        else:
            digest = sha256(path)
            why = _difference(path, file, digest)
            if why:
                wrong[name] = why
            else:
                hashed[name] = StoredFile(path.stat().st_size, digest, file.git_sha1)
    return hashed, wrong


def sha256(path: Path) -> str:
    """The file's sha256, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _difference(path: Path, file: StoredFile, digest: str) -> str | None:
    if file.sha256:
        return None if digest == file.sha256 else f"its sha256 is {digest} and should be {file.sha256}"
    if not file.git_sha1:
        return None
    content = path.read_bytes()  # small: the Hub keeps large files in LFS
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return None if blob == file.git_sha1 else f"its git sha1 is {blob} and should be {file.git_sha1}"


def _note(folder: Path) -> Path:
    if folder.parent.name == "snapshots":
        return folder.parents[1] / "dflash2-mlx" / f"{folder.name}.json"
    return folder / NOTE
