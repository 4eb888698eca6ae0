"""What a name means and where its files lie: a folder, a folder of this package, or the Hugging Face cache.

The cache's layout is huggingface_hub's: `refs/NAME` holds a commit, `snapshots/COMMIT/FILE` the files. Never uses the
network.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.pairs import KNOWN_PAIRS

PACKAGE = "package:"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)
_PART = re.compile(r"[\w-][\w.-]*", re.ASCII)  # of a revision, which may have slashes: refs/pr/1
_PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)", re.ASCII)
_LONGEST_ID, _LONGEST_SHOWN = 96, 200


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of the Hub at a revision: a commit, tag or branch; None = the newest."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.revision}" if self.revision else self.name


def read_name(name: str, revision: str | None = None) -> Path | Repository:
    """The folder or the repository that `name` means: a path, `package:...`, or `owner/name[@revision]`.

    Raises: LoadError saying how to spell it.
    """
    try:
        path = Path(name).expanduser()
        if name.startswith(PACKAGE) and ".." not in name:
            path = Path(__file__).parents[1] / name.removeprefix(PACKAGE)
        if path.is_dir():
            return path
        if path.is_file():
            raise LoadError(f"{path} is a file, not a model folder. Give the folder that holds config.json.")
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, the home of nobody: no path at all
        path = Path(name)
    if name.startswith((".", "/", "~")) or not _REPOSITORY.fullmatch(name):
        raise LoadError(
            f"there is no folder {str(path)[:_LONGEST_SHOWN]}, and it is no repository id. {_guess(name)}"
            "Give a folder, owner/name, or an alias that `dflash2-mlx models` lists."
        )
    repository, _, pinned = name.partition("@")
    return _checked(Repository(repository, revision or pinned or None))


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
    try:
        commit = (storage / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = revision
    folder = storage / "snapshots" / commit
    return folder if _PART.fullmatch(commit) and folder.is_dir() else None


def cached_commits(repository: Repository) -> list[str]:
    """The commits of the repository that have files in the cache, whatever points to them."""
    folder = repository_folder(repository) / "snapshots"
    return sorted(path.name for path in folder.iterdir() if _PART.fullmatch(path.name)) if folder.is_dir() else []


def gigabytes(count: int) -> str:
    """Bytes as people read them: 10^9 bytes a GB, as the Hub counts."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _guess(name: str) -> str:
    """What a misspelt alias, or the address of a page, may have meant."""
    page = _PAGE.match(name)
    near = [page[1]] if page else get_close_matches(name.lower(), [pair.alias for pair in KNOWN_PAIRS], 1)
    return f"Did you mean {near[0]}? " if near else ""


def _checked(repository: Repository) -> Repository:
    """The repository, unless the Hub allows no such id or revision."""
    name, revision = repository.name, repository.revision
    parts = name.split("/")
    if len(name) > _LONGEST_ID or any(p[0] in "-." or p[-1] in "-." or "--" in p or ".." in p for p in parts):
        raise LoadError(f"{name!r} is not a repository id. Give owner/name, or the path of a folder.")
    if revision and (".." in revision or not all(map(_PART.fullmatch, revision.split("/")))):
        raise LoadError(f"{revision!r} is not a revision. Give a commit, a tag or a branch.")
    return repository
