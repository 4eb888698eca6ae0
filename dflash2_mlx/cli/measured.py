"""What a measurement leaves: what came before Ctrl-C counts, tables go to stderr, JSON to programs. No MLX."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from dflash2_mlx.cli.out import Out

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from dflash2_mlx.bench.report import Report

INTERRUPTED = 130
_PART = "Interrupted: here is what was measured before that."
Found = TypeVar("Found")


def gathered(found: Iterable[Found]) -> tuple[tuple[Found, ...], bool]:
    """All that `found` brings and True, or what it brought before Ctrl-C and False.

    Raises: KeyboardInterrupt where that is nothing.
    """
    kept: list[Found] = []
    try:
        kept.extend(found)
    except KeyboardInterrupt:
        if not kept:
            raise
        return tuple(kept), False
    return tuple(kept), True


def finish(document: "DataclassInstance", report: "Report", folder: Path | None, *, json: bool) -> None:
    """Tables to stderr, then files to `folder`, which may fail.

    The document is the last line of stdout, but on a terminal, which it would push the result out of, only if `json`.

    Raises: typer.Exit 130 after a document that is not `complete`; OSError.
    """
    from dflash2_mlx.bench.terminal import show
    from dflash2_mlx.bench.writers import write_report

    out, text = Out(), dumps(asdict(document), ensure_ascii=False)
    complete = getattr(document, "complete", True)
    if not complete:
        report = replace(report, verdict=(_PART, *report.verdict))
    show(report)
    if json or not sys.stdout.isatty():
        out.document(text)
    if folder:
        for line in write_report(report, text, folder):
            out.note(f"dflash2-mlx: {line}")
    if not complete:
        raise typer.Exit(INTERRUPTED)
