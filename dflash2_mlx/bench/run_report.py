"""`bench run` as a document and as a report for people: first of all, which workloads gain and which do not."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dflash2_mlx.bench.environment import Environment
from dflash2_mlx.bench.facts import facts
from dflash2_mlx.bench.methods import PLAIN, title
from dflash2_mlx.bench.numbers import Spread, median_of, shown
from dflash2_mlx.bench.report import Cell, Chart, Report, Section, Series, Table
from dflash2_mlx.bench.run import GroupResult, drafted
from dflash2_mlx.bench.run_sections import detail_sections

_CLEAR = 1.02  # below it a ratio is called no gain
_NOISY = 0.25  # range over median above which the repeats disagree


@dataclass(frozen=True, slots=True)
class Settings:
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
    settings: Settings
    groups: tuple[GroupResult, ...]
    complete: bool = True


def run_report(document: RunDocument) -> Report:
    """The report of a run."""
    groups, settings = document.groups, document.settings
    rule = "greedy" if settings.temperature == 0 else f"temperature {settings.temperature}, seed {settings.seed}"
    about = (
        ("repeats", f"{settings.repeats} after one warm-up, methods turn about; figures are medians (least-most)"),
        ("sampling", f"{rule}, rule: {'greedy' if settings.temperature == 0 else settings.acceptance}"),
        ("block size", "chosen for the pair" if settings.block_size is None else str(settings.block_size)),
        ("energy", settings.energy),
    )
    return Report(
        "dflash2-mlx bench run",
        tuple(verdict(groups, document.environment)),
        (_speed(groups), *detail_sections(groups)),
        facts(document.environment, about),
    )


def verdict(groups: Sequence[GroupResult], environment: Environment) -> list[str]:
    """What came out, in words: faster or not, where, whether the text is the same, and what to do if it is slower."""
    lines = []
    for name in drafted(groups):
        ratios = [(group.name, group.speedup[name]) for group in groups if group.speedup.get(name)]
        lines += _method_verdict(title(name), [(label, ratio) for label, ratio in ratios if ratio])
    lines += [_text_verdict(groups), *_noise(groups)]
    lines += _advice(groups)
    plain = [group.methods[PLAIN].decode_rate for group in groups]
    rates = [rate.median for rate in plain if rate]
    if environment.ceiling and rates:
        share = statistics.median(rates) / environment.ceiling
        lines.append(
            f"Plain decoding reaches {share:.0%} of what memory bandwidth alone would allow "
            f"({shown(environment.ceiling)} tok/s at {environment.bandwidth:.0f} GB/s)."
        )
    return lines


def _method_verdict(name: str, ratios: Sequence[tuple[str, Spread]]) -> list[str]:
    if not ratios:
        return [f"{name}: no answer was long enough to have a rate."]
    middle = statistics.median(ratio.median for _, ratio in ratios)
    word = "faster than" if middle > _CLEAR else "as fast as" if middle >= 1 / _CLEAR else "SLOWER than"
    least, most = min(r.median for _, r in ratios), max(r.median for _, r in ratios)
    lines = [
        f"{name} is {word} plain decoding here: {middle:.2f}x, the median of {len(ratios)} workloads "
        f"({least:.2f}x to {most:.2f}x)."
    ]
    gain: list[str] = []
    even: list[str] = []
    lose: list[str] = []
    for label, ratio in ratios:
        kind = gain if ratio.low > 1 and ratio.median > _CLEAR else lose if ratio.median < 1 / _CLEAR else even
        kind.append(f"{label} {ratio.median:.2f}x")
    for words, names in (("Faster", gain), ("No clear difference", even), ("Slower", lose)):
        if names:
            lines.append(f"{words}: {'; '.join(names)}.")
    return lines


def _text_verdict(groups: Sequence[GroupResult]) -> str:
    different = [group.name for group in groups if not group.same_text]
    if not different:
        return "The text was the same with and without drafting in every answer."
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
    columns = ["workload", "tokens", "plain"]
    for name in names:
        columns += [title(name), "speed-up (range)", "per round", "= steps"]
    rows = []
    for group in groups:
        plain = group.methods[PLAIN]
        row: list[Cell] = [group.name, plain.completion_tokens, median_of(plain.decode_rate)]
        for name in names:
            row += _speed_cells(group, name)
        rows.append((*row, "same" if group.same_text else "DIFFERS"))
    words = (
        "Rates in tok/s, from the end of the prefill to the last token, medians. Speed-up: that rate over plain "
        "decoding's in the same process and the same repeat. Per round: tokens that a round commits; = steps: what a "
        "round costs, in plain steps. The speed-up is the one over the other, but for the first token of an answer.",
    )
    table = Table((*columns, "text"), tuple(rows))
    return Section("speed", "Which workloads gain", words, table, (_gain_chart(groups),))


def _speed_cells(group: GroupResult, name: str) -> list[Cell]:
    figures, ratio = group.methods[name], group.speedup[name]
    words = f"{ratio.median:.2f}x ({ratio.low:.2f}-{ratio.high:.2f})" if ratio else None
    return [median_of(figures.decode_rate), words, figures.tokens_per_round, round_cost(group, name)]


def _gain_chart(groups: Sequence[GroupResult]) -> Chart:
    series = []
    for name in drafted(groups):
        found = [(row, ratio) for row, group in enumerate(groups) if (ratio := group.speedup.get(name))]
        series.append(
            Series(
                title(name),
                tuple(float(row) for row, _ in found),
                tuple(ratio.median for _, ratio in found),
                tuple(ratio.low for _, ratio in found),
                tuple(ratio.high for _, ratio in found),
            )
        )
    heading = "Speed-up by workload: right of the line drafting is faster, red is slower"
    names = tuple(group.name for group in groups)
    return Chart("bars", heading, "times plain decoding's rate", "", tuple(series), names, (1.0, "plain decoding"))
