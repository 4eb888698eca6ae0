"""Where a model lies on disk: a folder, a folder of this package, or the Hugging Face cache. Never uses the network.

The cache's layout is huggingface_hub's: `refs/NAME` holds a commit, `snapshots/COMMIT/FILE` the files. Beside them
`dflash2-mlx/COMMIT.json` lists what a snapshot should hold, so that half a download is never taken for a model.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dflash2_mlx.errors import LoadError, UsageError
from dflash2_mlx.parsing import parse_json

_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+(@[\w./-]+)?$")
_PACKAGE = "package:"
_LONGEST_ID = 96


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of the Hub at a revision: a commit, tag or branch; None = the newest."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.revision}" if self.revision else self.name


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it should be. git_sha1 is the id of the git blob, which small files have instead of a sha256."""

    size: int | None
    sha256: str | None = None
    git_sha1: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot holds, and which of these files were found to be damaged."""

    files: Mapping[str, StoredFile]
    damaged: tuple[str, ...] = ()

    @property
    def hashed(self) -> bool:
        """Whether every file's sha256 was computed, and right, once they were all there."""
        return not self.damaged and all(file.sha256 for file in self.files.values())


def read_name(name: str, revision: str | None = None) -> Path | Repository:
    """The folder or the repository that `name` means: a path, `package:...`, or `owner/name[@revision]`.

    Raises: LoadError saying how to spell it.
    """
    if name.startswith(_PACKAGE):
        return Path(__file__).parents[1] / name.removeprefix(_PACKAGE)
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise LoadError(f"{path} is a file, not a model folder. Give the folder that holds config.json.")
    if name.startswith((".", "/", "~")) or not _REPOSITORY.match(name):
        raise LoadError(
            f"there is no folder {path}, and it is no repository id. Give a folder, owner/name, or an alias that "
            "`dflash2-mlx models` lists."
        )
    repository, _, pinned = name.partition("@")
    return _checked(Repository(repository, revision or pinned or None))


def find_folder(name: str, revision: str | None = None) -> Path:
    """The folder that holds the model `name`: see `read_name`. Repositories are looked up in the local cache only.

    Raises: LoadError saying what is missing and which command fetches it.
    """
    found = read_name(name, revision)
    if isinstance(found, Path):
        if revision:
            raise UsageError(f"{name} is a folder, which has no revisions: drop --draft-revision {revision}.")
        return found
    folder = snapshot_folder(found)
    if folder is None:
        raise LoadError(
            f"{found} is neither a folder nor in the Hugging Face cache, and nothing is downloaded unasked. "
            f"Fetch it with: {pull_command(found)}"
        )
    problem = snapshot_problem(folder)
    if problem:
        raise LoadError(f"{found} in the Hugging Face cache is {problem}. Fetch it with: {pull_command(found)}")
    return folder


def pull_command(repository: Repository) -> str:
    """What to type to fetch the repository."""
    return f"dflash2-mlx pull {repository}"


def cache_folder() -> Path:
    """The Hugging Face cache, as HF_HUB_CACHE, HF_HOME or their defaults say."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def repository_folder(repository: Repository) -> Path:
    """The repository's own folder in the cache, there or not."""
    return cache_folder() / f"models--{repository.name.replace('/', '--')}"


def snapshot_folder(repository: Repository) -> Path | None:
    """The cached files of the repository at its revision, complete or not; None where nothing is cached."""
    storage, revision = repository_folder(repository), repository.revision or "main"
    reference = storage / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    folder = storage / "snapshots" / commit
    return folder if folder.is_dir() else None


def snapshot_problem(folder: Path) -> str | None:
    """Why the snapshot is no usable model, in words that follow "is"; None where it is one, or cannot be judged."""
    manifest = read_manifest(folder)
    if manifest and manifest.damaged:
        return f"damaged: the sha256 of {_listed(manifest.damaged)} is wrong"
    missing = [name for name, file in _expected_files(folder, manifest).items() if not _is_there(folder / name, file)]
    return f"incomplete: {_listed(missing)} missing or cut" if missing else None


def cache_state(name: str) -> str:
    """Where the model `name` is: `bundled`, `folder`, `in the cache`, `incomplete`, `damaged` or `not there`."""
    found = read_name(name)
    if isinstance(found, Path):
        return "bundled" if name.startswith(_PACKAGE) else "folder"
    folder = snapshot_folder(found)
    if folder is None:
        return "not there"
    problem = snapshot_problem(folder)
    return problem.partition(":")[0] if problem else "in the cache"


def cached_commit(name: str) -> str | None:
    """The commit that the model `name` means in the cache now; None for a folder, and where nothing is cached."""
    place = read_name(name)
    folder = snapshot_folder(place) if isinstance(place, Repository) else None
    return folder.name if folder else None


def cached_bytes(name: str) -> int | None:
    """Bytes of the files of the model `name`, None where they are not all there."""
    if cache_state(name) not in ("bundled", "folder", "in the cache"):
        return None
    place = read_name(name)
    folder = place if isinstance(place, Path) else snapshot_folder(place)
    return (
        sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) if folder and folder.is_dir() else None
    )


def gigabytes(count: int) -> str:
    """Bytes as people read them: 10^9 bytes a GB, as the Hub counts."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def read_manifest(folder: Path) -> Manifest | None:
    """What the snapshot in `folder` should hold; None where no pull noted it, or the note is unreadable."""
    try:
        content = parse_json(_manifest_path(folder).read_text(encoding="utf-8"))
        files = {str(name): StoredFile(**entry) for name, entry in content["files"].items()}
        return Manifest(files, tuple(str(name) for name in content["damaged"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Note what the snapshot in `folder` should hold, in one step. Raises: OSError."""
    path = _manifest_path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "files": {name: asdict(file) for name, file in manifest.files.items()},
        "damaged": list(manifest.damaged),
    }
    draft = path.with_suffix(f".{os.getpid()}.part")
    draft.write_text(json.dumps(content, indent=1), encoding="utf-8")
    draft.replace(path)


def _manifest_path(folder: Path) -> Path:
    return folder.parents[1] / "dflash2-mlx" / f"{folder.name}.json"


def _expected_files(folder: Path, manifest: Manifest | None) -> Mapping[str, StoredFile]:
    """The manifest's files, else config.json and what the index names."""
    if manifest:
        return manifest.files
    try:
        index = parse_json((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        shards = {str(name) for name in index["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        shards = set()  # `weight_files` says what is wrong with it
    return {name: StoredFile(None) for name in ("config.json", *sorted(shards))}


def _is_there(path: Path, file: StoredFile) -> bool:
    try:
        return file.size in (None, path.stat().st_size)
    except OSError:
        return False


def _listed(names: tuple[str, ...] | list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def _checked(repository: Repository) -> Repository:
    """The repository, unless the Hub allows no such id or revision."""
    name, revision = repository.name, repository.revision
    parts = name.split("/")
    if len(name) > _LONGEST_ID or any(p[0] in "-." or p[-1] in "-." or "--" in p or ".." in p for p in parts):
        raise LoadError(f"{name!r} is not a repository id. Give owner/name, or the path of a folder.")
    if revision and ".." in revision:
        raise LoadError(f"{revision!r} is not a revision. Give a commit, a tag or a branch.")
    return repository
