"""`bench sweep`: every block size in turn, what each should give by its costs, what it gives, and why one is best."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dflash2_mlx.bench.environment import Environment
from dflash2_mlx.bench.facts import about, facts
from dflash2_mlx.bench.figures import Passes, figures
from dflash2_mlx.bench.methods import PLAIN, Method
from dflash2_mlx.bench.numbers import Spread, beyond_noise
from dflash2_mlx.bench.report import Chart, Ratio, Report, Section, Series, Share, Table
from dflash2_mlx.bench.run import Group, RunPlan, speedup, take_passes
from dflash2_mlx.bench.timing import Parts
from dflash2_mlx.errors import UsageError

KIND, VERSION = "dflash2-mlx bench sweep", 4
_TIE = 1.02  # within it the narrower block is the better one


@dataclass(frozen=True, slots=True)
class Cost:
    """What a round with a block of `rows` rows costs, each part in plain steps, measured with a wait around it."""

    rows: int
    verify: float
    draft: float

    @property
    def round(self) -> float:
        """The round in plain steps; what else there is to do runs while the device works."""
        return self.verify + self.draft

    def speedup(self, tokens: int, rounds: int, plain_steps: int) -> float:
        """Over plain decoding, of `tokens` that took so many rounds and plain steps."""
        return tokens / (rounds * self.round + plain_steps)


@dataclass(frozen=True, slots=True)
class BlockFigures:
    """One block size: the speed-up that its parts predict, and the measured one.

    rounds, plain_steps: of one repeat; where one token is left of an answer, nothing can be drafted.
    """

    rows: int
    cost: Cost
    tokens_per_round: float
    rounds: int
    plain_steps: int
    predicted: float
    measured: Spread


# seconds of a plain step, all block sizes, whether every text was the same
Outcome = tuple[float, tuple[BlockFigures, ...], bool]


@dataclass(frozen=True, slots=True)
class SweepDocument:
    """Everything of one sweep. as_good: the block sizes that noise does not tell from the one of the best median."""

    kind: str
    version: int
    environment: Environment
    workloads: tuple[str, ...]
    repeats: int
    plain_step_s: float
    widths: tuple[BlockFigures, ...]
    best: int
    as_good: tuple[int, ...]
    same_text: bool
    complete: bool = True

    @classmethod
    def of(
        cls, where: Environment, workloads: tuple[str, ...], repeats: int, found: Outcome, *, complete: bool
    ) -> "SweepDocument":
        """The document of what was found."""
        step_s, widths, same = found
        best = best_of(widths), as_good_of(widths)
        return cls(KIND, VERSION, where, workloads, repeats, step_s, widths, *best, same, complete)


def cost_of(rows: int, parts: Sequence[Parts], plain: Sequence[Parts]) -> Cost:
    """The cost of a round in plain steps, from answers timed part by part.

    Each answer's median passes are held against those of the same question answered plainly, timed next to it, so
    that a machine that slows down slows down both; the median of these ratios.
    Raises: UsageError where no answer was long enough for a whole block.
    """
    verify, draft = [], []
    for one, other in zip(parts, plain, strict=True):
        step_s = plain_step(other)
        passes = [seconds for count, seconds in one.verify_passes if count == rows]
        if step_s and passes:
            verify.append(statistics.median(passes) / step_s)
            draft.append(statistics.median(one.draft_passes) / step_s)
    if not verify:
        raise UsageError(f"no answer was long enough to time a block of {rows} rows. Give another --workload.")
    return Cost(rows, statistics.median(verify), statistics.median(draft))


def plain_step(part: Parts) -> float | None:
    """Seconds of a plain step: one row's pass. What else there is runs beside it, as in rounds. None without one."""
    passes = [seconds for _, seconds in part.verify_passes]
    return statistics.median(passes) if passes else None


def best_of(widths: Sequence[BlockFigures]) -> int:
    """The block size with the best median; the narrowest of those within 2 % of it; 1 where none beats plain."""
    if max(beyond_noise(width.measured.samples) for width in widths) < 1:
        return 1
    top = max(width.measured.median for width in widths)
    return next(w.rows for w in widths if w.measured.median * _TIE >= top)


def as_good_of(widths: Sequence[BlockFigures]) -> tuple[int, ...]:
    """The block sizes that are not slower than the one of the best median beyond noise, repeat by repeat."""
    top = max(widths, key=lambda width: width.measured.median).measured.samples
    held = {w.rows: [one / best for one, best in zip(w.measured.samples, top, strict=True)] for w in widths}
    return tuple(rows for rows, ratios in held.items() if beyond_noise(ratios) >= 0)


def take_groups(
    groups: Sequence[Group], methods: Sequence[Method], plan: RunPlan, note: Callable[[str], None]
) -> Iterator[Mapping[str, Passes]]:
    """Everything measured of each group in turn, by method; plain decoding is the first one."""
    for group in groups:
        found = take_passes(group, methods, plan)
        note(group.name)
        yield found


def outcome(found: Sequence[Mapping[str, Passes]], drafted: Mapping[int, Method]) -> Outcome:
    """Seconds of a plain step, all widths, and whether every text was the same.

    Raises: UsageError where no answer was long enough to time a step or a whole block.
    """
    merged = {name: merge([passes[name] for passes in found]) for name in found[0]}
    widths = []
    for rows, method in drafted.items():
        passes = merged[method.name]
        cost, one = cost_of(rows, passes.parts, merged[PLAIN].parts), figures(passes)
        predicted = cost.speedup(one.decoded_tokens, one.rounds, one.plain_steps)
        measured = speedup(passes, merged[PLAIN])
        assert measured is not None
        widths.append(BlockFigures(rows, cost, one.tokens_per_round, one.rounds, one.plain_steps, predicted, measured))
    texts = {name: [a.tokens for a in passes.repeats()[0]] for name, passes in merged.items()}
    steps = [seconds for seconds in map(plain_step, merged[PLAIN].parts) if seconds]
    return statistics.median(steps), tuple(widths), all(text == texts[PLAIN] for text in texts.values())


def merge(passes: Sequence[Passes]) -> Passes:
    """Several groups as one: repeat by repeat all their conversations."""
    repeats = zip(*(found.answers for found in passes), strict=True)
    answers = tuple(tuple(turns for conversations in repeat for turns in conversations) for repeat in repeats)
    return Passes(answers, tuple(part for found in passes for part in found.parts))


def sweep_report(document: SweepDocument) -> Report:
    """The report of a sweep."""
    widths = document.widths
    rows = [
        (
            w.rows, w.cost.verify, w.cost.draft, w.cost.round, w.tokens_per_round, w.predicted, Ratio(w.measured),
            Share(w.measured.median / w.predicted - 1, signed=True),
            "best" if w.rows == document.best else "as good" if w.rows in document.as_good else "",
        )
        for w in widths
    ]  # fmt: skip
    columns = ("block size", "verify", "draft", "round", "per round", "predicted", "measured", "apart", "")
    places = tuple(float(w.rows) for w in widths)
    measured = Series(
        "measured", places, tuple(w.measured.median for w in widths), tuple(w.measured.samples for w in widths),
        colour="dflash2",
    )  # fmt: skip
    predicted = Series("predicted", places, tuple(w.predicted for w in widths), dashed=True, colour="0")
    speed = Chart("lines", "Speed-up by block size", "rows of a block, anchor included", "times plain",
                  (measured, predicted), (), (1.0, "plain decoding"))  # fmt: skip
    costs = Chart(
        "lines", "What a round brings and what it costs", "rows of a block, anchor included", "tokens, plain steps",
        (
            Series("tokens per round", places, tuple(w.tokens_per_round for w in widths)),
            Series("cost of a round", places, tuple(w.cost.round for w in widths)),
            Series("of it verifying", places, tuple(w.cost.verify for w in widths), dashed=True),
        ),
    )  # fmt: skip
    words = (
        f"Costs in plain steps of {document.plain_step_s * 1000:.2f} ms, each part timed in answers of its own with "
        "a wait around it. Predicted: tokens per round / (verify + draft); where one token is left, a plain step "
        "brings it. Where measured is well below it, the loop or the machine wastes time.",
    )
    section = Section("sweep", "Block sizes", words, Table(columns, tuple(rows)), (speed, costs))
    settings = (("workloads", ", ".join(document.workloads)), ("repeats", str(document.repeats)))
    return Report(
        "dflash2-mlx bench sweep", tuple(reasons(document)), (section,), facts(document.environment, settings),
        about(document.environment, f"{document.repeats} repeats"),
    )  # fmt: skip


def reasons(document: SweepDocument) -> list[str]:
    """Which block size is best here and why, in words."""
    by_rows = {width.rows: width for width in document.widths}
    text = "" if document.same_text else " The texts DIFFER between block sizes: run `dflash2-mlx bench check`."
    if document.best == 1:
        top = max(document.widths, key=lambda width: width.measured.median)
        return [
            f"No block size beats plain decoding here. The nearest is {top.rows} with {top.measured.median:.2f}x: "
            f"{top.tokens_per_round:.2f} tokens per round, but a round costs {top.cost.round:.2f} plain steps. "
            f"Decode plainly (--no-draft), or use a drafter that fits the text better.{text}"
        ]
    best = by_rows[document.best]
    known = f"{_sizes(document.as_good)}; {best.rows} rows: " if len(document.as_good) > 1 else f"{best.rows}, "
    lines = [
        f"Best block size: {known}{best.measured.median:.2f}x plain decoding: {best.tokens_per_round:.2f} tokens "
        f"per round for {best.cost.round:.2f} plain steps (verify {best.cost.verify:.2f}, draft "
        f"{best.cost.draft:.2f}).{text}"
    ]
    for rows, words in ((best.rows - 1, "One row fewer"), (best.rows + 1, "One row more")):
        other = by_rows.get(rows)
        if other:
            lines.append(
                f"{words} commits {other.tokens_per_round - best.tokens_per_round:+.2f} tokens a round and costs "
                f"{other.cost.round - best.cost.round:+.2f} plain steps: {other.measured.median:.2f}x."
            )
    return lines


def _sizes(rows: Sequence[int]) -> str:
    """`6 to 8, within noise`."""
    gapless = rows == tuple(range(rows[0], rows[-1] + 1))
    return f"{f'{rows[0]} to {rows[-1]}' if gapless else ', '.join(map(str, rows))}, within noise"
