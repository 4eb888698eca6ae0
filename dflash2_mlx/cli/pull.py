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
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.memory.verdict import check_memory, examine_default
from dflash2_mlx.models.config import is_drafter
from dflash2_mlx.store.hub import Repository, gigabytes
from dflash2_mlx.store.opening import OpenedModel, OpenedPair, open_drafter, open_pair
from dflash2_mlx.store.pairs import DEMO, FLAGSHIP

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
    out, opened = Out(), open_pair(LoadParams(_named(pair), draft_bits=draft_bits))
    if draft_only and opened.drafter is None:
        name = opened.params.model
        raise LoadError(
            f"no drafter is known for {name}. Give the drafter's own repository: dflash2-mlx pull owner/name"
        )
    models = [opened.target] if target_only else list(opened.models)[int(draft_only) :]
    for model in models:
        if isinstance(model.place, Path):
            out.note(f"dflash2-mlx: {model.folder} is on this machine already: nothing to fetch")
    repositories = [model.place for model in models if isinstance(model.place, Repository)]
    if repositories and not draft_only:
        _warn_of_memory(opened, out)
    fetch_all(repositories, out)
    if draft_bits:
        _save_drafter(models, draft_bits, out)


def _named(pair: str | None) -> str:
    """`pair`, DFLASH2_MODEL, or what this machine is for; why that is the bundled pair is told."""
    given = pair or os.environ.get("DFLASH2_MODEL")
    if given:
        return given
    examined = examine_default(LoadParams(DEMO), None, probe())
    for why in examined.notes:
        Out().note(f"dflash2-mlx: {why}. To fetch it all the same: dflash2-mlx pull {FLAGSHIP}")
    return examined.pair.params.model


def _warn_of_memory(opened: OpenedPair, out: Out) -> None:
    """Say before the download that this machine has no memory for what is fetched; it may be for another one."""
    try:
        warning = check_memory(opened)
    except LoadError as error:
        warning = str(error)
    if warning:
        out.note(f"dflash2-mlx: {warning}")


def fetch_all(repositories: Sequence[Repository], out: Out) -> None:
    """Fetch the repositories, after a look at the disk for all of them. Raises: LoadError."""
    from dflash2_mlx.store.downloads import check_space, fetch, plan_pull

    pulls = [plan_pull(repository) for repository in repositories]
    check_space(pulls)
    for pull in pulls:
        left = pull.missing_bytes
        what = f"{gigabytes(left)} of {gigabytes(pull.total_bytes)} to fetch" if left else "all there, checking"
        out.note(f"dflash2-mlx: {pull.repository.name}: {len(pull.files)} files, {what}")
        with _stopping_at_once(pull.folder.parents[1] / "blobs"):
            folder = fetch(pull, bars=sys.stderr.isatty())
        out.document(f"{pull.repository.name}@{pull.commit}  {folder}")


def _save_drafter(models: Sequence[OpenedModel], bits: int, out: Out) -> None:
    """Keep the drafter among `models` quantised. Raises: LoadError where there is none."""
    fetched = [open_drafter(model.name) for model in models]
    drafters = [model for model in fetched if is_drafter(model.config)]
    if not drafters:
        raise LoadError(f"{models[0].name} is no drafter and none is known for it. Drop --draft-bits, or pull it.")
    from dflash2_mlx.loading.drafters import save_drafter

    out.note(f"dflash2-mlx: quantising {drafters[0].folder} to {bits} bits")
    out.document(f"{bits}-bit drafter  {save_drafter(drafters[0], bits).folder}")


def offer_download(opened: OpenedPair, out: Out) -> bool:
    """On a terminal, ask whether to fetch what of the pair the cache lacks; whether it was fetched.

    Elsewhere loading says how.
    """
    if not _on_terminal():
        return False
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    wanted = [model.place for model in opened.missing if isinstance(model.place, Repository)]
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
