"""`dflash2-mlx models`, and which model answers where none is given. MLX is only asked for the device."""

import os
import platform

from dflash2_mlx.cli.out import Out
from dflash2_mlx.config import LoadParams
from dflash2_mlx.memory.machine import Machine, probe
from dflash2_mlx.memory.verdict import examine
from dflash2_mlx.store.hub import cache_state, cached_bytes, gigabytes
from dflash2_mlx.store.pairs import DEMO, FLAGSHIP, KNOWN_PAIRS, KnownPair, known_pair

_SHORT_COMMIT = 7
_COLUMNS = "{:<32} {:>9}  {:<7}  {}"


def models() -> None:
    """List the known pairs: alias, size, whether they fit this machine and where they are; target and drafter."""
    machine = probe()
    lines = [_COLUMNS.format("pair", "size", "memory", "where")]
    lines += [line for pair in KNOWN_PAIRS for line in pair_lines(pair, machine)]
    Out().document("\n".join(lines))


def pair_lines(pair: KnownPair, machine: Machine) -> list[str]:
    """The pair on three lines."""
    block = f", block size {pair.block_size}" if pair.block_size else ""
    sizes = [cached_bytes(pair.target) or pair.target_bytes, cached_bytes(pair.drafter) or pair.drafter_bytes]
    total = "unknown" if None in sizes else gigabytes(sum(size or 0 for size in sizes))
    return [
        _COLUMNS.format(pair.alias, total, _fit(pair, machine), pair_state(pair)),
        f"    target   {_place(pair.target)}",
        f"    drafter  {_place(pair.drafter)}  {pair.method}{block}",
    ]


def _fit(pair: KnownPair, machine: Machine) -> str:
    """`fits`, `tight` or `no`, at the context that `doctor` counts with; `unknown` until it is fetched."""
    verdict = examine(LoadParams(pair.alias), None, machine).verdict
    if verdict is None:
        return "unknown"
    return "no" if verdict.word == "does not fit" else verdict.word


def pair_state(pair: KnownPair) -> str:
    """Where the pair is, in words."""
    target, drafter = cache_state(pair.target), cache_state(pair.drafter)
    return target if target == drafter else f"target {target}, drafter {drafter}"


def choose_model(model: str | None) -> tuple[str, str | None]:
    """The model to answer with, and what to tell the user about the choice.

    `model` if given, else DFLASH2_MODEL, else the flagship where Metal has the memory for it and the cache has the
    pair, else the bundled demo.
    """
    given = model or os.environ.get("DFLASH2_MODEL")
    if given:
        return given, None
    flagship = known_pair(FLAGSHIP)
    assert flagship is not None
    if not _is_for_this_machine(flagship):
        return DEMO, f"{FLAGSHIP} needs Apple silicon with more memory: the bundled pair {DEMO} answers"
    if pair_state(flagship) != "in the cache":
        return DEMO, f"the bundled pair {DEMO} answers; for {FLAGSHIP}, type: dflash2-mlx pull {FLAGSHIP}"
    return FLAGSHIP, f"no --model is given: {FLAGSHIP} answers"


def has_room(machine: Machine, flagship: KnownPair) -> bool:
    """Whether this is a machine whose Metal has the memory for the flagship."""
    return machine.device == "gpu" and _fit(flagship, machine) in ("fits", "tight")


def _is_for_this_machine(flagship: KnownPair) -> bool:
    """`has_room` here; MLX is asked only on a Mac."""
    return platform.system() == "Darwin" and has_room(probe(), flagship)


def _place(name: str) -> str:
    """The repository with the start of its pinned commit, or that it is not pinned."""
    if name.startswith("package:"):
        return "part of this package"
    repository, _, revision = name.partition("@")
    return f"{repository} ({revision[:_SHORT_COMMIT]})" if revision else f"{repository} (newest)"
