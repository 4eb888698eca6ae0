"""`bench compare`: what changed between two documents of `bench run` beyond noise. Knows JSON only.

The rule. A figure with samples has changed when (a) the medians differ by more than 3 %, (b) they differ by more than
half of both ranges together, and (c) the ranges do not overlap. Counts have no noise in greedy text: they have changed
when they differ by more than 0.5 %. Fewer than 5 samples do not tell noise from change and are left out. Drafted rates
are compared as speed-ups over the plain decoding of their own run, so that a busier machine is not taken for a change;
rates and first tokens by themselves are shown apart, as the machine's.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dflash2_mlx.bench.numbers import Spread, shown
from dflash2_mlx.bench.report import Report, Section, Table
from dflash2_mlx.errors import UsageError

KIND, VERSION = "dflash2-mlx bench run", 1
_LEAST, _COUNT_LEAST, _FEWEST = 0.03, 0.005, 5
RULE = (
    "Changed: medians differ by more than 3 % and by more than half of both ranges together, and the ranges do not "
    "overlap; tokens per round, at a fixed block size, by more than 0.5 %. Drafted rates are compared as speed-ups "
    "over plain decoding in the same run."
)


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


def is_change(before: Spread, after: Spread) -> bool:
    """Whether two spreads differ beyond noise: the module's rule."""
    gap, base = abs(after.median - before.median), abs(before.median)
    ranges = (before.high - before.low + after.high - after.low) / 2
    apart = after.low > before.high or after.high < before.low
    return apart and gap > max(_LEAST * base, ranges)


def read_run(path: Path) -> Mapping[str, object]:
    """A document of `bench run`: the file, or its last line. Raises: UsageError, OSError."""
    text = path.read_bytes().decode("utf-8-sig", errors="replace").strip()
    kinds = []
    for candidate in (text, text.splitlines()[-1] if text else ""):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("kind") == KIND:
            if found.get("version") == VERSION:
                return found
            raise UsageError(
                f"{path} is a document of version {found.get('version')!r}, and this program reads {VERSION}. "
                "Measure again, or compare with the program that wrote it."
            )
        kinds += [found["kind"]] if isinstance(found, dict) and isinstance(found.get("kind"), str) else []
    what = f"is one of `{kinds[0]}`, not" if kinds else "holds no document"
    raise UsageError(f"{path} {what} of `dflash2-mlx bench run`. Give its stdout or its report.json.")


def compare(before: Path, after: Path) -> Comparison:
    """What changed from one run to the other. Raises: UsageError, OSError."""
    runs = tuple((read_run(path), path) for path in (before, after))  # each is read once: it may be a pipe
    try:
        return _compare_runs(*runs)
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{before} or {after} is damaged: a figure is not as `dflash2-mlx bench run` writes it "
            f"({type(error).__name__}: {error}). Measure again."
        ) from error


def _compare_runs(one: tuple[Mapping[str, object], Path], other: tuple[Mapping[str, object], Path]) -> Comparison:
    (old_run, before), (new_run, after) = one, other
    old, new = _groups(old_run, before), _groups(new_run, after)
    fixed = all(_mapping(run.get("settings")).get("block_size") for run in (old_run, new_run))
    changes: list[Change] = []
    compared = 0
    for name in old:
        if name in new:
            found, count = _compare_group(name, old[name], new[name], fixed)
            changes, compared = changes + found, compared + count
    notes = [f"only in {before}: {name}" for name in old if name not in new]
    notes += [f"only in {after}: {name}" for name in new if name not in old]
    if not fixed:
        notes.append("widths were automatic, so tokens per round follow the clock and are not compared")
    notes += _settings_notes(old_run, new_run)
    if not compared:
        raise UsageError(f"{before} and {after} have no workload in common: there is nothing to compare.")
    notes += [f"{path} was interrupted" for run, path in (one, other) if run.get("complete") is False]
    few = [path for run, path in (one, other) if _few_samples(run)]
    notes += [f"{path} has fewer than {_FEWEST} repeats: its speeds are not compared" for path in few]
    return Comparison("dflash2-mlx bench compare", str(before), str(after), compared, tuple(changes), tuple(notes))


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
    rows = tuple((c.group, c.method, c.figure, c.before, c.after, f"{c.ratio - 1:+.1%}", c.kind) for c in found.changes)
    table = Table(("workload", "method", "figure", "before", "after", "change", "kind"), rows)
    section = Section("compare", "Changes", (RULE, *found.notes), table)
    return Report(f"{found.before} -> {found.after}", (*lines, *found.notes), (section,))


def _words(change: Change) -> str:
    return f"{change.group} {change.figure} {shown(change.before)} -> {shown(change.after)}"


def _compare_group(
    name: str, old: Mapping[str, object], new: Mapping[str, object], fixed: object
) -> tuple[list[Change], int]:
    """Changes of one workload and how many figures were compared. fixed: the block size, so that counts repeat."""
    changes, compared = [], 0
    for figure, kind, rising, before, after in _pairs(old, new):
        if not fixed and figure.endswith("tokens per round"):
            continue
        compared += 1
        if isinstance(before, Spread) and isinstance(after, Spread):
            changed, values = is_change(before, after), (before.median, after.median)
        else:
            values = (float(str(before)), float(str(after)))
            changed = abs(values[1] - values[0]) > _COUNT_LEAST * abs(values[0])
        if changed:
            method, _, word = figure.partition(" ")
            changes.append(Change(name, method, word, *values, kind, (values[1] > values[0]) == rising))
    return changes, compared


Pair = tuple[str, str, bool, object, object]


def _pairs(old: Mapping[str, object], new: Mapping[str, object]) -> list[Pair]:
    """(method and figure, kind, whether more is better, before, after) of everything that both have."""
    found: list[Pair] = []
    ratios = [_mapping(group.get("speedup")) for group in (old, new)]
    methods = [_mapping(group.get("methods")) for group in (old, new)]
    for method in methods[0]:
        if method not in methods[1]:
            continue
        one, other = (_mapping(side[method]) for side in methods)
        for figure, rising in (("decode_rate", True), ("prefill_rate", True), ("first_token_s", False)):
            found.append(
                (f"{method} {figure}", "machine", rising, _spread(one.get(figure)), _spread(other.get(figure)))
            )
        if method in ratios[0] and method in ratios[1]:
            before, after = (_spread(side[method]) for side in ratios)
            found.append((f"{method} speed-up", "drafting", True, before, after))
            found.append(
                (f"{method} tokens per round", "drafting", True, one["tokens_per_round"], other["tokens_per_round"])
            )
    same = [float(bool(group.get("same_text"))) for group in (old, new)]
    found.append(("all same text", "drafting", True, same[0], same[1]))
    return [pair for pair in found if pair[3] is not None and pair[4] is not None]


def _few_samples(run: Mapping[str, object]) -> bool:
    repeats = _mapping(run.get("settings")).get("repeats")
    return not isinstance(repeats, int) or repeats < _FEWEST


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _spread(value: object) -> Spread | None:
    entry = _mapping(value)
    samples = entry.get("samples")
    if not isinstance(samples, Sequence) or len(samples) < _FEWEST:
        return None
    median, low, high = (float(str(entry[key])) for key in ("median", "low", "high"))
    return Spread(median, low, high, tuple(float(sample) for sample in samples))


def _groups(run: Mapping[str, object], path: Path) -> dict[str, Mapping[str, object]]:
    groups = run.get("groups")
    if not isinstance(groups, list):
        raise UsageError(f"{path} lists no groups. Give the stdout or the report.json of `dflash2-mlx bench run`.")
    return {str(group["name"]): group for group in groups if isinstance(group, dict) and "name" in group}


def _settings_notes(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """What was set or there differently, which may explain a change."""
    notes = []
    for part, keys in (
        ("settings", ("repeats", "temperature", "block_size", "acceptance", "quick")),
        ("environment", ("chip", "system", "version", "commit", "preloaded", "packages", "target", "drafter")),
    ):
        before, after = (_mapping(run.get(part)) for run in (old, new))
        for key in keys:
            if before.get(key) != after.get(key):
                notes.append(f"{key} differs: {before.get(key)} -> {after.get(key)}")
    return notes
