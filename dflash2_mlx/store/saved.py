"""Where quantised drafters are kept once they were made, and that only whole ones of the same source are used.

Under DFLASH2_CACHE, by default ~/.cache/dflash2-mlx: drafters/NAME-FINGERPRINT-4bit. Knows files, no MLX.
"""

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.checkpoint import read_json, weight_files


def saved_folder(source: Path, bits: int) -> Path:
    """Where the drafter in `source`, quantised to `bits`, is kept or will be. Raises: LoadError for a broken source.

    The name holds a fingerprint of the source's files and of the MLX that quantises, so that a changed drafter is
    never answered by an old copy.
    """
    config = source / "config.json"
    read_json(config)
    told = hashlib.sha256(f"{version('mlx')} ".encode() + config.read_bytes())
    for file in weight_files(source):
        kept = file.resolve()
        state = kept.stat()
        told.update(f"{file.name} {kept.name} {state.st_size} {state.st_mtime_ns}\n".encode())
    root = Path(os.environ.get("DFLASH2_CACHE") or "~/.cache/dflash2-mlx").expanduser()
    return root / "drafters" / f"{_label(source)}-{told.hexdigest()[:16]}-{bits}bit"


def find_saved(source: Path, bits: int) -> Path | None:
    """The kept drafter, whole; None where there is none."""
    folder = saved_folder(source, bits)
    return folder if _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    try:
        read_json(folder / "config.json")
        weight_files(folder)
    except (LoadError, OSError):
        return False
    return True


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A folder to write into that becomes `folder` once it is full; nothing is left of it where writing fails.

    A whole `folder` that another process has made meanwhile stays: it holds the same, and may be in use.
    Raises: OSError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield draft
        for path in draft.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        while not _took_place(draft, folder) and not _is_whole(folder):
            _move_away(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _took_place(draft: Path, folder: Path) -> bool:
    """Make `draft` be `folder`, where nothing is there."""
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _move_away(broken: Path) -> None:
    """Take a broken copy out of the way, in one step and then out of existence; another process may do the same."""
    aside = Path(tempfile.mkdtemp(prefix=f".{broken.name}.", dir=broken.parent))
    try:
        broken.rename(aside / "broken")
    except FileNotFoundError:
        pass
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _label(source: Path) -> str:
    """What people recognise the drafter by: its repository and commit, or its folder's name."""
    if source.parent.name == "snapshots":
        repository = source.parents[1].name.removeprefix("models--")
        return f"{repository}-{source.name[:7]}"
    return re.sub(r"[^\w.-]", "-", source.resolve().name)
