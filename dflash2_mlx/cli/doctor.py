"""`dflash2-mlx doctor`: what this machine is, whether a pair fits it, what to do. Needs neither MLX nor a network."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from dflash2_mlx.checkpoint import check_safetensors, read_json, weight_files
from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError, UsageError
from dflash2_mlx.fit import (
    STORED_BITS,
    TIGHT_SHARE,
    Need,
    Plan,
    TargetShape,
    Verdict,
    drafter_bytes,
    judge,
    memory_need,
    target_shape,
)
from dflash2_mlx.hub import cache_state, find_folder
from dflash2_mlx.machine import Machine, probe
from dflash2_mlx.models.config import DrafterConfig, parse_drafter_config
from dflash2_mlx.pairs import DEMO, FLAGSHIP, known_pair, target_and_drafter
from dflash2_mlx.published import published_drafter, published_target

_CONTEXT = 8192
_THERE = ("bundled", "folder", "in the cache")
_SKIPPED = ("vision_tower.", "vision_adapter.", "vision_projection.", "visual.", "mtp.")  # tensors mlx-lm drops
_GIB, _MIB, _GB = 2**30, 2**20, 10**9
_PARTS = {
    "target": "target weights",
    "drafter": "drafter weights",
    "kv": "keys and values of the context",
    "state": "recurrent state",
    "features": "features for the drafter",
    "draft_kv": "the drafter's keys and values",
    "logits": "logits of a block",
    "prefill": "reading one chunk of the prompt",
}

PairArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PAIR",
        help=f"Alias, folder or repository id of the target. Default: DFLASH2_MODEL, else {FLAGSHIP} where it fits.",
    ),
]
Context = Annotated[
    int | None,
    typer.Option("--context", "-c", help=f"Tokens of prompt and answer together. Default: {_CONTEXT}, or the model's."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


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


def doctor(
    pair: PairArgument = None,
    context: Context = None,
    draft: options.Draft = None,
    draft_bits: options.DraftBits = None,
    no_draft: options.NoDraft = False,
    as_json: Json = False,
) -> None:
    """Examine this machine, and whether a pair fits it. Exit 1 where something makes running impossible."""
    if context is not None and context < 1:
        raise UsageError(f"context is {context}. Give a number of tokens, 1 or more.")
    machine = probe()
    params = LoadParams(pair or DEMO, draft, draft_bits, speculate=not no_draft)
    examined = examine(params, context, machine) if pair else _default(params, context, machine)
    impossible = bool(machine.obstacles or examined.problems)
    out = Out()
    if as_json:
        out.document(_document(machine, examined, ready=not impossible))
    else:
        for line in (*machine_lines(machine), "", *pair_lines(examined, machine)):
            out.document(line)
    raise typer.Exit(int(impossible))


def _default(params: LoadParams, context: int | None, machine: Machine) -> Examined:
    """The pair that is used where none is named: DFLASH2_MODEL, the flagship where it fits a GPU, the bundled one."""
    named = os.environ.get("DFLASH2_MODEL")
    if named or machine.device == "cpu":
        return examine(replace(params, model=named or DEMO), context, machine)
    flagship = examine(replace(params, model=FLAGSHIP), context, machine)
    if not flagship.problems:
        return flagship
    return replace(examine(params, context, machine), notes=flagship.problems)


def examine(params: LoadParams, context: int | None, machine: Machine) -> Examined:
    """The pair of `params` on `machine`. Raises: LoadError for a name that can be no model; UsageError."""
    target, drafter, off = target_and_drafter(params)
    names = {"target": target, **({"drafter": drafter} if drafter else {})}
    states = {part: cache_state(name) for part, name in names.items()}
    problems, todo = [], []
    plan = need = verdict = None
    try:
        shape = _target(target, states["target"])
        config = _drafter(drafter, states["drafter"]) if drafter else None
    except LoadError as error:
        problems.append(str(error))
        shape = config = None
    if shape and (config or not drafter):
        plan = Plan(shape, config, _context(context, shape, target), _draft_bits(params, shape, config))
    if plan and plan.target.weight_bytes:
        need = memory_need(plan)
        verdict = judge(plan, machine.limit_bytes) if machine.limit_bytes else None
    if verdict and verdict.word == "does not fit":
        problems.append(_over(params.model, plan.context if plan else 0, verdict))
    elif any(state not in _THERE for state in states.values()):
        todo.append(_fetch(params.model, machine))
    return Examined(params.model, target, drafter, off, states, plan, need, verdict, tuple(problems), tuple(todo))


def _context(wanted: int | None, target: TargetShape, name: str) -> int:
    if wanted is not None and wanted > target.context_limit:
        raise UsageError(
            f"context {wanted} is more than {name} can hold. Give 1 to {target.context_limit} tokens with --context."
        )
    return wanted or min(_CONTEXT, target.context_limit)


def _over(name: str, context: int, verdict: Verdict) -> str:
    needs = f"{name} needs {verdict.share:.0%} of what this machine gives at {context} tokens of context"
    return f"{needs}; {verdict.largest_context} fit" if verdict.largest_context else f"{needs}, and less does not help"


def _draft_bits(params: LoadParams, target: TargetShape, drafter: DrafterConfig | None) -> int:
    """As the loader chooses: 4 beside a quantised target unless the drafter is quantised already."""
    if drafter is None or drafter.quantization:
        return STORED_BITS
    return params.draft_bits or (4 if target.quantized else STORED_BITS)


def _target(name: str, state: str) -> TargetShape | None:
    """The target's shape, its weights counted in the files where they are there; None where nothing is known."""
    if state not in _THERE:
        config = published_target(name)
        return target_shape(config, name) if config else None
    folder = find_folder(name)
    config = read_json(folder / "config.json")
    size, element = _stored(weight_files(folder))
    return target_shape(config, str(folder / "config.json"), weight_bytes=size, element_bytes=element)


def _stored(files: list[Path]) -> tuple[int, int]:
    """Bytes of the tensors that are loaded, and bytes of one activation."""
    size, element = 0, 2
    for file in files:
        for name, entry in check_safetensors(file).items():
            if any(part in name for part in _SKIPPED) or not isinstance(entry, Mapping):
                continue
            begin, end = entry["data_offsets"]
            size += end - begin
            if entry.get("dtype") == "F32" and name.endswith("layernorm.weight"):
                element = 4
    return size, element


def _drafter(name: str, state: str) -> DrafterConfig | None:
    if state not in _THERE:
        return published_drafter(name)
    folder = find_folder(name)
    weight_files(folder)
    source = folder / "config.json"
    return parse_drafter_config(read_json(source), str(source))


def _fetch(name: str, machine: Machine) -> str:
    """What fetches the pair, and whether the disk has room for it."""
    known = known_pair(name)
    size = known.total_bytes if known else None
    told = f" ({size / _GB:.1f} GB)" if size else ""
    room = ""
    if size and machine.free_bytes is not None and machine.free_bytes < size:
        room = f". The disk of the cache has only {machine.free_bytes / _GB:.1f} GB free: make room, or move HF_HOME"
    return f"fetch the pair{told}: dflash2-mlx pull {name}{room}"


def machine_lines(machine: Machine) -> list[str]:
    """The machine in words."""
    memory = f", {_size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    translated = ", translated by Rosetta" if machine.rosetta else ""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items() if version) or "missing"
    where = "on the GPU through Metal" if machine.device == "gpu" else "on the CPU"
    computes = "cannot be loaded" if machine.mlx_error else f"computes {where}"
    free = f", {machine.free_bytes / _GB:.1f} GB free" if machine.free_bytes is not None else ""
    lines = [
        _line("machine", f"{machine.chip}, {machine.os_name} {machine.os_version}{memory}"),
        _line("python", f"{machine.python_version} ({machine.architecture}{translated})"),
        _line("mlx", f"{versions}; {computes}"),
    ]
    if machine.working_set_bytes and machine.max_buffer_bytes:
        lines.append(
            _line(
                "limits",
                f"Metal recommends at most {_size(machine.working_set_bytes)} in use; "
                f"one buffer holds up to {_size(machine.max_buffer_bytes)}",
            )
        )
    lines.append(_line("cache", f"{machine.cache_folder}{free}"))
    lines += [_line("problem", text) for text in machine.obstacles]
    return lines + [_line("note", text) for text in machine.notes]


def pair_lines(examined: Examined, machine: Machine) -> list[str]:
    """The pair on this machine in words: parts, need, verdict, what to do next."""
    plan = examined.plan
    at = f" at {plan.context} tokens of context" if plan else ""
    lines = [_line("pair", examined.name + at)]
    lines.append(_line("target", f"{examined.target} ({examined.states['target']})"))
    if examined.drafter:
        lines.append(_line("drafter", f"{examined.drafter} ({examined.states['drafter']})"))
    else:
        lines.append(_line("drafter", f"none: {examined.drafting_off}"))
    if plan and examined.need:
        lines += _need_lines(examined.need, plan)
    lines.append(_line("verdict", _verdict(examined, machine)))
    judged = examined.verdict
    lines += [_line("next", text) for text in examined.todo]
    lines += [_line("next", text) for text in (judged.remedies if judged else ())]
    if judged and judged.word == "does not fit":
        lines.append(_line("next", "a smaller pair: `dflash2-mlx models` lists them; demo runs anywhere"))
    if judged and judged.word == "tight":
        lines.append(_line("next", "close other programs before a long answer, or take one of the steps above"))
    return lines + [_line("note", text) for text in (*examined.notes, *_drafter_limit(examined))]


def _need_lines(need: Need, plan: Plan) -> list[str]:
    rows = []
    for part, words in _PARTS.items():
        if part == "drafter" and plan.drafter:
            words += _precisions(plan.drafter, plan.draft_bits)
        if part == "state" and plan.drafter:
            words += ", with the copy kept for rollback"
        if getattr(need, part):
            rows.append((getattr(need, part), words))
    rows.append((need.total, "in all"))
    labels = ["need", *[""] * len(rows)]
    return [_line(label, f"{_size(size):>11}  {words}") for label, (size, words) in zip(labels, rows, strict=False)]


def _precisions(drafter: DrafterConfig, bits: int) -> str:
    """In what precision the drafter is held, and what it would take in the other one."""
    if drafter.quantization:
        return " as stored"
    words = {STORED_BITS: "as stored", 8: "in 8 bits", 4: "in 4 bits"}
    others = [f"{_size(drafter_bytes(drafter, b))} {words[b]}" for b in (STORED_BITS, 4) if b != bits]
    return f" {words[bits]} ({', '.join(others)})"


def _verdict(examined: Examined, machine: Machine) -> str:
    judged, need = examined.verdict, examined.need
    if examined.plan is None and examined.problems:
        return f"unusable: {examined.problems[0]}"
    if need is None:
        return "unknown: its need can be told once it is fetched"
    if judged is None:
        return "cannot be judged: MLX, which tells this machine's limit, cannot be loaded"
    limit = machine.limit_bytes or 0
    giver = "Metal recommends" if machine.device == "gpu" else "this machine has"
    told = f"{judged.word}: {_size(need.total)} of the {_size(limit)} that {giver} ({judged.share:.0%})"
    if judged.word == "tight":
        told += f", above the {TIGHT_SHARE:.0%} that leave the system room"
    if judged.word == "does not fit":
        return told
    return f"{told}. Up to {judged.largest_context} tokens of context fit"


def _drafter_limit(examined: Examined) -> list[str]:
    """A drafter that sees everything was trained up to some length; past it only its guesses get worse."""
    plan, drafter = examined.plan, examined.plan.drafter if examined.plan else None
    trained = drafter.max_position_embeddings if drafter else None
    if plan is None or drafter is None or trained is None or drafter.context_rows is not None:
        return []
    if plan.context <= trained:
        return []
    return [f"the drafter knows {trained} tokens of context: past it drafts may be accepted less, the text stays exact"]


def _document(machine: Machine, examined: Examined, *, ready: bool) -> str:
    need, plan = examined.need, examined.plan
    drafter = plan.drafter if plan else None
    content = {
        "ready": ready,
        "machine": {**asdict(machine), "limit_bytes": machine.limit_bytes},
        "obstacles": machine.obstacles,
        "notes": machine.notes,
        "pair": {
            "name": examined.name,
            "target": examined.target,
            "drafter": examined.drafter,
            "drafting_off": examined.drafting_off,
            "states": examined.states,
            "context": plan.context if plan else None,
            "draft_bits": plan.draft_bits if drafter and plan else None,
            "drafter_bytes": {bits: drafter_bytes(drafter, bits) for bits in (16, 8, 4)} if drafter else None,
            "need": {**asdict(need), "total": need.total} if need else None,
            "verdict": asdict(examined.verdict) if examined.verdict else None,
            "problems": examined.problems,
            "todo": examined.todo,
            "notes": (*examined.notes, *_drafter_limit(examined)),
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=2)


def _line(label: str, text: str) -> str:
    return f"{label:<9} {text}"


def _size(count: int) -> str:
    return f"{count / _GIB:.2f} GiB" if count >= _GIB / 10 else f"{count / _MIB:.1f} MiB"
