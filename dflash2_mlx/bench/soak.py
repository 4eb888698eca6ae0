"""`bench soak`: answers of mixed lengths, some cancelled, sessions restarted; does memory grow, is the text stable?

Knows sessions by protocol; memory comes from the probe of the machine.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from dflash2_mlx.bench.answers import Answering, Clock, measure
from dflash2_mlx.bench.environment import Environment
from dflash2_mlx.bench.facts import about, facts
from dflash2_mlx.bench.numbers import short, slope
from dflash2_mlx.bench.report import Chart, Report, Section, Series, Table
from dflash2_mlx.bench.workloads import Workload, with_document
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.events import Round
from dflash2_mlx.memory.machine import MemoryInUse
from dflash2_mlx.session.session import Request

KIND, VERSION = "dflash2-mlx bench soak", 1
_CANCELLED, _RESTARTED, _CHECK_EVERY = 0.3, 0.2, 10
_CONTEXTS = (0, 0, 200, 800, 2000)
_LENGTHS = (1, 8, 32, 64, 128)
_SETTLED = 1 / 3  # of the samples are warm-up: caches fill, buffers reach their size
_GROWTH_SHARE, _GROWTH_BYTES, _SHORTEST_S = 0.02, 8 * 2**20, 120
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory after one answer, `at_s` seconds after the start."""

    at_s: float
    memory: MemoryInUse


@dataclass(frozen=True, slots=True)
class SoakDocument:
    """Everything of one soak. Slopes in bytes a second over the settled part; grows: None where that is too short."""

    kind: str
    version: int
    environment: Environment
    seconds: float
    answers: int
    cancelled: int
    restarts: int
    tokens: int
    text_checks: int
    text_changes: int
    samples: tuple[Sample, ...]
    active_slope: float
    resident_slope: float
    grows: bool | None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """How to soak. open: a fresh session. memory: asked after every answer."""

    open: Callable[[], Answering]
    seconds: float
    seed: int
    count_tokens: Callable[[str], int]
    memory: Callable[[], MemoryInUse]
    clock: Clock = time.perf_counter


class Soak:
    """The answers of one soak and what was counted."""

    def __init__(self, plan: SoakPlan, workloads: Sequence[Workload]) -> None:
        self._plan, self._draws = plan, random.Random(plan.seed)
        self._messages = [turn for workload in workloads for turns in workload.conversations for turn in turns]
        self._session = plan.open()
        self.answers = self.cancelled = self.restarts = self.tokens = self.text_checks = self.text_changes = 0
        self.samples: list[Sample] = []

    def run(self, note: Callable[[str], None]) -> Iterator[Sample]:
        """Answer until the time is over, a sample each; every tenth is a known one, whose text must not change."""
        began, said = self._plan.clock(), 0.0
        reference = self._reference()
        while (passed := self._plan.clock() - began) < self._plan.seconds:
            if self._draws.random() < _RESTARTED:
                self._session, self.restarts = self._plan.open(), self.restarts + 1
            self._one(self._request())
            self.answers += 1
            if self.answers % _CHECK_EVERY == 0:
                self.text_checks += 1
                self.text_changes += self._reference() != reference
            self.samples.append(Sample(self._plan.clock() - began, self._plan.memory()))
            if passed - said > 60:
                said = passed
                note(f"{passed / 60:.0f} min, {self.answers} answers, {_size(self.samples[-1].memory.active_bytes)}")
            yield self.samples[-1]

    def _reference(self) -> tuple[int, ...]:
        return measure(self._session, _request(self._messages[0], 48)).tokens

    def _request(self) -> Request:
        message, context = self._draws.choice(self._messages), self._draws.choice(_CONTEXTS)
        if context:
            message = with_document(message, context, self._plan.count_tokens)
        temperature = self._draws.choice((0.0, 1.0))
        return _request(message, self._draws.choice(_LENGTHS), temperature, self._draws.randrange(2**31))

    def _one(self, request: Request) -> None:
        """One answer, perhaps closed after a few events."""
        stop_after = self._draws.randrange(1, 12) if self._draws.random() < _CANCELLED else None
        with closing(self._session.stream(request)) as events:
            for number, event in enumerate(events, start=1):
                self.tokens += len(event.tokens) if isinstance(event, Round) else 0
                if number == stop_after:
                    self.cancelled += 1
                    return


def _request(message: str, max_tokens: int, temperature: float = 0.0, seed: int | None = None) -> Request:
    sampling = SamplingParams(temperature=temperature, seed=seed if temperature else None)
    return Request(
        [{"role": "user", "content": message}],
        sampling,
        EngineParams(max_tokens=max_tokens),
        TextParams(reasoning="off"),
    )


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples after the warm-up."""
    return samples[int(len(samples) * _SETTLED) :]


def slopes(samples: Sequence[Sample]) -> tuple[float, float, bool | None]:
    """Bytes a second of active and resident memory over the settled part, and whether that is growth.

    Growth: both the line through the settled part and the median of its second half over that of its first rise by more
    than 2 % and 8 MB. None where the settled part is shorter than two minutes.
    """
    part = settled(samples)
    curves = [
        [(s.at_s, float(s.memory.active_bytes)) for s in part],
        [(s.at_s, float(s.memory.resident_bytes or 0)) for s in part],
    ]
    active, resident = map(slope, curves)
    if len(part) < 2 or part[-1].at_s - part[0].at_s < _SHORTEST_S:
        return active, resident, None
    return active, resident, any(map(_rises, curves))


def _rises(curve: Sequence[tuple[float, float]]) -> bool:
    middle = len(curve) // 2
    before, after = (statistics.median(value for _, value in half) for half in (curve[:middle], curve[middle:]))
    line = slope(curve) * (curve[-1][0] - curve[0][0])
    return min(after - before, line) > max(_GROWTH_SHARE * before, _GROWTH_BYTES)


def soak_report(document: SoakDocument) -> Report:
    """The report of a soak."""
    d = document
    minutes = tuple(sample.at_s / 60 for sample in d.samples)
    memories = [sample.memory for sample in d.samples]
    lines = {
        "resident": tuple((m.resident_bytes or 0) / _MB for m in memories),
        "MLX active": tuple(m.active_bytes / _MB for m in memories),
        "MLX cache": tuple(m.cache_bytes / _MB for m in memories),
        "MLX peak": tuple(m.peak_bytes / _MB for m in memories),
        "resident beyond MLX": tuple(
            max(0, (m.resident_bytes or 0) - m.active_bytes - m.cache_bytes) / _MB for m in memories
        ),
    }
    series = tuple(Series(name, minutes, values) for name, values in lines.items())
    rows = tuple((name, values[0], min(values), max(values), values[-1]) for name, values in lines.items() if values)
    chart = Chart("lines", "Memory over the soak", "minutes", "MiB", series)
    words = (
        "Slopes are least-squares lines over the last two thirds. `Resident beyond MLX` is what the process occupies "
        "and MLX neither uses nor keeps: Python, libraries, and fragmentation.",
    )
    table = Table(("MiB", "first", "least", "most", "last"), rows)
    return Report(
        "dflash2-mlx bench soak", tuple(_verdict(d)), (Section("memory", "Memory", words, table, (chart,)),),
        facts(d.environment), about(d.environment),
    )  # fmt: skip


def _verdict(d: SoakDocument) -> list[str]:
    growth = {True: "Memory GROWS", False: "Memory does not grow", None: "Too short to tell whether memory grows"}[
        d.grows
    ]
    text = (
        f"A known answer was asked for {d.text_checks} times among them and its text never changed."
        if not d.text_changes
        else f"A known answer CHANGED its text {d.text_changes} of {d.text_checks} times. Please report it."
    )
    return [
        f"{d.seconds / 60:.1f} minutes: {d.answers} answers, {d.tokens} tokens, {d.cancelled} cancelled midway, "
        f"{d.restarts} sessions restarted.",
        f"{growth}: active {short(d.active_slope * 3600 / _MB)} MiB an hour, resident "
        f"{short(d.resident_slope * 3600 / _MB)} MiB an hour.",
        text,
    ]


def _size(count: int) -> str:
    return f"{count / _MB:.0f} MiB active"
