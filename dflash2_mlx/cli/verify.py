"""`dflash2-mlx verify`: the cached files against their hashes. huggingface_hub is imported when needed."""

from pathlib import Path

from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.pull import chosen_names
from dflash2_mlx.errors import WeightsError
from dflash2_mlx.store.checkpoint import weight_files
from dflash2_mlx.store.hub import Repository, gigabytes, pull_command, read_name


def verify(pair: options.PairArgument = None) -> None:
    """Check the sha256 of a pair's cached files: against the Hub, offline against what the pull stored.

    Every wrong file is a line on stdout; exit 1 if there is any.
    """
    out, wrong = Out(), list[Repository]()
    for name in chosen_names(pair):
        found = read_name(name)
        if isinstance(found, Path):
            count = len(weight_files(found))
            out.document(f"{found}: {count} weight files are whole; a folder has no hashes to compare with")
        elif not _is_right(found, out):
            wrong.append(found)
    if wrong:
        again = "; ".join(pull_command(repository) for repository in wrong)
        raise WeightsError(f"{', '.join(map(str, wrong))}: not as published. Fetch the wrong files again: {again}")


def _is_right(repository: Repository, out: Out) -> bool:
    """Whether every cached file is right; the wrong ones are printed."""
    from dflash2_mlx.store.downloads import verify as compare_with_source

    out.note(f"dflash2-mlx: hashing {repository}")
    verdict = compare_with_source(repository)
    for name, why in verdict.wrong.items():
        out.document(f"{verdict.folder / name}: {why}")
    size = gigabytes(sum(file.size or 0 for file in verdict.files.values()))
    state = f"{len(verdict.wrong)} wrong" if verdict.wrong else "all right"
    out.document(
        f"{repository.name}@{verdict.folder.name}: {len(verdict.files)} files, {size}, {state} ({verdict.source})"
    )
    return not verdict.wrong
