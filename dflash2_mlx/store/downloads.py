"""Fetches repositories into the Hugging Face cache. Knows huggingface_hub, no MLX.

huggingface_hub moves the bytes, so HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and proxies mean what they mean
everywhere. Around it: the sizes are known before the first byte, every file's hash is checked before the snapshot
counts as a model, and every failure is one line.
"""

import fnmatch
import glob
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.checkpoint import list_folder
from dflash2_mlx.store.faults import explain, is_passing
from dflash2_mlx.store.hub import Repository, cache_folder, gigabytes, repository_folder
from dflash2_mlx.store.manifest import Manifest, StoredFile, compare, problem_of, read_manifest, write_manifest

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

# Weights, configs, chat templates, tokenizers; never code.
_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.tiktoken", "merges.txt", "vocab.txt")
_WAITS_S = (1.0, 2.0, 4.0)
_ANSWER_TIMEOUT_S = 30.0
_AT_A_TIME = 2  # files: huggingface_hub 2.4 throws a half file away when the process ends, so few are under way


@dataclass(frozen=True, slots=True)
class Pull:
    """The files that make `repository` at the commit that its revision means now."""

    repository: Repository
    commit: str
    files: Mapping[str, StoredFile]

    @property
    def folder(self) -> Path:
        """Where the files are, or will be."""
        return repository_folder(self.repository) / "snapshots" / self.commit

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size or 0 for file in self.files.values())

    @property
    def missing_bytes(self) -> int:
        """Bytes of the files that are not in the cache."""
        blobs = self.folder.parents[1] / "blobs"
        return sum(
            file.size or 0
            for name, file in self.files.items()
            if not (self.folder / name).exists() and not (blobs / (file.sha256 or file.git_sha1 or name)).exists()
        )


def plan_pull(repository: Repository) -> Pull:
    """What the Hub says the repository holds. Raises: LoadError, in one line."""
    from huggingface_hub import HfApi

    def ask() -> "ModelInfo":
        return HfApi().model_info(
            repository.name, revision=repository.revision, files_metadata=True, timeout=_ANSWER_TIMEOUT_S
        )

    try:
        info = _patiently(ask)
        if not info.sha or not info.sha.isalnum():
            raise ValueError("no commit in the answer")
        found = {
            file.rfilename: StoredFile(file.size, file.lfs.sha256 if file.lfs else None, file.blob_id)
            for file in info.siblings or ()
        }
        files = {name: found[name] for name in wanted_files(found)}
    except Exception as error:  # of huggingface_hub, its HTTP client, or a server that is no Hub
        raise explain(error, str(repository)) from error
    if not any(name.endswith(".safetensors") for name in files):
        raise LoadError(f"{repository} holds no safetensors weights. Use a repository in MLX or safetensors format.")
    return Pull(repository, info.sha, files)


def wanted_files(names: Mapping[str, object] | Sequence[str]) -> list[str]:
    """Those files of a repository that a model is loaded from: of its top folder, no code, one set of weights."""
    top = [name for name in names if "/" not in name and any(fnmatch.fnmatchcase(name, p) for p in _PATTERNS)]
    if any(fnmatch.fnmatchcase(name, "model*.safetensors") for name in top):
        return [name for name in top if not name.endswith(".safetensors") or name.startswith("model")]
    return top


def check_space(pulls: Sequence[Pull]) -> None:
    """Raise LoadError unless the disk of the cache holds what is still to be fetched."""
    need, path = sum(pull.missing_bytes for pull in pulls), cache_folder()
    while not path.exists():
        path = path.parent
    have = shutil.disk_usage(path).free
    if need > have:
        raise LoadError(
            f"need {gigabytes(need)}, have {gigabytes(have)} at {path}. Free some space, or set HF_HOME to a folder "
            "on a larger disk."
        )


def fetch(pull: Pull, *, bars: bool = False) -> Path:
    """The folder with all files of the pull, each with the hash that the Hub names; files already there are kept.

    bars: progress bars on stderr. Raises: LoadError, in one line; what was fetched until then is kept.
    """
    try:
        if not _is_finished(pull):
            _fetch_until_right(pull, bars=bars)
        _point_to(pull)
    except LoadError:
        raise
    except Exception as error:  # as in `plan_pull`, and what the disk refuses
        raise explain(error, str(pull.repository)) from error
    return pull.folder


def _fetch_until_right(pull: Pull, *, bars: bool) -> None:
    """Download, hash, and download once more what arrived damaged or was so in the cache."""
    from huggingface_hub import snapshot_download

    write_manifest(pull.folder, Manifest(pull.files))
    for _ in range(2):
        with _quietly(bars=bars):
            snapshot_download(
                pull.repository.name,
                revision=pull.commit,
                allow_patterns=[glob.escape(name) for name in pull.files],
                max_workers=_AT_A_TIME,
            )
        hashed, wrong = compare(pull.folder, pull.files)
        if not wrong:
            write_manifest(pull.folder, Manifest(hashed))
            return
        for name in wrong:
            _remove(pull.folder / name)
    name, why = next(iter(wrong.items()))
    raise LoadError(
        f"{pull.repository}: {name} arrived damaged twice: {why}. It was removed; run the command again later, or ask "
        "whoever runs the endpoint."
    )


def _is_finished(pull: Pull) -> bool:
    """Whether an earlier pull fetched these files and found them right."""
    manifest = read_manifest(pull.folder)
    return bool(
        manifest
        and manifest.hashed
        and manifest.files.keys() == pull.files.keys()
        and pull.folder.is_dir()
        and problem_of(manifest, list_folder(pull.folder)) is None
    )


def _point_to(pull: Pull) -> None:
    """Let the branch or tag name the finished commit; until then it names the one before, which still loads."""
    revision = pull.repository.revision or "main"
    reference = pull.folder.parents[1] / "refs" / revision
    if revision == pull.commit or (reference.is_file() and reference.read_text(encoding="utf-8") == pull.commit):
        return
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(pull.commit, encoding="utf-8")


def _remove(path: Path) -> None:
    """Remove a cached file, and the blob that it links to."""
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _patiently(ask: "Callable[[], ModelInfo]") -> "ModelInfo":
    """The answer, asked for again after 429, 5xx and timeouts."""
    for wait_s in _WAITS_S:
        try:
            return ask()
        except Exception as error:
            if not is_passing(error):
                raise
        time.sleep(wait_s)
    return ask()


@contextmanager
def _quietly(*, bars: bool) -> Iterator[None]:
    """huggingface_hub without its own talk, and without progress bars unless asked for."""
    from huggingface_hub import constants
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars  # type: ignore[attr-defined]
    from huggingface_hub.utils import logging as talk

    verbosity, hide = talk.get_verbosity(), not bars and constants.HF_HUB_DISABLE_PROGRESS_BARS is None
    talk.set_verbosity(40)  # errors only
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        talk.set_verbosity(verbosity)
        if hide:
            enable_progress_bars()
