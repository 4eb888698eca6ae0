"""Fetches repositories into the Hugging Face cache and checks what lies there. Knows huggingface_hub, no MLX.

huggingface_hub moves the bytes, so HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and proxies mean what they mean
everywhere. Around it: the sizes are known before the first byte, every file's hash is checked before the snapshot
counts as a model, and every failure is one line.
"""

import fnmatch
import glob
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.faults import explain, is_passing
from dflash2_mlx.store.hub import (
    Manifest,
    Repository,
    StoredFile,
    cache_folder,
    gigabytes,
    pull_command,
    read_manifest,
    repository_folder,
    snapshot_folder,
    snapshot_problem,
    write_manifest,
)

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

# Weights, configs, chat templates, tokenizers; never code.
_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.tiktoken", "merges.txt", "vocab.txt")
_WAITS_S = (1.0, 2.0, 4.0)
_ANSWER_TIMEOUT_S = 30.0
_MISSING = "missing"
_AT_A_TIME = 2  # files: huggingface_hub 2.4 throws a half file away when the process ends, so few are under way


@dataclass(frozen=True, slots=True)
class Plan:
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of the cached snapshot in `folder`: every wrong file and what is wrong with it, judged by `source`."""

    folder: Path
    files: Mapping[str, StoredFile]
    wrong: Mapping[str, str]
    source: str


def plan_pull(repository: Repository) -> Plan:
    """What the Hub says the repository holds. Raises: LoadError, in one line."""
    from huggingface_hub import HfApi

    def ask() -> "ModelInfo":
        return HfApi().model_info(
            repository.name, revision=repository.revision, files_metadata=True, timeout=_ANSWER_TIMEOUT_S
        )

    try:
        info = _patiently(ask)
        if not info.sha:
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
    return Plan(repository, info.sha, files)


def wanted_files(names: Mapping[str, object] | Sequence[str]) -> list[str]:
    """Those files of a repository that a model is loaded from: of its top folder, no code, one set of weights."""
    top = [name for name in names if "/" not in name and any(fnmatch.fnmatchcase(name, p) for p in _PATTERNS)]
    if any(fnmatch.fnmatchcase(name, "model*.safetensors") for name in top):
        return [name for name in top if not name.endswith(".safetensors") or name.startswith("model")]
    return top


def check_space(plans: Sequence[Plan]) -> None:
    """Raise LoadError unless the disk of the cache holds what is still to be fetched."""
    need, path = sum(plan.missing_bytes for plan in plans), cache_folder()
    while not path.exists():
        path = path.parent
    have = shutil.disk_usage(path).free
    if need > have:
        raise LoadError(
            f"need {gigabytes(need)}, have {gigabytes(have)} at {path}. Free some space, or set HF_HOME to a folder "
            "on a larger disk."
        )


def fetch(plan: Plan, *, bars: bool = False) -> Path:
    """The folder with all files of the plan, each with the hash that the Hub names; files already there are kept.

    bars: progress bars on stderr. Raises: LoadError, in one line; what was fetched until then is kept.
    """
    try:
        if not _is_finished(plan):
            _fetch_until_right(plan, bars=bars)
        _point_to(plan)
    except LoadError:
        raise
    except Exception as error:  # as in `plan_pull`, and what the disk refuses
        raise explain(error, str(plan.repository)) from error
    return plan.folder


def _fetch_until_right(plan: Plan, *, bars: bool) -> None:
    """Download, hash, and download once more what arrived damaged or was so in the cache."""
    from huggingface_hub import snapshot_download

    write_manifest(plan.folder, Manifest(plan.files))
    for _ in range(2):
        with _quietly(bars=bars):
            snapshot_download(
                plan.repository.name,
                revision=plan.commit,
                allow_patterns=[glob.escape(name) for name in plan.files],
                max_workers=_AT_A_TIME,
            )
        hashed, wrong = compare(plan.folder, plan.files)
        if not wrong:
            write_manifest(plan.folder, Manifest(hashed))
            return
        for name in wrong:
            _remove(plan.folder / name)
    name, why = next(iter(wrong.items()))
    raise LoadError(
        f"{plan.repository}: {name} arrived damaged twice: {why}. It was removed; run the command again later, or ask "
        "whoever runs the endpoint."
    )


def verify(repository: Repository) -> Verdict:
    """The cached snapshot against the Hub's hashes; against those that the last pull stored where no Hub answers.

    Damage is noted beside the snapshot, so that it is not loaded. Raises: LoadError where nothing is cached, or
    where there is nothing to compare with.
    """
    folder = snapshot_folder(repository)
    if folder is None:
        raise LoadError(f"{repository} is not in the cache. Fetch it with: {pull_command(repository)}")
    expected, source = _expected_hashes(Repository(repository.name, folder.name), read_manifest(folder))
    hashed, wrong = compare(folder, expected)
    damaged = tuple(name for name, why in wrong.items() if why != _MISSING)
    if len(damaged) == len(wrong):
        with suppress(OSError):  # a read-only cache: the verdict is said anyway
            write_manifest(folder, Manifest({**expected, **hashed}, damaged))
    return Verdict(folder, expected, wrong, source)


def compare(folder: Path, files: Mapping[str, StoredFile]) -> tuple[dict[str, StoredFile], dict[str, str]]:
    """The files that are right, with their sha256, and those that are not, each with the reason."""
    hashed, wrong = {}, {}
    for name, file in files.items():
        path = folder / name
        if not path.is_file():
            wrong[name] = _MISSING
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


def _expected_hashes(pinned: Repository, manifest: Manifest | None) -> tuple[Mapping[str, StoredFile], str]:
    try:
        return plan_pull(pinned).files, "the Hub"
    except LoadError as error:
        if manifest and any(file.sha256 for file in manifest.files.values()):
            return manifest.files, "the hashes that pull stored; the Hub was not asked or did not answer"
        raise LoadError(f"{pinned} cannot be verified: no pull stored its hashes. {error}") from error


def _is_finished(plan: Plan) -> bool:
    """Whether an earlier pull fetched these files and found them right."""
    manifest = read_manifest(plan.folder)
    return bool(
        manifest
        and manifest.hashed
        and manifest.files.keys() == plan.files.keys()
        and snapshot_problem(plan.folder) is None
    )


def _point_to(plan: Plan) -> None:
    """Let the branch or tag name the finished commit; until then it names the one before, which still loads."""
    revision = plan.repository.revision or "main"
    reference = plan.folder.parents[1] / "refs" / revision
    if revision == plan.commit or (reference.is_file() and reference.read_text(encoding="utf-8") == plan.commit):
        return
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(plan.commit, encoding="utf-8")


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
