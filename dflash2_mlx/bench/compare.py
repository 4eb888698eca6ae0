"""`bench compare`: what changed between two documents of `bench run` beyond noise. Knows their JSON only.

The rule. A figure with samples has changed when the ratio of the medians is off 1 by more than 3 %, and the interval of
99 % of that ratio, bootstrapped, leaves 1 out. Of figures that have not changed about 1 in 80 is called so with 5
samples, fewer with more. Counts have no noise in greedy text: they have changed when they differ by more than 0.5 %.
Fewer than 5 samples do not tell noise from change and are left out. Drafted rates
are compared as speed-ups over the plain decoding of their own run, so that a busier machine is not taken for a change;
rates and first tokens by themselves are shown apart, as the machine's.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dflash2_mlx.bench.numbers import FEWEST, Spread, changed, short
from dflash2_mlx.bench.report import Report, Section, Share, Table
from dflash2_mlx.errors import UsageError

KIND, VERSION = "dflash2-mlx bench run", 1
_COUNT_LEAST = 0.005
# settings, and facts of the environment
_EXPLAIN = (
    *("repeats", "temperature", "block_size", "acceptance", "quick"),
    *("chip", "system", "version", "commit", "preloaded", "packages", "target", "drafter"),
)
RULE = (
    "Changed: the ratio of the medians is off 1 by more than 3 % and its bootstrapped 99 % interval leaves 1 out (with "
    "5 repeats chance alone does that to 1 figure in 80); tokens per round, at a fixed block size, differ by more than "
    "0.5 %. Drafted rates are compared as speed-ups over plain decoding in the same run."
)


class Figures(BaseModel):
    """What of one method is compared."""

    model_config = ConfigDict(allow_inf_nan=False)

    tokens_per_round: float
    decode_rate: Spread | None = None
    prefill_rate: Spread | None = None
    first_token_s: Spread | None = None


class GroupFigures(BaseModel):
    """What of one workload is compared."""

    model_config = ConfigDict(allow_inf_nan=False)

    name: str
    methods: dict[str, Figures]
    speedup: dict[str, Spread | None]
    whole_speedup: dict[str, Spread | None] = {}
    same_text: bool


class HowMade(BaseModel):
    """How the run was made; all its other settings too."""

    model_config = ConfigDict(extra="allow")

    repeats: int
    block_size: int | None = None


class Heading(BaseModel):
    """What a document of any measurement is."""

    kind: str
    version: object = None


class Run(BaseModel):
    """What of a document of `bench run` is read."""

    complete: bool = True
    settings: HowMade
    environment: dict[str, object]
    groups: list[GroupFigures]


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both runs. kind: `drafting` counts as a change, `machine` may be the machine's alone."""

    group: str
    method: str
    figure: str
    before: float
    after: float
    kind: str
    better: bool

    @property
    def ratio(self) -> float:
        """after / before."""
        return self.after / self.before if self.before else math.inf


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two runs, and what could not be compared."""

    kind: str
    before: str
    after: str
    compared: int
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def worse(self) -> bool:
        """Whether anything that is not the machine's got worse."""
        return any(change.kind == "drafting" and not change.better for change in self.changes)


def read_run(path: Path) -> Run:
    """A document of `bench run`: the file, or its last line. Raises: UsageError, OSError."""
    text = path.read_bytes().decode("utf-8-sig", errors="replace").strip()
    for candidate in (text, text.rpartition("\n")[2]):
        try:
            heading = Heading.model_validate_json(candidate)
            break
        except ValidationError:
            continue
    else:
        raise UsageError(f"{path} holds no document of `dflash2-mlx bench run`. Give its stdout or its report.json.")
    if heading.kind != KIND:
        raise UsageError(f"{path} is one of `{heading.kind}`, not of `{KIND}`. Give its stdout or its report.json.")
    if heading.version != VERSION:
        raise UsageError(
            f"{path} is a document of version {heading.version!r}, and this program reads {VERSION}. "
            "Measure again, or compare with the program that wrote it."
        )
    try:
        return Run.model_validate_json(candidate)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError(f"{path} is damaged: a figure is not as `{KIND}` writes it ({why}). Measure again.") from error


def compare(before: Path, after: Path) -> Comparison:
    """What changed from one run to the other. Raises: UsageError, OSError."""
    runs = read_run(before), read_run(after)
    old, new = ({group.name: group for group in run.groups} for run in runs)
    fixed = all(run.settings.block_size for run in runs)
    found = [figure for name in old if name in new for figure in _figures(old[name], new[name], counts=fixed)]
    if not found:
        raise UsageError(f"{before} and {after} have no workload in common: there is nothing to compare.")
    notes = [f"only in {before}: {name}" for name in old if name not in new]
    notes += [f"only in {after}: {name}" for name in new if name not in old]
    if not fixed:
        notes.append("widths were automatic, so tokens per round follow the clock and are not compared")
    notes += _settings_notes(*runs)
    notes += [f"{path} was interrupted" for path, run in zip((before, after), runs, strict=True) if not run.complete]
    few = [path for path, run in zip((before, after), runs, strict=True) if run.settings.repeats < FEWEST]
    notes += [f"{path} has fewer than {FEWEST} repeats: its speeds are not compared" for path in few]
    changes = tuple(change for change, differs in found if differs)
    return Comparison("dflash2-mlx bench compare", str(before), str(after), len(found), changes, tuple(notes))


def comparison_report(found: Comparison) -> Report:
    """The report of a comparison."""
    drafting = [change for change in found.changes if change.kind == "drafting"]
    machine = [change for change in found.changes if change.kind == "machine"]
    lines = [f"Nothing changed beyond noise in {found.compared} figures."] if not drafting else []
    for word, better in (("better", True), ("worse", False)):
        some = [change for change in drafting if change.better == better]
        if some:
            lines.append(f"{len(some)} of {found.compared} figures are {word}: {'; '.join(map(_words, some))}.")
    if machine:
        lines.append(
            f"{len(machine)} figures of speed alone differ, as another load of the machine makes them: "
            f"{'; '.join(map(_words, machine))}. Run both builds turn about to tell."
        )
    rows = tuple(
        (c.group, c.method, c.figure, c.before, c.after, Share(c.ratio - 1, signed=True), c.kind) for c in found.changes
    )
    table = Table(("workload", "method", "figure", "before", "after", "change", "kind"), rows)
    section = Section("compare", "Changes", (RULE, *found.notes), table)
    return Report(f"{found.before} -> {found.after}", (*lines, *found.notes), (section,))


def _words(change: Change) -> str:
    return f"{change.group} {change.figure} {short(change.before)} -> {short(change.after)}"


def _figures(old: GroupFigures, new: GroupFigures, *, counts: bool) -> Iterator[tuple[Change, bool]]:
    """Every figure that both have, and whether it changed. counts: the block size was fixed, so that they repeat."""
    for method in [name for name in old.methods if name in new.methods]:
        one, other = old.methods[method], new.methods[method]
        for name, rising in (("decode_rate", True), ("prefill_rate", True), ("first_token_s", False)):
            yield from _spreads((old.name, method, name), getattr(one, name), getattr(other, name), "machine", rising)
        if method in old.speedup and method in new.speedup:
            for name, ones, others in (
                ("speed-up", old.speedup, new.speedup),
                ("speed-up of the answer", old.whole_speedup, new.whole_speedup),
            ):
                place = (old.name, method, name)
                yield from _spreads(place, ones.get(method), others.get(method), "drafting", rising=True)
            if counts:
                yield _counts((old.name, method, "tokens per round"), one.tokens_per_round, other.tokens_per_round)
    yield _counts((old.name, "all", "same text"), float(old.same_text), float(new.same_text))


Place = tuple[str, str, str]  # group, method, figure


def _spreads(
    place: Place, before: Spread | None, after: Spread | None, kind: str, rising: bool
) -> Iterator[tuple[Change, bool]]:
    """The change between two spreads, if both have samples enough. rising: more is better."""
    if before and after and min(len(before.samples), len(after.samples)) >= FEWEST:
        better = (after.median > before.median) == rising
        yield Change(*place, before.median, after.median, kind, better), bool(changed(before.samples, after.samples))


def _counts(place: Place, before: float, after: float) -> tuple[Change, bool]:
    return Change(*place, before, after, "drafting", after > before), abs(after - before) > _COUNT_LEAST * abs(before)


def _settings_notes(old: Run, new: Run) -> list[str]:
    """What was set or there differently, which may explain a change."""
    before, after = ({**run.environment, **run.settings.model_dump()} for run in (old, new))
    differing = (key for key in _EXPLAIN if before.get(key) != after.get(key))
    return [f"{key} differs: {before.get(key)} -> {after.get(key)}" for key in differing]
