"""A model's files against the hashes that they should have, and hashes noted where nobody published any. No MLX."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.downloads import plan_pull, wanted_files
from dflash2_mlx.store.hub import Repository
from dflash2_mlx.store.manifest import MISSING, NOTE, Manifest, StoredFile, compare, write_manifest
from dflash2_mlx.store.opening import OpenedModel


@dataclass(frozen=True, slots=True)
class Checked:
    """Of the files in `folder`: every wrong one and what is wrong with it, judged by `source`."""

    folder: Path
    files: Mapping[str, StoredFile]
    wrong: Mapping[str, str]
    source: str


def verify(model: OpenedModel) -> Checked:
    """The model's files against the Hub's hashes, or those that were noted where no Hub answers, or is theirs.

    Damage is noted beside the files, so that they are not loaded. Raises: LoadError where nothing is there, or where
    there is nothing to compare with.
    """
    if model.state == "not there":
        assert model.fault
        raise model.fault
    expected, source = _expected_hashes(model)
    hashed, wrong = compare(model.folder, expected)
    damaged = tuple(name for name, why in wrong.items() if why != MISSING)
    if len(damaged) == len(wrong):
        with suppress(OSError):  # a read-only place: the result is said anyway
            write_manifest(model.folder, Manifest({**expected, **hashed}, damaged))
    return Checked(model.folder, expected, wrong, source)


def record(model: OpenedModel) -> Checked:
    """Note the hashes of a folder's files as they are now. Raises: LoadError for a model that cannot be loaded."""
    if model.state != "folder":
        raise LoadError(
            f"{model.name} has published hashes; only those of a folder are recorded. Check against them: "
            f"dflash2-mlx verify {model.name}"
        )
    if model.fault and not (model.manifest and model.manifest.damaged):
        raise model.fault
    hashed, _ = compare(model.folder, {name: StoredFile(None) for name in wanted_files(model.files) if name != NOTE})
    try:
        write_manifest(model.folder, Manifest(hashed))
    except OSError as error:
        raise LoadError(f"{model.folder / NOTE} cannot be written ({error.strerror}). Check its rights.") from error
    return Checked(model.folder, hashed, {}, f"recorded in {NOTE}")


def _expected_hashes(model: OpenedModel) -> tuple[Mapping[str, StoredFile], str]:
    manifest = model.manifest if model.manifest and any(f.sha256 for f in model.manifest.files.values()) else None
    if isinstance(model.place, Path):
        assert manifest, "a folder without recorded hashes is not asked for"
        return manifest.files, f"the hashes recorded in {NOTE}"
    pinned = Repository(model.place.name, model.commit)
    try:
        return plan_pull(pinned).files, "the Hub"
    except LoadError as error:
        if manifest:
            return manifest.files, "the hashes that pull stored; the Hub was not asked or did not answer"
        raise LoadError(f"{pinned} cannot be verified: no pull stored its hashes. {error}") from error
