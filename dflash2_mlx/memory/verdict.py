"""Whether a machine has room for a named pair, told before any weight is read. Knows configs and file headers, no MLX.

`doctor` and `models` show what is found here; every command that loads a pair asks `check_room` first.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dflash2_mlx.config import STORED_BITS, LoadParams
from dflash2_mlx.errors import LoadError
from dflash2_mlx.memory.machine import Machine, probe
from dflash2_mlx.memory.need import (
    Need,
    Plan,
    Stored,
    TargetShape,
    Verdict,
    binary_size,
    judge,
    memory_need,
    target_shape,
)
from dflash2_mlx.models.config import DrafterConfig, parse_drafter_config
from dflash2_mlx.store.checkpoint import check_safetensors, read_json, weight_files
from dflash2_mlx.store.hub import Repository, cache_state, find_folder, gigabytes, read_name
from dflash2_mlx.store.pairs import known_pair, target_and_drafter
from dflash2_mlx.store.published import published_drafter, published_target

USUAL_CONTEXT = 8192
_SKIP = "DFLASH2_SKIP_FIT"
_THERE = ("bundled", "folder", "in the cache")
_SKIPPED = ("vision_tower.", "vision_adapter.", "vision_projection.", "visual.", "mtp.")  # tensors mlx-lm drops


@dataclass(frozen=True, slots=True)
class Examined:
    """A pair on this machine. problems: what makes it unusable; todo: what to do first; notes: good to know."""

    name: str
    target: str
    drafter: str | None
    drafting_off: str | None
    states: Mapping[str, str]
    plan: Plan | None
    need: Need | None
    verdict: Verdict | None
    problems: tuple[str, ...]
    todo: tuple[str, ...]
    notes: tuple[str, ...] = ()


def check_room(params: LoadParams, context: int | None = None) -> str | None:
    """What to warn of where this machine has little room for the pair at so many tokens of context; None = nothing.

    context: prompt and answer together, None = USUAL_CONTEXT; never more than the target can hold. Where the need or
    the limit is unknown nothing is judged, nor where DFLASH2_SKIP_FIT=1.
    Raises: LoadError where the pair does not fit, with what to do.
    """
    if os.environ.get(_SKIP) == "1":
        return None
    machine = probe()
    examined = examine(params, context, machine)
    verdict = examined.verdict
    if verdict is None or verdict.word == "fits":
        return None
    told = f"{share_of_limit(examined, machine)} at {examined.plan.context if examined.plan else 0} tokens of context"
    steps = "; or ".join(verdict.remedies)
    if verdict.word == "tight":
        return f"{params.model} is tight here: {told}. Close other programs{f', or {steps}' if steps else ''}"
    raise LoadError(
        f"{params.model} does not fit this machine: {told}. What helps: {steps or 'a smaller pair'}; see `dflash2-mlx "
        f"doctor {params.model}`. {_SKIP}=1 loads it all the same, and the system may come to a halt."
    )


def share_of_limit(examined: Examined, machine: Machine) -> str:
    """The need beside the machine's limit, in words."""
    need, verdict, limit = examined.need, examined.verdict, machine.limit_bytes
    assert need and verdict and limit
    giver = "Metal recommends" if machine.device == "gpu" else "this machine has"
    return f"{binary_size(need.total)} of the {binary_size(limit)} that {giver} ({verdict.share:.0%})"


def examine(params: LoadParams, context: int | None, machine: Machine) -> Examined:
    """The pair of `params` on `machine`, at `context` tokens or as many as the target can hold.

    Raises: LoadError for a name that can be no model.
    """
    target, drafter, off = target_and_drafter(params)
    if drafter and params.draft_revision:
        found = read_name(drafter, params.draft_revision)
        drafter = str(found) if isinstance(found, Repository) else drafter
    names = {"target": target, **({"drafter": drafter} if drafter else {})}
    states = {part: cache_state(name) for part, name in names.items()}
    problems, todo = [], []
    plan = need = verdict = None
    try:
        plan = _plan(params, names, states, context or USUAL_CONTEXT)
    except LoadError as error:
        problems.append(str(error))
    if plan and plan.target.weight_bytes:
        need = memory_need(plan)
        verdict = judge(plan, machine.limit_bytes) if machine.limit_bytes else None
    if plan and verdict and verdict.word == "does not fit":
        problems.append(_over(params.model, plan.context, verdict))
    elif any(state not in _THERE for state in states.values()):
        todo.append(_fetch(params.model, machine))
    return Examined(params.model, target, drafter, off, states, plan, need, verdict, tuple(problems), tuple(todo))


def _plan(params: LoadParams, names: Mapping[str, str], states: Mapping[str, str], context: int) -> Plan | None:
    """None where a config is not known. Raises: LoadError for a model whose files are broken."""
    shape = _target(names["target"], states["target"])
    config, stored = _drafter(names["drafter"], states["drafter"]) if "drafter" in names else (None, None)
    if shape is None or ("drafter" in names and config is None):
        return None
    bits = _draft_bits(params, shape, config)
    return Plan(shape, config, min(context, shape.context_limit), bits, stored)


def _over(name: str, context: int, verdict: Verdict) -> str:
    needs = f"{name} needs {verdict.share:.0%} of what this machine gives at {context} tokens of context"
    return f"{needs}; {verdict.largest_context} fit" if verdict.largest_context else f"{needs}, and less does not help"


def _draft_bits(params: LoadParams, target: TargetShape, drafter: DrafterConfig | None) -> int:
    """The loader's bits; a drafter that is quantised already counts as it is stored."""
    if drafter is None or drafter.quantization:
        return STORED_BITS
    return params.bits_of_drafter(target_quantized=target.quantized, drafter_quantized=False)


def _target(name: str, state: str) -> TargetShape | None:
    """The target's shape, its weights counted in the files where they are there; None where nothing is known."""
    if state not in _THERE:
        config = published_target(name)
        return target_shape(config, name) if config else None
    folder = find_folder(name)
    return target_shape(read_json(folder / "config.json"), str(folder / "config.json"), _stored(weight_files(folder)))


def _drafter(name: str, state: str) -> tuple[DrafterConfig | None, Stored | None]:
    """The drafter's config and what its files hold, each None where it is not known."""
    if state not in _THERE:
        return published_drafter(name), None
    folder = find_folder(name)
    source = folder / "config.json"
    return parse_drafter_config(read_json(source), str(source)), _stored(weight_files(folder))


def _stored(files: Sequence[Path]) -> Stored:
    """What of the files is loaded."""
    size, element = 0, 2
    for file in files:
        for name, entry in check_safetensors(file).items():
            if any(part in name for part in _SKIPPED) or not isinstance(entry, Mapping):
                continue
            begin, end = entry["data_offsets"]
            size += end - begin
            if entry.get("dtype") == "F32" and name.endswith("layernorm.weight"):
                element = 4
    return Stored(size, element)


def _fetch(name: str, machine: Machine) -> str:
    """What fetches the pair, and whether the disk has room for it."""
    known = known_pair(name)
    size = known.total_bytes if known else None
    told = f" ({gigabytes(size)})" if size else ""
    room = ""
    if size and machine.free_bytes is not None and machine.free_bytes < size:
        room = f". The disk of the cache has only {gigabytes(machine.free_bytes)} free: make room, or move HF_HOME"
    return f"fetch the pair{told}: dflash2-mlx pull {name}{room}"
