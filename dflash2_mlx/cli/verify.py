"""`dflash2-mlx verify`: a pair's files against their hashes. huggingface_hub is imported when needed."""

from pathlib import Path

from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.ready import chosen_model
from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import WeightsError, printable
from dflash2_mlx.store.hub import gigabytes
from dflash2_mlx.store.opening import OpenedModel, open_model
from dflash2_mlx.store.pairs import target_and_drafter


def verify(pair: options.VerifiedPair = None, record: options.Record = False) -> None:
    """Check the sha256 of a pair's files: against the Hub, offline against what the pull stored.

    A folder has no published hashes: --record notes those of its files as they are, and later runs compare with them.

    Every wrong file is a line on stdout; exit 1 if there is any.
    """
    target, drafter, _ = target_and_drafter(LoadParams(chosen_model(pair)))
    out, wrong = Out(), list[OpenedModel]()
    for name in (target, drafter):
        model = open_model(name) if name else None
        if model and not _is_right(model, out, record=record):
            wrong.append(model)
    if wrong:
        again = "; ".join(model.fetch or f"put the right files into {model.folder}" for model in wrong)
        names = ", ".join(model.name for model in wrong)
        raise WeightsError(f"{names}: not as published or recorded. Fetch the wrong files again: {again}")


def _is_right(model: OpenedModel, out: Out, *, record: bool) -> bool:
    """Whether every file is right; the wrong ones are printed."""
    from dflash2_mlx.store.verifying import record as note_hashes
    from dflash2_mlx.store.verifying import verify as compare_with_source

    if isinstance(model.place, Path) and not record and not model.manifest:
        if model.fault:
            raise model.fault
        advice = "" if model.state == "bundled" else f": dflash2-mlx verify --record {model.typed}"
        out.document(f"{model.folder}: its weights are whole ({len(model.weights)}); no hashes are recorded{advice}")
        return True
    out.note(f"dflash2-mlx: hashing {model.name}")
    checked = note_hashes(model) if record else compare_with_source(model)
    for name, why in checked.wrong.items():
        out.document(printable(f"{checked.folder / name}: {why}"))
    size = gigabytes(sum(file.size or 0 for file in checked.files.values()))
    state = f"{len(checked.wrong)} wrong" if checked.wrong else "all right"
    what = f"{model.place.name}@{model.commit}" if not isinstance(model.place, Path) else str(model.folder)
    out.document(f"{what}: {len(checked.files)} files, {size}, {state} ({checked.source})")
    if model.fault and not checked.wrong and not (model.manifest and model.manifest.damaged):
        raise model.fault  # as it was published, and still no model
    return not checked.wrong
