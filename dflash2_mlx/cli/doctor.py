"""`dflash2-mlx doctor`: what this machine is, whether a pair fits it, what to do. Needs neither MLX nor a network."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace

import typer

from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.config import STORED_BITS, LoadParams
from dflash2_mlx.errors import UsageError
from dflash2_mlx.memory.machine import Machine, probe
from dflash2_mlx.memory.need import TIGHT_SHARE, Need, Plan, binary_size
from dflash2_mlx.memory.verdict import Examined, examine, examine_default, share_of_limit
from dflash2_mlx.store.hub import gigabytes
from dflash2_mlx.store.opening import OpenedModel, open_pair
from dflash2_mlx.store.pairs import DEMO

_REDECODING = ("M1", "M2")
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


def doctor(
    pair: options.ExaminedPair = None,
    context: options.Context = None,
    draft: options.Draft = None,
    draft_bits: options.DraftBits = None,
    no_draft: options.NoDraft = False,
    as_json: options.JsonDocument = False,
) -> None:
    """Examine this machine, and whether a pair fits it. Exit 1 where something makes running impossible.

    Commands that load a pair refuse what does not fit, unless DFLASH2_SKIP_FIT=1.
    """
    if context is not None and context < 1:
        raise UsageError(f"context is {context}. Give a number of tokens, 1 or more.")
    machine = probe()
    params = LoadParams(DEMO, draft, draft_bits, speculate=not no_draft)
    named = pair or os.environ.get("DFLASH2_MODEL")
    if named:
        examined = examine(open_pair(replace(params, model=named)), context, machine)
    else:
        examined = examine_default(params, context, machine)
    limit = examined.plan.target.context_limit if examined.plan else None
    if context is not None and limit is not None and context > limit:
        raise UsageError(
            f"context {context} is more than {examined.pair.target.name} can hold. Give 1 to {limit} with --context."
        )
    impossible = bool(machine.obstacles or examined.problems)
    out = Out()
    if as_json:
        out.document(_document(machine, examined, ready=not impossible))
    else:
        for line in (*machine_lines(machine), "", *pair_lines(examined, machine)):
            out.document(line)
    raise typer.Exit(int(impossible))


def machine_lines(machine: Machine) -> list[str]:
    """The machine in words."""
    memory = f", {binary_size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    translated = ", translated by Rosetta" if machine.rosetta else ""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items() if version) or "missing"
    where = "on the GPU through Metal" if machine.device == "gpu" else "on the CPU"
    computes = "cannot be loaded" if machine.mlx_error else f"computes {where}"
    free = f", {gigabytes(machine.free_bytes)} free" if machine.free_bytes is not None else ""
    lines = [
        _line("machine", f"{machine.chip}, {machine.os_name} {machine.os_version}{memory}"),
        _line("python", f"{machine.python_version} ({machine.architecture}{translated})"),
        _line("mlx", f"{versions}; {computes}"),
    ]
    if machine.working_set_bytes and machine.max_buffer_bytes:
        lines.append(
            _line(
                "limits",
                f"Metal recommends at most {binary_size(machine.working_set_bytes)} in use; "
                f"one buffer holds up to {binary_size(machine.max_buffer_bytes)}",
            )
        )
    lines.append(_line("cache", f"{machine.cache_folder}{free}"))
    lines += [_line("problem", text) for text in machine.obstacles]
    return lines + [_line("note", text) for text in machine.notes]


def pair_lines(examined: Examined, machine: Machine) -> list[str]:
    """The pair on this machine in words: parts, need, verdict, what to do next."""
    plan = examined.plan
    at = f" at {plan.context} tokens of context" if plan else ""
    opened = examined.pair
    lines = [_line("pair", opened.params.model + at), _line("target", _placed(opened.target))]
    lines.append(_line("drafter", _placed(opened.drafter) if opened.drafter else f"none: {opened.drafting_off}"))
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
    return lines + [_line("note", text) for text in _notes(examined, machine)]


def _placed(model: OpenedModel) -> str:
    """Where the model is, with the commit that a name without revision means now."""
    commit = None if "@" in model.name else model.commit
    return f"{model.name} ({model.state}, commit {commit})" if commit else f"{model.name} ({model.state})"


def _need_lines(need: Need, plan: Plan) -> list[str]:
    rows = []
    for part, words in _PARTS.items():
        if part == "drafter" and plan.drafter:
            words += _precisions(plan)
        if part == "state" and plan.drafter:
            words += ", with the copy kept for rollback"
        if getattr(need, part):
            rows.append((getattr(need, part), words))
    rows.append((need.total, "in all"))
    labels = ["need", *[""] * len(rows)]
    return [
        _line(label, f"{binary_size(size):>11}  {words}") for label, (size, words) in zip(labels, rows, strict=False)
    ]


def _precisions(plan: Plan) -> str:
    """In what precision the drafter is held, and what it would take in the other one."""
    if plan.drafter is None or plan.drafter.quantization:
        return " as stored"
    words = {STORED_BITS: "as stored", 8: "in 8 bits", 4: "in 4 bits"}
    rest = [bits for bits in (STORED_BITS, 4) if bits != plan.draft_bits]
    others = [f"{binary_size(plan.drafter_bytes(bits))} {words[bits]}" for bits in rest]
    return f" {words[plan.draft_bits]} ({', '.join(others)})"


def _verdict(examined: Examined, machine: Machine) -> str:
    judged = examined.verdict
    if examined.plan is None and examined.problems:
        return f"unusable: {examined.problems[0]}"
    if examined.need is None:
        return "unknown: its need can be told once it is fetched"
    if judged is None:
        return "cannot be judged: MLX, which tells this machine's limit, cannot be loaded"
    told = f"{judged.word}: {share_of_limit(examined, machine)}"
    if judged.word == "tight":
        told += f", above the {TIGHT_SHARE:.0%} that leave the system room"
    if judged.word == "does not fit":
        return told
    return f"{told}. Up to {judged.largest_context} tokens of context fit"


def _notes(examined: Examined, machine: Machine) -> list[str]:
    """What is good to know about the pair."""
    plan, drafter, found = examined.plan, examined.pair.drafter, list(examined.notes)
    trained = drafter.drafter.max_position_embeddings if drafter and drafter.drafter else None
    if plan and plan.drafter and trained and plan.drafter.context_rows is None and plan.context > trained:
        found.append(f"the drafter knows {trained} tokens of context: past it fewer drafts hold, the text stays exact")
    if plan and plan.target.quantized and machine.family in _REDECODING and not _is_mxfp4(examined.pair.target):
        found.append(
            f"{machine.family} decodes affine weights anew for every row of a block: an mxfp4 conversion of the target "
            "drafts faster there"
        )
    for model in examined.pair.models:
        if model.is_there and not model.fault and not model.manifest and model.state != "bundled":
            record = "--record " if model.state == "folder" else ""
            found.append(f"no hashes of {model.name} are noted here: dflash2-mlx verify {record}{model.typed}")
    return found


def _is_mxfp4(target: OpenedModel) -> bool:
    settings = target.config.get("quantization") or target.config.get("quantization_config")
    return isinstance(settings, Mapping) and "mxfp4" in (settings.get("mode"), settings.get("quant_method"))


def _document(machine: Machine, examined: Examined, *, ready: bool) -> str:
    need, plan, opened = examined.need, examined.plan, examined.pair
    drafter = plan.drafter if plan else None
    content = {
        "ready": ready,
        "machine": {**asdict(machine), "limit_bytes": machine.limit_bytes},
        "obstacles": machine.obstacles,
        "notes": machine.notes,
        "pair": {
            "name": opened.params.model,
            "target": opened.target.name,
            "drafter": opened.drafter.name if opened.drafter else None,
            "drafting_off": opened.drafting_off,
            "states": {part: model.state for part, model in zip(("target", "drafter"), opened.models, strict=False)},
            "commits": {model.name: model.commit for model in opened.models},
            "context": plan.context if plan else None,
            "draft_bits": plan.draft_bits if drafter and plan else None,
            "drafter_bytes": {bits: plan.drafter_bytes(bits) for bits in (16, 8, 4)} if drafter and plan else None,
            "need": {**asdict(need), "total": need.total} if need else None,
            "verdict": asdict(examined.verdict) if examined.verdict else None,
            "problems": examined.problems,
            "todo": examined.todo,
            "notes": _notes(examined, machine),
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=2)


def _line(label: str, text: str) -> str:
    return f"{label:<9} {text}"
