"""`dflash2-mlx models`, and which model answers where none is given. MLX is only asked for the device."""

import json
import os

from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.config import LoadParams
from dflash2_mlx.memory.machine import Machine, probe
from dflash2_mlx.memory.verdict import Examined, examine, examine_default
from dflash2_mlx.store.hub import gigabytes
from dflash2_mlx.store.opening import OpenedPair, open_pair
from dflash2_mlx.store.pairs import DEMO, FLAGSHIP, KNOWN_PAIRS, KnownPair
from dflash2_mlx.store.saved import saved_drafters

_SHORT_COMMIT = 7
_COLUMNS = "{:<32} {:>8}  {:<6}  {}"


def models(as_json: options.JsonDocument = False) -> None:
    """List the known pairs: alias, size, whether they fit this machine and where they are; target and drafter."""
    machine, out, saved = probe(), Out(), saved_drafters()
    if as_json:
        pairs = [_described(pair, _examined(pair, machine)) for pair in KNOWN_PAIRS]
        out.document(json.dumps({"pairs": pairs}, ensure_ascii=False, indent=2))
        return
    lines = [_COLUMNS.format("pair", "size", "memory", "where")]
    lines += [line for pair in KNOWN_PAIRS for line in pair_lines(pair, machine)]
    if saved:
        size = gigabytes(sum(copy.nbytes for copy in saved))
        lines.append(f"quantised drafters that are kept: {len(saved)}, {size}; `dflash2-mlx cache` lists them")
    out.document("\n".join(lines))


def pair_lines(pair: KnownPair, machine: Machine) -> list[str]:
    """The pair on three lines of at most 80 characters. What is not known is left out."""
    examined = _examined(pair, machine)
    block = f", block {pair.block_size}" if pair.block_size else ""
    size = _size(pair, examined.pair)
    line = _COLUMNS.format(pair.alias, gigabytes(size) if size else "", _fit(examined), pair_state(examined.pair))
    return [line, f"    target   {_place(pair.target)}", f"    drafter  {_place(pair.drafter)}  {pair.method}{block}"]


def _described(pair: KnownPair, examined: Examined) -> dict[str, object]:
    verdict, opened = examined.verdict, examined.pair
    names = ("target", "drafter")
    return {
        "alias": pair.alias,
        "target": pair.target,
        "drafter": pair.drafter,
        "method": pair.method,
        "block_size": pair.block_size,
        "bytes": _size(pair, opened),
        "states": {part: model.state for part, model in zip(names, opened.models, strict=True)},
        "commits": {part: model.commit for part, model in zip(names, opened.models, strict=True)},
        "verdict": verdict.word if verdict else None,
        "share": verdict.share if verdict else None,
        "problems": examined.problems,
    }


def _examined(pair: KnownPair, machine: Machine) -> Examined:
    """The pair at the context that `doctor` counts with."""
    return examine(open_pair(LoadParams(pair.alias)), None, machine)


def _size(pair: KnownPair, opened: OpenedPair) -> int | None:
    """Bytes of both models' files, as they lie here or are published."""
    published = (pair.target_bytes, pair.drafter_bytes)
    sizes = [model.nbytes or size for model, size in zip(opened.models, published, strict=True)]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _fit(examined: Examined) -> str:
    """`fits`, `tight` or `no`; nothing where it cannot be told."""
    word = examined.verdict.word if examined.verdict else ""
    return "no" if word == "does not fit" else word


def pair_state(opened: OpenedPair) -> str:
    """Where the pair is, in words; of a part of a pair only what is amiss."""
    if any(model.is_there and model.fault for model in opened.models):
        return "unusable, see doctor"
    states = [model.state for model in opened.models]
    if len(set(states)) == 1:
        return states[0]
    parts = zip(("target", "drafter"), opened.models, strict=True)
    return ", ".join(f"{part} {model.state}" for part, model in parts if not model.is_there) or ", ".join(states)


def choose_model(model: str | None) -> tuple[str, str | None]:
    """The model to answer with, and what to tell the user about the choice.

    `model` if given, else DFLASH2_MODEL, else the flagship where Metal has the memory for it and the cache has the
    pair, else the bundled demo.
    """
    given = model or os.environ.get("DFLASH2_MODEL")
    if given:
        return given, None
    examined = examine_default(LoadParams(DEMO), None, probe())
    if examined.pair.params.model == DEMO:
        return DEMO, f"{examined.notes[0]}: the bundled pair {DEMO} answers"
    if examined.pair.missing:
        return DEMO, f"the bundled pair {DEMO} answers; for {FLAGSHIP}, type: {examined.pair.fetch}"
    return FLAGSHIP, f"no --model is given: {FLAGSHIP} answers"


def _place(name: str) -> str:
    """The repository with the start of its pinned commit, or that it is not pinned."""
    if name.startswith("package:"):
        return "part of this package"
    repository, _, revision = name.partition("@")
    return f"{repository} ({revision[:_SHORT_COMMIT]})" if revision else f"{repository} (newest)"
