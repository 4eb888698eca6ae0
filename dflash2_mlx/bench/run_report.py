"""`bench run` as a document and as a report for people: first of all, which workloads gain and which do not."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dflash2_mlx.bench.environment import Environment
from dflash2_mlx.bench.facts import about, facts
from dflash2_mlx.bench.judge import EXPECTED
from dflash2_mlx.bench.methods import PLAIN, title
from dflash2_mlx.bench.numbers import FEWEST, FLOOR, Spread, median_of, short
from dflash2_mlx.bench.report import Cell, Chart, Ratio, Report, Section, Series, Table
from dflash2_mlx.bench.run import GroupResult, drafted
from dflash2_mlx.bench.run_sections import detail_sections

_NOISY = 0.25  # range over median above which the repeats disagree


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run was made."""

    repeats: int
    temperature: float
    seed: int | None
    block_size: int | None
    acceptance: str
    quick: bool
    energy: str


@dataclass(frozen=True, slots=True)
class RunDocument:
    """Everything of one run; as JSON it is what `bench compare` reads."""

    kind: str
    version: int
    environment: Environment
    settings: RunSettings
    groups: tuple[GroupResult, ...]
    complete: bool = True


def run_report(document: RunDocument) -> Report:
    """The report of a run."""
    groups, settings = document.groups, document.settings
    rule = "greedy" if settings.temperature == 0 else f"temperature {settings.temperature}, seed {settings.seed}"
    lines = (
        ("repeats", f"{settings.repeats} after one warm-up, methods turn about; figures are medians (least-most)"),
        ("sampling", f"{rule}, rule: {'greedy' if settings.temperature == 0 else settings.acceptance}"),
        ("block size", "chosen for the pair" if settings.block_size is None else str(settings.block_size)),
        ("energy", settings.energy),
    )
    return Report(
        "dflash2-mlx bench run",
        tuple(verdict(groups, document.environment)),
        (_speed(groups), *detail_sections(groups)),
        facts(document.environment, lines),
        about(document.environment, rule, f"{settings.repeats} repeat{'' if settings.repeats == 1 else 's'}"),
        _figures(groups),
        _warning(settings),
    )


def _warning(settings: RunSettings) -> str:
    """Why the run is not to be taken at its word."""
    if not settings.quick and settings.repeats >= FEWEST:
        return ""
    why = "shortened workloads" if settings.quick else f"fewer than {FEWEST} repeats"
    return (
        f"A quick look, {settings.repeats} repeat{'' if settings.repeats == 1 else 's'}, {why}: too few to tell a "
        "difference from noise, or to publish. Run it without --quick and --repeats."
    )


def _figures(groups: Sequence[GroupResult]) -> tuple[tuple[str, str], ...]:
    """The figures that count of the last method, the pair's own: the whole answer first."""
    name, same = drafted(groups)[-1], sum(group.same_text for group in groups)
    found = [
        (f"{statistics.median(values):.2f}x", words)
        for words, ratios in (("vs plain, end to end", whole), ("vs plain, decoding", decoding))
        if (values := [ratio.median for _, ratio in ratios(groups, name)])
    ]
    return (*found, (f"{same} of {len(groups)}", "same text"))


def whole(groups: Sequence[GroupResult], name: str) -> list[tuple[str, Spread]]:
    """By workload: plain decoding's time from the request to the last token, over the method's."""
    return [(group.name, ratio) for group in groups if (ratio := group.whole_speedup.get(name))]


def decoding(groups: Sequence[GroupResult], name: str) -> list[tuple[str, Spread]]:
    """By workload: the method's rate after the first token, over plain decoding's."""
    return [(group.name, ratio) for group in groups if (ratio := group.speedup.get(name))]


def verdict(groups: Sequence[GroupResult], environment: Environment) -> list[str]:
    """What came out, in words: faster or not, where, whether the text is the same, and what to do if it is slower."""
    lines = []
    for name in drafted(groups):
        lines += _method_verdict(title(name), whole(groups, name), decoding(groups, name))
    lines += [_text_verdict(groups), *_noise(groups)]
    lines += _advice(groups)
    plain = [group.methods[PLAIN].decode_rate for group in groups]
    rates = [rate.median for rate in plain if rate]
    if environment.ceiling and rates:
        share = statistics.median(rates) / environment.ceiling
        lines.append(
            f"Plain decoding reaches {share:.0%} of what memory bandwidth alone would allow "
            f"({short(environment.ceiling)} tok/s at {environment.bandwidth:.0f} GB/s)."
        )
    return lines


Ratios = Sequence[tuple[str, Spread]]


def _method_verdict(name: str, answers: Ratios, rates: Ratios) -> list[str]:
    """The whole answer first, then what follows its first token; the latter alone where the texts differ."""
    found = answers or rates
    if not found:
        return [f"{name}: no answer was long enough to have a rate."]
    middle = statistics.median(ratio.median for _, ratio in found)
    word = "faster than" if middle > 1 + FLOOR else "as fast as" if middle >= 1 - FLOOR else "SLOWER than"
    parts = [
        f"{statistics.median(r.median for _, r in ratios):.2f}x {words}"
        for words, ratios in (("over the whole answer", answers), ("after its first token", rates))
        if ratios
    ]
    least, most = min(r.median for _, r in found), max(r.median for _, r in found)
    many = f"median of {len(found)} workloads, {least:.2f}x to {most:.2f}x" if len(found) > 1 else found[0][0]
    lines = [f"{name} is {word} plain decoding here: {', '.join(parts)} ({many})."]
    few = min(len(ratio.samples) for _, ratio in found) < FEWEST
    faster, slower = ("Looks faster", "Looks slower") if few else ("Faster", "Slower")
    for words, side in ((faster, 1), ("No clear difference", 0), (slower, -1)):
        names = [f"{label} {ratio.median:.2f}x" for label, ratio in found if Ratio(ratio).side == side]
        if names:
            lines.append(f"{words}: {'; '.join(names)}.")
    return lines


def _text_verdict(groups: Sequence[GroupResult]) -> str:
    different = [group.name for group in groups if not group.same_text]
    if not different:
        return "The text was the same with and without drafting in every answer."
    if any(d.kind == EXPECTED for group in groups for d in group.differences):
        return "The texts differ, as they may: rejection sampling draws one of its own from the same distribution."
    faults = [d.why for group in groups for d in group.differences if d.kind == "fault"]
    why = f"{faults[0]}; `dflash2-mlx bench check` says more" if faults else "rounding between two tokens as likely"
    return (
        f"The text DIFFERS from plain decoding in {len(different)} of {len(groups)} workloads "
        f"({'; '.join(different)}): {why}."
    )


def _noise(groups: Sequence[GroupResult]) -> list[str]:
    """A warning where the same measurement, repeated, came out far apart, or was not repeated."""
    ratios = [ratio for group in groups for ratio in group.speedup.values() if ratio]
    found = [ratio for ratio in ratios if len(ratio.samples) > 1]
    if ratios and not found:
        return ["Every figure was measured once: nothing tells it from noise. Give --repeats 5."]
    wide = statistics.median((ratio.high - ratio.low) / ratio.median for ratio in found) if found else 0.0
    if wide <= _NOISY:
        return []
    return [
        f"The machine was busy: repeats of the same speed-up lie {wide:.0%} apart (median). Take the figures as rough, "
        "and measure again when nothing else runs."
    ]


def _advice(groups: Sequence[GroupResult]) -> list[str]:
    """What to try where drafting as a whole is slower."""
    lines = []
    for name in drafted(groups):
        ratios = [ratio.median for group in groups if (ratio := group.speedup.get(name))]
        if not ratios or statistics.median(ratios) >= 1:
            continue
        found = [group.methods[name] for group in groups]
        per_round = statistics.median(entry.tokens_per_round for entry in found)
        costs = [cost for group in groups if (cost := round_cost(group, name))]
        price = f", but a round costs {statistics.median(costs):.1f} plain steps" if costs else ""
        lines.append(
            f"Speed-up below 1: {title(name)} commits {per_round:.2f} tokens per round{price}. Find a better width "
            "with `dflash2-mlx bench sweep`, give --block-size, or decode plainly with --no-draft."
        )
    return lines


def round_cost(group: GroupResult, name: str) -> float | None:
    """A drafted round in plain steps: what the tokens after the first took, less the plain steps among them."""
    ratio, figures = group.speedup.get(name), group.methods[name]
    if not ratio or not ratio.median or not figures.rounds:
        return None
    return (figures.decoded_tokens / ratio.median - figures.plain_steps) / figures.rounds


def _speed(groups: Sequence[GroupResult]) -> Section:
    names = drafted(groups)
    several = len(names) > 1
    columns = ["workload", "tokens", "plain tok/s"]
    for name in names:
        word = f"{title(name)} " if several else ""
        columns += [f"{title(name)} tok/s", f"{word}answer", f"{word}decoding", "per round", "= steps"]
    rows = []
    for group in groups:
        plain = group.methods[PLAIN]
        row: list[Cell] = [group.name, plain.completion_tokens, median_of(plain.decode_rate)]
        for name in names:
            row += _speed_cells(group, name)
        rows.append((*row, "same" if group.same_text else "DIFFERS"))
    words = (
        "Rates in tok/s after the first token, medians. Times plain decoding in the same process and the same repeat: "
        "answer, from the request to the last token; decoding, after the first. Per round: tokens that a round "
        "commits; = steps: what a round costs, in plain steps.",
    )
    table = Table((*columns, "text"), tuple(rows))
    return Section("speed", "Which workloads gain", words, table, (_gain_chart(groups), _rate_chart(groups)))


def _speed_cells(group: GroupResult, name: str) -> list[Cell]:
    figures = group.methods[name]
    ratios = (Ratio(ratio) if ratio else None for ratio in (group.whole_speedup[name], group.speedup[name]))
    return [median_of(figures.decode_rate), *ratios, figures.tokens_per_round, round_cost(group, name)]


def _gain_chart(groups: Sequence[GroupResult]) -> Chart:
    series = []
    for name in drafted(groups):
        for words, faint in (("the whole answer", False), ("decoding alone", True)):
            spreads = [(group.speedup if faint else group.whole_speedup).get(name) for group in groups]
            series.append(_series(f"{title(name)}, {words}", name, spreads, faint=faint))
    heading = "Times plain decoding: right of the line drafting is faster, red is slower"
    names = tuple(group.name for group in groups)
    return Chart("bars", heading, "times plain decoding", "", tuple(series), names, (1.0, "plain decoding"))


def _rate_chart(groups: Sequence[GroupResult]) -> Chart:
    series = [
        _series(title(name), name, [group.methods[name].decode_rate for group in groups])
        for name in (PLAIN, *drafted(groups))
    ]
    names = tuple(group.name for group in groups)
    return Chart("bars", "Rate after the first token", "tok/s; dots are the repeats", "", tuple(series), names)


def _series(words: str, name: str, spreads: Sequence[Spread | None], *, faint: bool = False) -> Series:
    """One bar a workload, in the method's colour."""
    found = [(float(row), each) for row, each in enumerate(spreads) if each]
    places, medians = tuple(row for row, _ in found), tuple(each.median for _, each in found)
    return Series(words, places, medians, tuple(each.samples for _, each in found), colour=name, faint=faint)
