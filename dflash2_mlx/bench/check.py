"""`bench check`: is the drafted text the target's own? Greedy, seeded, stopped, penalised, with tools, long prompts.

Every drafted answer is held against plain decoding of the same target. Where two texts part, the lead of plain
decoding's token at the first difference tells rounding (small) from a fault (large). Knows sessions by protocol.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dflash2_mlx.bench.answers import Answering, Measured, measure
from dflash2_mlx.bench.environment import Environment
from dflash2_mlx.bench.facts import about, facts
from dflash2_mlx.bench.judge import Judge
from dflash2_mlx.bench.report import Cell, Report, Section, Table
from dflash2_mlx.bench.schema import call_problem
from dflash2_mlx.bench.workloads import Workload, with_document
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.session.session import Request

KIND, VERSION = "dflash2-mlx bench check", 1
_PENALTIES = (
    ("repetition 1.3", SamplingParams(repetition_penalty=1.3)),
    ("presence 1.5, frequency 0.5", SamplingParams(presence_penalty=1.5, frequency_penalty=0.5)),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One drafted answer held against plain decoding. kind: `same`, `rounding` or `fault`; why: in words.

    at: the first token that differs; margin: plain decoding's lead of its token over the other one there (logits).
    """

    check: str
    prompt: str
    method: str
    kind: str
    tokens: int
    at: int | None = None
    margin: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ToolRates:
    """Share of answers whose tool calls fit their schema, plain against drafted, at one temperature."""

    temperature: float
    answers: int
    plain_calls: int
    plain_valid: int
    drafted_calls: int
    drafted_valid: int


@dataclass(frozen=True, slots=True)
class CheckDocument:
    """Everything of one check."""

    kind: str
    version: int
    environment: Environment
    margin: float
    block_sizes: tuple[int, ...]
    findings: tuple[Finding, ...]
    tools: tuple[ToolRates, ...]
    long_context: Mapping[str, float]
    complete: bool = True

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are real differences."""
        return tuple(finding for finding in self.findings if finding.kind == "fault")


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """How far to check. open: a fresh session answering with that block size."""

    open: Callable[[int], Answering]
    block_sizes: tuple[int, ...]
    judge: Judge
    max_tokens: int
    seeds: tuple[int, ...]
    context: int
    count_tokens: Callable[[str], int]


class Checker:
    """Runs the checks of one plan; findings come as they are made."""

    def __init__(self, plan: CheckPlan, workloads: Sequence[Workload]) -> None:
        self._plan, self._workloads = plan, workloads
        self.tools: list[ToolRates] = []
        self.long_context: dict[str, float] = {}

    def findings(self) -> Iterator[Finding]:
        """All checks in turn."""
        yield from self._each("greedy", SamplingParams())
        yield from self._seeds()
        yield from self._stops()
        for name, sampling in _PENALTIES:
            yield from self._each(name, sampling)
        yield from self._tools()
        yield from self._long()

    def _each(self, check: str, sampling: SamplingParams) -> Iterator[Finding]:
        """The first prompt of every workload without tools, at every block size."""
        for workload in self._workloads:
            if not workload.tools:
                yield from self._compare(check, workload, self._request(workload, sampling))

    def _request(self, workload: Workload, sampling: SamplingParams, prompt: int = 0) -> Request:
        message = workload.conversations[prompt][0]
        if workload.document_tokens:
            message = with_document(message, min(workload.document_tokens, self._plan.context), self._plan.count_tokens)
        return Request(
            [{"role": "user", "content": message}],
            sampling,
            EngineParams(max_tokens=min(self._plan.max_tokens, workload.max_tokens)),
            TextParams(reasoning="off", tools=workload.tools),
        )

    def _answer(self, request: Request, block_size: int) -> Measured:
        return measure(self._plan.open(block_size), request)

    def _compare(self, check: str, workload: Workload, request: Request) -> Iterator[Finding]:
        plain = self._answer(request, 1)
        for block_size in self._plan.block_sizes:
            yield self._judge(check, workload, request, (plain, self._answer(request, block_size), block_size))

    def _judge(
        self, check: str, workload: Workload, request: Request, answers: tuple[Measured, Measured, int]
    ) -> Finding:
        """Whether the second answer, drafted at that block size, is the first one, plain decoding's."""
        plain, drafted, block_size = answers
        found = self._plan.judge.of(request, plain, drafted)
        method = f"block {block_size}"
        return Finding(check, workload.name, method, found.kind, len(plain.tokens), found.at, found.margin, found.why)

    def _seeds(self) -> Iterator[Finding]:
        """Sampled at temperature 1: a seed gives plain decoding's text at every block size, and the same one twice."""
        workload = self._workloads[0]
        for seed in self._plan.seeds:
            request = self._request(workload, SamplingParams(temperature=1.0, top_p=0.95, seed=seed))
            yield from self._compare(f"seed {seed}", workload, request)
            block = self._plan.block_sizes[-1]
            twice = self._answer(request, block), self._answer(request, block), block
            yield self._judge(f"seed {seed}, twice", workload, request, twice)

    def _stops(self) -> Iterator[Finding]:
        """A stop string out of the middle of plain decoding's text ends every answer before it."""
        for workload in self._workloads[:3]:
            request = self._request(workload, SamplingParams())
            text = self._answer(request, 1).text
            stop = text[len(text) // 2 : len(text) // 2 + 4]
            if not stop.strip():
                continue
            stopped = replace(request, text=replace(request.text, stop=(stop,)))
            yield from self._compare(f"stop {stop!r}", workload, stopped)
            for block_size in self._plan.block_sizes:
                answer = self._answer(stopped, block_size)
                if answer.text != text.split(stop)[0] or answer.reason != "stop":
                    why = f"stop string: ended by {answer.reason} with {answer.text[-20:]!r}"
                    yield Finding("stop", workload.name, f"block {block_size}", "fault", len(answer.tokens), why=why)

    def _tools(self) -> Iterator[Finding]:
        """Tool calls: the same text, and the same share of calls that fit their schema, greedy and at temperature 1."""
        for workload in (workload for workload in self._workloads if workload.tools):
            for temperature, seeds in ((0.0, (0,)), (1.0, self._plan.seeds)):
                counts = [0] * 5
                for prompt in range(len(workload.conversations)):
                    for seed in seeds:
                        sampling = SamplingParams(temperature=temperature, seed=seed if temperature else None)
                        request = self._request(workload, sampling, prompt)
                        block = self._plan.block_sizes[-1]
                        plain, drafted = self._answer(request, 1), self._answer(request, block)
                        yield self._judge(
                            f"tools, temperature {temperature:g}", workload, request, (plain, drafted, block)
                        )
                        found = (1, *valid_calls(plain, workload), *valid_calls(drafted, workload))
                        counts = [a + b for a, b in zip(counts, found, strict=True)]
                self.tools.append(ToolRates(temperature, *counts))

    def _long(self) -> Iterator[Finding]:
        """After a long prompt the text is the same; how tokens per round change with it is told."""
        workload = self._workloads[0]
        for context in (0, self._plan.context):
            prompt = replace(workload, document_tokens=context)
            plain = self._answer(request := self._request(prompt, SamplingParams()), 1)
            block = self._plan.block_sizes[-1]
            drafted = self._answer(request, block)
            yield self._judge(
                f"prompt of {plain.summary.prompt_tokens} tokens", prompt, request, (plain, drafted, block)
            )
            self.long_context[f"{plain.summary.prompt_tokens} prompt tokens"] = drafted.summary.tokens_per_round


def valid_calls(answer: Measured, workload: Workload) -> tuple[int, int]:
    """Tool calls of the answer, and those that fit their schema."""
    problems = [call_problem(call.name, call.arguments, workload.tools) for call in answer.tool_calls]
    return len(problems), sum(problem is None for problem in problems)


def check_report(document: CheckDocument) -> Report:
    """The report of a check: faults first."""
    groups: dict[str, list[Finding]] = {}
    for finding in document.findings:
        groups.setdefault(finding.check.split(" '")[0].split(' "')[0], []).append(finding)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, len(found), *(sum(f.kind == kind for f in found) for kind in ("same", "rounding", "fault")))
        for name, found in groups.items()
    )
    other = [finding for finding in document.findings if finding.kind != "same"]
    details: tuple[tuple[Cell, ...], ...] = tuple(
        (f.check, f.prompt, f.method, f.kind, f.at, f.tokens, f.margin, f.why) for f in other
    )
    tools = tuple(
        (f"temperature {t.temperature:g}", t.answers, t.plain_calls, t.plain_valid, t.drafted_calls, t.drafted_valid)
        for t in document.tools
    )
    sections: tuple[Section, ...] = (
        Section("check", "Checks", (), Table(("check", "answers", "same", "rounding", "fault"), rows)),
        Section(
            "differences", "Differences", (f"A lead of up to {document.margin:g} logits counts as rounding.",),
            Table(("check", "prompt", "method", "kind", "token", "of", "margin", "why"), details),
        ),
        Section(
            "tools", "Tool calls that fit their schema", (),
            Table(("", "answers", "plain calls", "plain fit", "drafted calls", "drafted fit"), tools),
        ),
        Section(
            "context", "Tokens per round after a long prompt", (),
            Table(("prompt", "tokens per round"), tuple(document.long_context.items())),
        ),
    )  # fmt: skip
    sections = tuple(section for section in sections if section.table and section.table.rows)
    settings = (("block sizes", ", ".join(map(str, document.block_sizes))),)
    return Report(
        "dflash2-mlx bench check", tuple(_verdict(document)), sections, facts(document.environment, settings),
        about(document.environment),
    )  # fmt: skip


def _verdict(document: CheckDocument) -> list[str]:
    faults, total = document.faults, len(document.findings)
    rounding = sum(finding.kind == "rounding" for finding in document.findings)
    lines = [f"{total - len(faults) - rounding} of {total} drafted answers are plain decoding's, token for token."]
    if rounding:
        lines.append(f"{rounding} part from it where two tokens are equally likely within {document.margin:g} logits.")
    if faults:
        first = faults[0]
        lines.append(
            f"{len(faults)} REAL DIFFERENCES. The first: {first.check}, {first.prompt}, {first.method}: {first.why}. "
            "Please report it with this document."
        )
    return lines
