"""The sections of a run's report after the first: latency, acceptance, the course of an answer, parts, memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dflash2_mlx.bench.figures import WINDOW, MethodFigures
from dflash2_mlx.bench.methods import PLAIN, title
from dflash2_mlx.bench.numbers import Percentiles, median_of, shares_of
from dflash2_mlx.bench.report import Cell, Chart, Ratio, Section, Series, Share, Table
from dflash2_mlx.bench.run import GroupResult, drafted

_MS = 1000


def detail_sections(groups: Sequence[GroupResult]) -> list[Section]:
    """Every section that has something to show."""
    found = [
        _latency(groups),
        _gaps(groups),
        _acceptance(groups),
        _course(groups),
        _parts(groups),
        _axis(groups, "context", "prompt tokens", lambda group: group.context),
        _axis(groups, "length", "answer tokens at most", lambda group: group.max_tokens),
        _turns(groups),
        _phases(groups),
        _memory(groups),
    ]
    return [section for section in found if section.table is None or section.table.rows]


def _latency(groups: Sequence[GroupResult]) -> Section:
    columns = ("workload", "method", "prompt tokens", "prefill tok/s", "first token s", "total s")
    rows = [
        (
            group.name,
            title(name),
            group.prompt_tokens,
            median_of(figures.prefill_rate),
            median_of(figures.first_token_s),
            median_of(figures.total_s),
        )
        for group in groups
        for name, figures in group.methods.items()
    ]
    words = ("Times of whole passes over a workload's conversations.",)
    return Section("latency", "Latency", words, Table(columns, tuple(rows)), wide=True)


def _gaps(groups: Sequence[GroupResult]) -> Section:
    gaps = (f"{kind} {share}" for kind in ("token", "round") for share in ("p50", "p95", "p99"))
    rows = [
        (group.name, title(name), *_milliseconds(f.token_gap_s), *_milliseconds(f.round_gap_s))
        for group in groups
        for name, f in group.methods.items()
    ]
    words = (
        "Milliseconds. token: a round's gap divided among its tokens; round: the gap that a reader sees between two "
        "pieces of text. A percentile that the sample is too small for is left out.",
    )
    return Section("gaps", "Gaps between tokens", words, Table(("workload", "method", *gaps), tuple(rows)), wide=True)


def _milliseconds(found: Percentiles | None) -> tuple[Cell, ...]:
    return tuple(None if value is None else _MS * value for value in shares_of(found))


def _acceptance(groups: Sequence[GroupResult]) -> Section:
    rows, series = [], []
    for name in drafted(groups):
        known = [(group, group.methods[name]) for group in groups if group.methods[name].rounds]
        longest = max((len(figures.acceptance_by_position) for _, figures in known), default=0)
        for group, figures in known:
            shares = figures.acceptance_by_position
            hits = Share(figures.hit_rate) if figures.hit_rate is not None else None
            filled: tuple[Cell, ...] = (*map(Share, shares), *(None,) * (longest - len(shares)))
            first = (group.name, title(name), figures.rounds, figures.tokens_per_round, figures.candidates, hits)
            rows.append((*first, *filled))
        series += _acceptance_series(name, known)
    width = max((len(row) for row in rows), default=6)
    padded = tuple((*row, *(None,) * (width - len(row))) for row in rows)
    positions = (str(i + 1) for i in range(width - 6))
    columns = ("workload", "method", "rounds", "tokens/round", "candidates", "hit", *positions)
    words = (
        "Share of rounds in which the draft was right up to and including that position. hit: how often the "
        "text's token was among the drafter's candidates of the position, so what a perfect choice could reach.",
    )
    chart = Chart(
        "lines", "Acceptance by position of the draft", "position after the anchor", "share kept", tuple(series)
    )
    return Section("acceptance", "Acceptance by position", words, Table(columns, padded), (chart,), wide=True)


def _acceptance_series(name: str, known: Sequence[tuple[GroupResult, MethodFigures]]) -> list[Series]:
    """The mean over all rounds, the best and the worst workload, and the share that was among the candidates."""
    if not known:
        return []
    positions = range(max(len(figures.acceptance_by_position) for _, figures in known))
    found = [
        replace(
            _line(f"{title(name)}, all rounds", [_weighted([f for _, f in known], position) for position in positions]),
            colour=name,
        )
    ]
    ranked = sorted(known, key=lambda entry: entry[1].tokens_per_round)
    for word, (group, figures) in (("best", ranked[-1]), ("worst", ranked[0])):
        if len(ranked) > 1:
            found.append(_line(f"{word}: {group.name}", figures.acceptance_by_position))
    hits = [f.hits_by_position for _, f in known if f.hits_by_position and f.candidates > 1]
    if hits:
        places = range(max(map(len, hits)))
        means = [[h[place] for h in hits if place < len(h)] for place in places]
        found.append(_line("among the candidates", [sum(m) / len(m) for m in means], dashed=True))
    return found


def _weighted(all_figures: Sequence[MethodFigures], position: int) -> float:
    there = [f for f in all_figures if position < len(f.acceptance_by_position)]
    rounds = sum(f.rounds for f in there)
    return sum(f.acceptance_by_position[position] * f.rounds for f in there) / rounds


def _line(name: str, values: Sequence[float], *, dashed: bool = False) -> Series:
    return Series(name, tuple(float(i + 1) for i in range(len(values))), tuple(values), dashed=dashed)


def _course(groups: Sequence[GroupResult]) -> Section:
    rows = [
        (group.name, title(name), tokens, rate)
        for group in groups
        for name, figures in group.methods.items()
        for tokens, rate in figures.rate_over_answer
    ]
    longest = max(groups, key=lambda group: len(group.methods[PLAIN].rate_over_answer))
    series = [
        Series(title(name), tuple(float(t) for t, _ in points), tuple(rate for _, rate in points), colour=name)
        for name, figures in longest.methods.items()
        if len(points := figures.rate_over_answer) > 1
    ]
    words = (f"Rate of every {WINDOW} tokens in turn; answers shorter than that have no point.",)
    chart = Chart("lines", f"Rate over the answer: {longest.name}", "tokens so far", "tok/s", tuple(series))
    table = Table(("workload", "method", "tokens", "tok/s"), tuple(rows))
    return Section("course", "Rate over the answer", words, table, (chart,), wide=True)


def _parts(groups: Sequence[GroupResult]) -> Section:
    rows, totals = list[tuple[Cell, ...]](), dict[str, list[tuple[float, float, float, float]]]()
    for group in groups:
        for name, figures in group.methods.items():
            if figures.shares:
                s = figures.shares
                totals.setdefault(name, []).append((s.draft, s.verify, s.accept, s.host))
                rows.append((group.name, title(name), *map(Share, totals[name][-1])))
    places = (0.0, 1.0, 2.0, 3.0)
    series = [
        Series(title(name), places, tuple(sum(values) / len(found) for values in zip(*found, strict=True)), colour=name)
        for name, found in totals.items()
    ]
    words = (
        "Measured in answers of their own, with a wait for the device after each part, which costs time that normal "
        "answers do not spend: drafting and verifying overlap with the rest there. accept: choosing the tokens, the "
        "transfer, committing and the loop; host: turning tokens into text.",
    )
    chart = Chart(
        "bars", "Share of the decoding time, mean over the workloads", "share", "", tuple(series),
        ("draft", "verify", "accept", "host"),
    )  # fmt: skip
    table = Table(("workload", "method", "draft", "verify", "accept", "host"), tuple(rows))
    return Section("parts", "Where the time goes", words, table, (chart,), wide=True)


def _axis(groups: Sequence[GroupResult], key: str, x_label: str, place: Callable[[GroupResult], int | None]) -> Section:
    """Rates and speed-ups along one setting, where a workload was measured at several values of it."""
    by_workload: dict[tuple[str, str], list[tuple[int, GroupResult]]] = {}
    for group in groups:
        value = place(group)
        if value is not None:
            by_workload.setdefault((group.workload, group.thinking), []).append((value, group))
    rows, series = [], []
    for (workload, thinking), found in by_workload.items():
        if len({value for value, _ in found}) < 2:
            continue
        ordered = sorted(found, key=lambda entry: entry[0])
        for name in ordered[0][1].speedup:
            points = [(value, group, ratio) for value, group in ordered if (ratio := group.speedup.get(name))]
            samples = tuple(ratio.samples for _, _, ratio in points)
            medians = tuple(ratio.median for _, _, ratio in points)
            line = f"{workload}{' (thinking)' if thinking == 'on' else ''}, {title(name)}"
            series.append(Series(line, tuple(float(v) for v, _, _ in points), medians, samples))
            rows += [
                (workload, value, title(name), median_of(group.methods[PLAIN].decode_rate),
                 median_of(group.methods[name].decode_rate), Ratio(ratio), median_of(group.methods[name].first_token_s))
                for value, group, ratio in points
            ]  # fmt: skip
    columns = ("workload", x_label, "method", "plain tok/s", "tok/s", "speed-up", "first token s")
    chart = Chart(
        "lines", f"Speed-up by {x_label}", x_label, "times plain", tuple(series), (), (1.0, "plain decoding"), True
    )
    return Section(key, f"By {x_label}", (), Table(columns, tuple(rows)), (chart,))


def _turns(groups: Sequence[GroupResult]) -> Section:
    rows = [
        (group.name, title(name), number + 1, turn.prompt_tokens, turn.cached_tokens, turn.completion_tokens,
         median_of(turn.first_token_s), median_of(turn.decode_rate))
        for group in groups
        for name, figures in group.methods.items()
        for number, turn in enumerate(figures.turns)
    ]  # fmt: skip
    columns = ("workload", "method", "turn", "prompt", "cached", "tokens", "first token s", "tok/s")
    return Section("turns", "Turn by turn", (), Table(columns, tuple(rows)), wide=True)


def _phases(groups: Sequence[GroupResult]) -> Section:
    rows = [
        (group.name, title(name), f.thinking.tokens, f.thinking.rate, f.answer.tokens, f.answer.rate)
        for group in groups
        for name, f in group.methods.items()
        if f.thinking.tokens
    ]
    columns = ("workload", "method", "thinking tokens", "tok/s", "answer tokens", "tok/s of the answer")
    return Section("phases", "Thinking and answer", (), Table(columns, tuple(rows)), wide=True)


def _memory(groups: Sequence[GroupResult]) -> Section:
    rows = [
        (group.name, title(name), figures.peak_bytes / 2**20, figures.joules_per_token)
        for group in groups
        for name, figures in group.methods.items()
    ]
    words = ("Peak of MLX's memory during an answer; all methods' weights are loaded while any of them answers.",)
    columns = ("workload", "method", "peak MiB", "joules/token")
    return Section("memory", "Memory and energy", words, Table(columns, tuple(rows)), wide=True)
