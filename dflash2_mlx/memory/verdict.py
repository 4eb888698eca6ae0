"""Whether a machine has the memory for an opened pair, told before any weight is read. Knows no MLX.

`doctor`, `models` and the choice of the default show what is found here; loading asks `check_memory` first.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dflash2_mlx.config import STORED_BITS, LoadParams
from dflash2_mlx.errors import LoadError
from dflash2_mlx.memory.machine import Machine, probe
from dflash2_mlx.memory.need import Need, Plan, Stored, Verdict, binary_size, judge, memory_need, target_shape
from dflash2_mlx.store.checkpoint import WeightFile
from dflash2_mlx.store.hub import gigabytes
from dflash2_mlx.store.opening import OpenedPair, open_pair
from dflash2_mlx.store.pairs import DEMO, FLAGSHIP

USUAL_CONTEXT = 8192
_LARGE = 2**30  # bytes of weights that a CPU takes a second and more to go through for a token
_SKIP = "DFLASH2_SKIP_FIT"
_SKIPPED = ("vision_tower.", "vision_adapter.", "vision_projection.", "visual.", "mtp.")  # tensors mlx-lm drops


@dataclass(frozen=True, slots=True)
class Examined:
    """A pair on this machine. problems: what makes it unusable; todo: what to do first; notes: good to know."""

    pair: OpenedPair
    plan: Plan | None
    need: Need | None
    verdict: Verdict | None
    problems: tuple[str, ...]
    todo: tuple[str, ...]
    notes: tuple[str, ...] = ()


def check_memory(pair: OpenedPair, context: int | None = None) -> str | None:
    """What to warn of where this machine has little memory for the pair at so many tokens of context; None = nothing.

    context: prompt and answer together, None = USUAL_CONTEXT; never more than the target can hold. Where the need or
    the limit is unknown nothing is judged, nor where DFLASH2_SKIP_FIT=1.
    Raises: LoadError where the pair does not fit, with what to do.
    """
    if os.environ.get(_SKIP) == "1":
        return None
    machine, name = probe(), pair.params.model
    examined = examine(pair, context, machine)
    verdict = examined.verdict
    if verdict is None or verdict.word == "fits":
        return None
    told = f"{share_of_limit(examined, machine)} at {examined.plan.context if examined.plan else 0} tokens of context"
    steps = "; or ".join(verdict.remedies)
    if verdict.word == "tight":
        return f"{name} is tight here: {told}. Close other programs{f', or {steps}' if steps else ''}"
    raise LoadError(
        f"{name} does not fit this machine: {told}. What helps: {steps or 'a smaller pair'}; see `dflash2-mlx "
        f"doctor {name}`. {_SKIP}=1 loads it all the same, and the system may come to a halt."
    )


def share_of_limit(examined: Examined, machine: Machine) -> str:
    """The need beside the machine's limit, in words."""
    need, verdict, limit = examined.need, examined.verdict, machine.limit_bytes
    assert need and verdict and limit
    giver = "Metal recommends" if machine.device == "gpu" else "this machine has"
    return f"{binary_size(need.total)} of the {binary_size(limit)} that {giver} ({verdict.share:.0%})"


def why_not_default(examined: Examined, machine: Machine) -> str | None:
    """Why this pair, made for a Mac's GPU, is not what answers here unasked; None where it may be."""
    name, verdict = examined.pair.params.model, examined.verdict
    if machine.device == "cpu":
        return _slow(name)
    if verdict is None or examined.problems:
        return examined.problems[0] if examined.problems else f"whether {name} fits cannot be told"
    return None


def examine_default(params: LoadParams, context: int | None, machine: Machine) -> Examined:
    """What this machine is for where no pair is named: the flagship, else the bundled pair with the reason noted."""
    flagship = examine(open_pair(replace(params, model=FLAGSHIP)), context, machine)
    why = why_not_default(flagship, machine)
    if why is None:
        return flagship
    bundled = examine(open_pair(replace(params, model=DEMO)), context, machine)
    return replace(bundled, notes=(*bundled.notes, why))


def examine(pair: OpenedPair, context: int | None, machine: Machine) -> Examined:
    """The pair on `machine`, at `context` tokens or as many as the target can hold."""
    problems = [str(model.fault) for model in pair.models if model.is_there and model.fault]
    plan = need = verdict = None
    try:
        plan = None if problems else _plan(pair, context or USUAL_CONTEXT)
    except LoadError as error:
        problems.append(str(error))
    if plan and plan.target.weight_bytes:
        need = memory_need(plan)
        verdict = judge(plan, machine.limit_bytes) if machine.limit_bytes else None
    todo: tuple[str, ...] = ()
    if plan and verdict and verdict.word == "does not fit":
        problems.append(_over(pair.params.model, plan.context, verdict))
    elif pair.missing:
        todo = _fetch(pair, machine)
    large = machine.device == "cpu" and need is not None and need.target > _LARGE
    notes = (_slow(pair.params.model),) if large else ()
    return Examined(pair, plan, need, verdict, tuple(problems), todo, notes)


def _slow(name: str) -> str:
    return f"MLX computes on the CPU here, which is slow for {name}"


def _plan(pair: OpenedPair, context: int) -> Plan | None:
    """None where a config is not known. Raises: LoadError for a target's config that lacks a size."""
    target, drafter = pair.target, pair.drafter
    if not target.config or (drafter and drafter.drafter is None):
        return None
    source = str(target.folder / "config.json") if target.is_there else target.name
    shape = target_shape(target.config, source, _stored(target.weights) if target.is_there else None)
    config, bits = drafter.drafter if drafter else None, STORED_BITS
    if config and not config.quantization:  # one that is quantised already counts as it is stored
        bits = pair.params.bits_of_drafter(target_quantized=shape.quantized, drafter_quantized=False)
    stored = _stored(drafter.weights) if drafter and drafter.is_there else None
    return Plan(shape, config, min(context, shape.context_limit), bits, stored)


def _over(name: str, context: int, verdict: Verdict) -> str:
    needs = f"{name} needs {verdict.share:.0%} of what this machine gives at {context} tokens of context"
    return f"{needs}; {verdict.largest_context} fit" if verdict.largest_context else f"{needs}, and less does not help"


def _stored(files: Sequence[WeightFile]) -> Stored:
    """What of the files is loaded."""
    size, element = 0, 2
    for name, tensor in ((name, tensor) for file in files for name, tensor in file.tensors.items()):
        if not any(part in name for part in _SKIPPED):
            size += tensor.nbytes
            element = 4 if tensor.dtype == "F32" and name.endswith("layernorm.weight") else element
    return Stored(size, element)


def _fetch(pair: OpenedPair, machine: Machine) -> tuple[str, ...]:
    """What fetches what is missing, and whether the disk has room for it."""
    names = [model.name for model in pair.missing]
    whole = len(names) == len(pair.models)
    size = pair.known.total_bytes if pair.known and whole and len(names) == 2 else None
    what = "the pair" if whole else names[0]
    told, room = f" ({gigabytes(size)})" if size else "", ""
    if size and machine.free_bytes is not None and machine.free_bytes < size:
        room = f". The disk of the cache has only {gigabytes(machine.free_bytes)} free: make room, or move HF_HOME"
    return (f"fetch {what}{told}: {pair.fetch}{room}",)
