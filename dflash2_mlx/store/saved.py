"""Where quantised drafters are kept once they were made, and that only whole ones of the same source are used.

Under DFLASH2_CACHE, by default ~/.cache/dflash2-mlx: drafters/NAME-FINGERPRINT-4bit. Knows files, no MLX.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.checkpoint import list_folder, read_json
from dflash2_mlx.store.opening import OpenedModel, open_drafter

_SOURCE = "source.json"
_WRITING_S = 86_400  # after a day nobody is still writing


@dataclass(frozen=True, slots=True)
class SavedDrafter:
    """A kept drafter. used: whether loading its source would still read it; a newer source or MLX makes another."""

    folder: Path
    nbytes: int
    used: bool


def saved_drafters() -> list[SavedDrafter]:
    """Everything that is kept, remains of writing that never ended included."""
    found = []
    for folder in sorted(_root().iterdir()) if _root().is_dir() else ():
        with suppress(LoadError, OSError, ImportError):  # another process took it away, or there is no MLX
            found.append(SavedDrafter(folder, sum(list_folder(folder).values()), _is_used(folder)))
    return found


def remove_unused() -> int:
    """Remove what no loading would read any more; the bytes that this gave back. Raises: OSError."""
    unused = [saved for saved in saved_drafters() if not saved.used]
    for saved in unused:
        shutil.rmtree(saved.folder)
    return sum(saved.nbytes for saved in unused)


def _root() -> Path:
    return Path(os.environ.get("DFLASH2_CACHE") or "~/.cache/dflash2-mlx").expanduser() / "drafters"


def _is_used(folder: Path) -> bool:
    """Whether the source that the copy notes is as it was, and the copy whole."""
    if folder.name.startswith("."):  # being written now, or never finished
        return folder.stat().st_mtime > time.time() - _WRITING_S
    source, bits = _source_of(folder), re.search(r"-(\d+)bit$", folder.name)
    if source is None or bits is None or not source.is_dir():
        return False
    saved = find_saved(open_drafter(str(source)), int(bits[1]))
    return saved is not None and saved.folder == folder


def _source_of(folder: Path) -> Path | None:
    """The drafter that the copy in `folder` was made of, as it notes."""
    try:
        return Path(str(read_json(folder / _SOURCE)["folder"]))
    except (LoadError, KeyError):
        return None


def saved_folder(source: OpenedModel, bits: int) -> Path:
    """Where the drafter `source`, quantised to `bits`, is kept or will be.

    The name holds a fingerprint of the source's files and of the MLX that quantises, so that a changed drafter is
    never answered by an old copy.
    """
    told = hashlib.sha256(f"{version('mlx')} {json.dumps(source.config, sort_keys=True)}".encode())
    for file in source.weights:
        kept = file.path.resolve()
        state = kept.stat()
        told.update(f"{file.path.name} {kept.name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return _root() / f"{_label(source.folder)}-{told.hexdigest()[:16]}-{bits}bit"


def find_saved(source: OpenedModel, bits: int) -> OpenedModel | None:
    """The kept drafter, opened; None where there is no whole one."""
    return None if source.fault else _open_whole(saved_folder(source, bits))


def _open_whole(folder: Path) -> OpenedModel | None:
    """The drafter in `folder`; None where there is none, or no whole one. It may go while it is looked at."""
    try:
        saved = open_drafter(str(folder))
    except LoadError:
        return None
    return None if saved.fault else saved


def note_source(draft: Path, source: OpenedModel) -> None:
    """Note in the copy being written which drafter it is made of."""
    (draft / _SOURCE).write_text(json.dumps({"folder": str(source.folder.resolve())}), encoding="utf-8")


def remove_older(kept: Path) -> None:
    """Remove what earlier states of the same drafter left in the bits of `kept`."""
    source, bits = _source_of(kept), kept.name.rpartition("-")[2]
    for folder in kept.parent.glob(f"[!.]*-{bits}"):
        if folder != kept and _source_of(folder) == source:
            shutil.rmtree(folder, ignore_errors=True)


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
        while not _took_place(draft, folder) and not _open_whole(folder):
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
