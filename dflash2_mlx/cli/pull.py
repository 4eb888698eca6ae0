"""`dflash2-mlx pull`, and the question before anything else is downloaded. huggingface_hub is imported when needed."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError, UsageError
from dflash2_mlx.memory.verdict import check_room
from dflash2_mlx.store.hub import Repository, cache_state, find_folder, gigabytes, read_name
from dflash2_mlx.store.pairs import FLAGSHIP, target_and_drafter

_HALF_FILES, _INTERRUPTED = "*.incomplete", 130


def pull(
    pair: options.PairArgument = None,
    target_only: options.TargetOnly = False,
    draft_only: options.DraftOnly = False,
    draft_bits: options.SavedDraftBits = None,
) -> None:
    """Fetch a pair into the Hugging Face cache: target and drafter, each file checked against the Hub's hash.

    A transfer that is cut goes on where it was cut.

    In a later run whole files are kept, and one that was under way starts over.

    stdout names each repository with its commit, and the folder.
    """
    if target_only and draft_only:
        raise UsageError("--target-only excludes --draft-only. Drop one of them, or both to fetch the pair.")
    if draft_bits not in (None, 4, 8):
        raise UsageError(f"--draft-bits {draft_bits} cannot be saved. Give 4 or 8.")
    if draft_bits and target_only:
        raise UsageError("--draft-bits is about the drafter, which --target-only leaves out. Drop one of them.")
    out, repositories = Out(), []
    names = chosen_names(pair, target_only=target_only, draft_only=draft_only)
    for name in names:
        found = read_name(name)
        if isinstance(found, Path):
            out.note(f"dflash2-mlx: {found} is on this machine already: nothing to fetch")
        else:
            repositories.append(found)
    if repositories and not draft_only:
        _warn_of_room(pair, draft_bits, out)
    fetch_all(repositories, out)
    if draft_bits:
        _save_drafter(names, draft_bits, out)


def chosen_names(pair: str | None, *, target_only: bool = False, draft_only: bool = False) -> list[str]:
    """Names of the target and the drafter that `pair` means; None = DFLASH2_MODEL, else the first pair of the table.

    Raises: LoadError where a drafter alone is asked for and none is known.
    """
    name = _named(pair)
    target, drafter, _ = target_and_drafter(LoadParams(name))
    if draft_only and drafter is None:
        raise LoadError(
            f"no drafter is known for {name}. Give the drafter's own repository: dflash2-mlx pull owner/name"
        )
    names = [None if draft_only else target, None if target_only else drafter]
    return [name for name in names if name]


def _named(pair: str | None) -> str:
    return pair or os.environ.get("DFLASH2_MODEL") or FLAGSHIP


def _warn_of_room(pair: str | None, bits: int | None, out: Out) -> None:
    """Say before the download that this machine has no memory for what is fetched; it may be for another one."""
    try:
        warning = check_room(LoadParams(_named(pair), draft_bits=bits))
    except LoadError as error:
        warning = str(error)
    if warning:
        out.note(f"dflash2-mlx: {warning}")


def fetch_all(repositories: Sequence[Repository], out: Out) -> None:
    """Fetch the repositories, after a look at the room for all of them. Raises: LoadError."""
    from dflash2_mlx.store.downloads import check_space, fetch, plan_pull

    plans = [plan_pull(repository) for repository in repositories]
    check_space(plans)
    for plan in plans:
        left = plan.missing_bytes
        what = f"{gigabytes(left)} of {gigabytes(plan.total_bytes)} to fetch" if left else "all there, checking"
        out.note(f"dflash2-mlx: {plan.repository.name}: {len(plan.files)} files, {what}")
        with _stopping_at_once(plan.folder.parents[1] / "blobs"):
            folder = fetch(plan, bars=sys.stderr.isatty())
        out.document(f"{plan.repository.name}@{plan.commit}  {folder}")


def _save_drafter(names: Sequence[str], bits: int, out: Out) -> None:
    """Keep the drafter among `names` quantised. Raises: LoadError where there is none."""
    from dflash2_mlx.models.config import is_drafter
    from dflash2_mlx.store.checkpoint import read_json

    folders = [folder for folder in map(find_folder, names) if is_drafter(read_json(folder / "config.json"))]
    if not folders:
        raise LoadError(f"{names[0]} is no drafter and none is known for it. Drop --draft-bits, or pull the drafter.")
    from dflash2_mlx.loading.load import save_drafter

    out.note(f"dflash2-mlx: quantising {folders[0]} to {bits} bits")
    out.document(f"{bits}-bit drafter  {save_drafter(folders[0], bits)}")


def offer_download(params: LoadParams, out: Out) -> bool:
    """On a terminal, ask whether to fetch what `params` need and the cache lacks; whether it was fetched.

    Elsewhere loading says how.
    """
    if not _on_terminal():
        return False
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    target, drafter, _ = target_and_drafter(params)
    found = [read_name(target)] + ([read_name(drafter, params.draft_revision)] if drafter else [])
    wanted = [place for place in found if isinstance(place, Repository) and cache_state(str(place)) != "in the cache"]
    if not wanted:
        return False
    from dflash2_mlx.store.downloads import plan_pull

    size = gigabytes(sum(plan_pull(repository).missing_bytes for repository in wanted))
    names = " and ".join(repository.name for repository in wanted)
    agreed = typer.confirm(f"{names}: not in the cache. Fetch {size} now?", default=False, err=True)
    if agreed:
        fetch_all(wanted, out)
    return agreed


@contextmanager
def _stopping_at_once(blobs: Path) -> Iterator[None]:
    """Ctrl-C ends the process now, without the half files, instead of when the shards under way are there."""
    before = set(blobs.glob(_HALF_FILES))

    def stop(number: int, frame: object) -> None:
        for path in set(blobs.glob(_HALF_FILES)) - before:
            path.unlink(missing_ok=True)
        os._exit(_INTERRUPTED)  # huggingface_hub's threads would be waited for otherwise

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
