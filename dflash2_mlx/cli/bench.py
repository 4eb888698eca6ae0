"""`dflash2-mlx bench`: run, sweep, load, check, soak, compare. Everything heavy is imported inside the commands."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import typer

from dflash2_mlx.cli import bench_options as options
from dflash2_mlx.cli.inputs import read_block_size
from dflash2_mlx.cli.measured import finish, gathered
from dflash2_mlx.cli.options import Acceptance, BlockSize, Draft, DraftBits, Model
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.ready import chosen_model, get_ready
from dflash2_mlx.config import Acceptance as AcceptanceRule
from dflash2_mlx.config import EngineParams, LoadParams, SamplingParams
from dflash2_mlx.errors import UsageError

if TYPE_CHECKING:
    from dflash2_mlx.bench.check import Finding
    from dflash2_mlx.bench.run import GroupResult
    from dflash2_mlx.bench.workloads import Workload
    from dflash2_mlx.loading.pair import Pair

bench = typer.Typer(
    name="bench",
    help="Measure a pair honestly: beside plain decoding, in the same process, with spreads.",
    no_args_is_help=True,
    add_completion=False,
)
_QUICK_TOKENS, _QUICK_DOCUMENT, _QUICK_REPEATS = 64, 500, 2
_SOAK_CACHE = 64 * 2**20  # bytes of earlier texts: few enough that they come and go
_SWEEP_WORKLOADS = ("short-chat", "long-code", "maths", "chinese")


@bench.command()
def run(
    model: Model = None,
    draft: Draft = None,
    draft_bits: DraftBits = None,
    draft_v1: options.DraftV1 = None,
    block_size: BlockSize = "auto",
    workload: options.WorkloadNames = None,
    dataset: options.DatasetName = None,
    rows: options.Rows = 8,
    thinking: options.Thinking = "off",
    context: options.Contexts = None,
    length: options.Lengths = None,
    exact_length: options.ExactLength = False,
    repeats: options.Repeats = None,
    temperature: options.Temperature = 0.0,
    seed: options.Seed = 1,
    acceptance: Acceptance = "coupled",
    quick: options.Quick = False,
    report: options.ReportFolder = None,
    json: options.Json = False,
) -> None:
    """Time every workload with and without drafting, turn and turn about, and say which workloads gain.

    Tables go to stderr. Where stdout is no terminal, or with --json, its last line is one JSON document, which
    `bench compare` reads.
    """
    contexts, lengths = options.whole_numbers("--context", context), options.whole_numbers("--length", length)
    words = options.thinking_words(thinking)
    widest = read_block_size(block_size)
    EngineParams(block_size=widest, acceptance=cast(AcceptanceRule, acceptance))  # refuses bad values at once
    sampling = SamplingParams(temperature=temperature, seed=seed if temperature > 0 else None)
    workloads = _workloads(workload, dataset, rows, quick=quick)
    if repeats is None:
        repeats = _QUICK_REPEATS if quick else 5
    pair = _load(LoadParams(chosen_model(model), draft, draft_bits))
    from dflash2_mlx.bench.compare import KIND, VERSION
    from dflash2_mlx.bench.energy import find_meter
    from dflash2_mlx.bench.environment import describe
    from dflash2_mlx.bench.methods import Width, judge_of, methods_of, token_counter
    from dflash2_mlx.bench.run import RunPlan, groups_of, run_group
    from dflash2_mlx.bench.run_report import RunDocument, RunSettings, run_report
    from dflash2_mlx.loading.load import with_drafter
    from dflash2_mlx.session.session import block_size_for

    block_size_for(pair, widest)  # refuses one that is too wide before anything is measured
    older = with_drafter(pair, draft_v1, draft_bits) if draft_v1 else None
    methods = methods_of(pair, older, Width(widest, cast(AcceptanceRule, acceptance)))
    _check_context(pair, *(contexts or (found.document_tokens for found in workloads)))
    counter, (meter, energy) = token_counter(pair, "off" if words[0] == "off" else None), find_meter()
    where = describe(pair, older, sampling.seed)
    judge = judge_of(pair, where) if acceptance == "coupled" or temperature == 0 else None
    plan = RunPlan(repeats, sampling, exact_length, count_tokens=counter, meter=meter, judge=judge)
    groups = groups_of(workloads, words, contexts, lengths)
    results, complete = gathered(map(_told, (run_group(group, methods, plan) for group in groups)))
    settings = RunSettings(repeats, temperature, sampling.seed, widest, acceptance, quick, energy)
    document = RunDocument(KIND, VERSION, where, settings, results, complete)
    finish(document, run_report(document), report, json=json)


@bench.command()
def sweep(
    model: Model = None,
    draft: Draft = None,
    draft_bits: DraftBits = None,
    block_sizes: options.BlockSizes = None,
    workload: options.WorkloadNames = None,
    repeats: options.Repeats = None,
    quick: options.Quick = False,
    report: options.ReportFolder = None,
    json: options.Json = False,
) -> None:
    """Try every block size, find the best, and say why: what a row costs, what it brings."""
    sizes = options.whole_numbers("--block-sizes", block_sizes)
    workloads = _workloads(workload or _SWEEP_WORKLOADS, None, 1, quick=quick)
    pair = _load(LoadParams(chosen_model(model), draft, draft_bits))
    from dflash2_mlx.bench.environment import describe
    from dflash2_mlx.bench.methods import PLAIN, Width, method, token_counter
    from dflash2_mlx.bench.run import RunPlan, groups_of
    from dflash2_mlx.bench.sweep import SweepDocument, outcome, sweep_report, take_groups

    assert pair.drafter is not None
    _check_context(pair, *(found.document_tokens for found in workloads))
    rows = _block_sizes(sizes, pair.drafter.block_size)
    drafted = {size: method(pair, f"block {size}", Width(size)) for size in rows}
    repeats = repeats or (_QUICK_REPEATS if quick else 5)
    plan = RunPlan(repeats, SamplingParams(), count_tokens=token_counter(pair, "off"))
    groups = groups_of(workloads, ("off",), (), ())
    plain = method(pair, PLAIN, Width(1))
    found, complete = gathered(take_groups(groups, [plain, *drafted.values()], plan, Out().note))
    names = tuple(group.name for group in groups[: len(found)])
    document = SweepDocument.of(describe(pair), names, repeats, outcome(found, drafted), complete=complete)
    finish(document, sweep_report(document), report, json=json)


@bench.command()
def load(
    base_url: options.BaseUrl = "http://127.0.0.1:8000",
    model: options.ServerModel = None,
    api_key: options.ApiKey = None,
    clients: options.Clients = "1,2,4,8",
    requests: options.Requests = 4,
    max_tokens: options.LoadTokens = 128,
    temperature: options.Temperature = 0.0,
    workload: options.WorkloadNames = None,
    repeat_prompts: options.RepeatPrompts = False,
    report: options.ReportFolder = None,
    json: options.Json = False,
) -> None:
    """More and more clients at once against a server that speaks OpenAI's interface; errors are counted."""
    from dflash2_mlx.bench.chat_client import Endpoint, models_of

    counts = options.client_counts(clients)
    SamplingParams(temperature=temperature)  # refuses bad values at once
    workloads = [found for found in _workloads(workload, None, 1, quick=False) if not found.document_tokens]
    prompts = [turns[0] for found in workloads for turns in found.conversations]
    if not prompts:
        raise UsageError("the workloads given hold only long documents, which are left out here. Give another one.")
    endpoint = Endpoint(base_url, model or models_of(Endpoint(base_url, "", api_key))[0], api_key)
    from dflash2_mlx.bench.environment import describe
    from dflash2_mlx.bench.load import KIND, VERSION, LoadDocument, LoadPlan, load_report, run_load

    plan = LoadPlan(endpoint, prompts, max_tokens, requests, temperature, repeat_prompts)
    levels, complete = gathered(run_load(plan, counts, Out().note))
    document = LoadDocument(KIND, VERSION, describe(None), base_url, endpoint.model, max_tokens, levels, complete)
    finish(document, load_report(document), report, json=json)
    if not any(level.tokens for level in levels):
        raise typer.Exit(1)


@bench.command()
def check(
    model: Model = None,
    draft: Draft = None,
    draft_bits: DraftBits = None,
    block_sizes: options.BlockSizes = None,
    workload: options.WorkloadNames = None,
    max_tokens: options.CheckTokens = 96,
    context: options.CheckContext = 2048,
    seeds: options.Seeds = 3,
    margin: options.Margin = None,
    report: options.ReportFolder = None,
    json: options.Json = False,
) -> None:
    """Hold drafted answers against plain decoding: greedy, seeds, stop, penalties, tools, long prompts.

    Exit 1 on a real difference; one that rounding explains is shown with its margin.
    """
    sizes = options.whole_numbers("--block-sizes", block_sizes)
    workloads = _workloads(workload, None, 1, quick=False)
    pair = _load(LoadParams(chosen_model(model), draft, draft_bits))
    from dflash2_mlx.bench.check import KIND, VERSION, CheckDocument, Checker, CheckPlan, check_report
    from dflash2_mlx.bench.environment import describe
    from dflash2_mlx.bench.methods import PLAIN, Width, judge_of, method, token_counter

    assert pair.drafter is not None
    _check_context(pair, context)
    where = describe(pair)
    judge = judge_of(pair, where, margin)
    rows = _block_sizes(sizes or (2, pair.drafter.block_size), pair.drafter.block_size)
    plan = CheckPlan(
        lambda block: method(pair, PLAIN, Width(block)).open(),
        tuple(sorted(set(rows))),
        judge,
        max_tokens,
        tuple(range(1, seeds + 1)),
        context,
        token_counter(pair, "off"),
    )
    checker = Checker(plan, workloads)
    findings, complete = gathered(_differences_told(checker.findings()))
    tools, long = tuple(checker.tools), checker.long_context
    document = CheckDocument(KIND, VERSION, where, judge.limit, plan.block_sizes, findings, tools, long, complete)
    finish(document, check_report(document), report, json=json)
    if document.faults:
        raise typer.Exit(1)


@bench.command()
def soak(
    model: Model = None,
    draft: Draft = None,
    draft_bits: DraftBits = None,
    minutes: options.Minutes = 10.0,
    seed: options.Seed = 1,
    report: options.ReportFolder = None,
    json: options.Json = False,
) -> None:
    """Answer for a long time, cancelling and restarting at random: memory over time, its slope, and a stable text."""
    workloads = _workloads(None, None, 1, quick=False)
    pair = _load(LoadParams(chosen_model(model), draft, draft_bits))
    from dflash2_mlx.bench.environment import describe
    from dflash2_mlx.bench.methods import token_counter
    from dflash2_mlx.bench.soak import KIND, VERSION, Soak, SoakDocument, SoakPlan, slopes, soak_report
    from dflash2_mlx.memory.machine import memory_in_use
    from dflash2_mlx.session.session import Session

    plan = SoakPlan(
        lambda: Session(pair, cache_bytes=_SOAK_CACHE), minutes * 60, seed, token_counter(pair, "off"), memory_in_use
    )
    s = Soak(plan, workloads)
    _, complete = gathered(s.run(Out().note))
    seconds = minutes * 60 if complete else s.samples[-1].at_s
    counts = (s.answers, s.cancelled, s.restarts, s.tokens, s.text_checks, s.text_changes)
    document = SoakDocument(
        KIND, VERSION, describe(pair, seed=seed), seconds, *counts, tuple(s.samples), *slopes(s.samples), complete
    )
    finish(document, soak_report(document), report, json=json)
    if document.text_changes:
        raise typer.Exit(1)


@bench.command()
def compare(
    before: options.Before,
    after: options.After,
    strict: options.Strict = False,
    report: options.ReportFolder = None,
    json: options.Json = False,
) -> None:
    """Say what changed from one `bench run` to another beyond noise."""
    from dflash2_mlx.bench.compare import compare as compare_runs
    from dflash2_mlx.bench.compare import comparison_report

    found = compare_runs(before, after)
    finish(found, comparison_report(found), report, json=json)
    if strict and found.worse:
        raise typer.Exit(1)


def _load(load: LoadParams) -> "Pair":
    """The pair, where there is room for it. Raises: LoadError; UsageError for a pair without a drafter."""
    opened = get_ready(load)
    from dflash2_mlx.loading.load import load_opened

    pair = load_opened(opened)
    if pair.drafter is None:
        raise UsageError(f"there is nothing to compare: {pair.speculation_off}. Give --draft.")
    return pair


def _told(result: "GroupResult") -> "GroupResult":
    """The result, after a line about it."""
    ratios = [(ratio, "x the answer") for ratio in result.whole_speedup.values()]
    ratios += [(ratio, "x decoding") for ratio in result.speedup.values()]
    found = ", ".join(f"{ratio.median:.2f}{words}" for ratio, words in ratios if ratio)
    Out().note(f"{result.name:<40} {found}")
    return result


def _differences_told(findings: "Iterator[Finding]") -> "Iterator[Finding]":
    """The findings, each difference after a line about it."""
    for finding in findings:
        if finding.kind != "same":
            Out().note(f"{finding.kind}: {finding.check}, {finding.prompt}, {finding.method}, {finding.why}")
        yield finding


def _check_context(pair: "Pair", *tokens: int) -> None:
    """Refuse prompts that leave no room for an answer, before anything is measured. Raises: UsageError."""
    longest, limit = max(tokens), pair.target.context_limit
    if longest >= limit:
        raise UsageError(
            f"{longest} prompt tokens are more than the {limit} tokens of this model's context hold beside an answer. "
            "Give a smaller --context, or workloads of shorter prompts (--workload)."
        )


def _block_sizes(sizes: Sequence[int], trained: int) -> tuple[int, ...]:
    """The block sizes to try, plain decoding's 1 left out because it is always there. Raises: UsageError."""
    for size in sizes:
        if size > trained:
            raise UsageError(f"block size {size} is above the {trained} rows that this drafter was trained with.")
    if sizes == (1,):
        raise UsageError("--block-sizes 1 is plain decoding, which is always measured. Give wider ones.")
    return tuple(size for size in sizes if size > 1) or tuple(range(2, trained + 1))


def _workloads(names: Sequence[str] | None, dataset: str | None, rows: int, *, quick: bool) -> "tuple[Workload, ...]":
    """The project's workloads, or the data set's rows."""
    from dflash2_mlx.bench.datasets import fetch_workload
    from dflash2_mlx.bench.workloads import bundled_workloads, chosen, shortened

    if dataset and names:
        raise UsageError("--dataset excludes --workload. Drop one of them.")
    found = (fetch_workload(dataset, rows),) if dataset else chosen(bundled_workloads(), names or ())
    if not quick:
        return found
    return tuple(shortened(w, max_tokens=_QUICK_TOKENS, document_tokens=_QUICK_DOCUMENT) for w in found)
