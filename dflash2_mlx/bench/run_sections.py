"""The sections of a run's report after the first: latency, acceptance, the course of an answer, parts, memory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace

from dflash2_mlx.bench.figures import WINDOW, MethodFigures
from dflash2_mlx.bench.methods import PLAIN, title
from dflash2_mlx.bench.numbers import median_of, shares_of
from dflash2_mlx.bench.report import Cell, Chart, Ratio, Section, Series, Share, Table
from dflash2_mlx.bench.run import GroupResult, drafted

Rows = Callable[[GroupResult, MethodFigures], Iterable[tuple[Cell, ...]]]


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


def _by_method(groups: Sequence[GroupResult], section: Section, columns: Sequence[str], rows: Rows) -> Section:
    """The section with a table of the rows of every workload and method."""
    found = (
        (group.name, title(name), *row)
        for group in groups
        for name, figures in group.methods.items()
        for row in rows(group, figures)
    )
    return replace(section, table=Table(("workload", "method", *columns), tuple(found)), wide=True)


def _latency(groups: Sequence[GroupResult]) -> Section:
    def rows(group: GroupResult, f: MethodFigures) -> Iterable[tuple[Cell, ...]]:
        yield group.prompt_tokens, *map(median_of, (f.prefill_rate, f.first_token_s, f.total_s))

    words = ("Times of whole passes over a workload's conversations.",)
    columns = ("prompt tokens", "prefill tok/s", "first token s", "total s")
    return _by_method(groups, Section("latency", "Latency", words), columns, rows)


def _gaps(groups: Sequence[GroupResult]) -> Section:
    def rows(_: GroupResult, f: MethodFigures) -> Iterable[tuple[Cell, ...]]:
        gaps = (*shares_of(f.token_gap_s), *shares_of(f.round_gap_s))
        yield tuple(None if seconds is None else 1000 * seconds for seconds in gaps)

    words = (
        "Milliseconds. token: a round's gap divided among its tokens; round: the gap that a reader sees between two "
        "pieces of text. A percentile that the sample is too small for is left out.",
    )
    columns = [f"{kind} {share}" for kind in ("token", "round") for share in ("p50", "p95", "p99")]
    return _by_method(groups, Section("gaps", "Gaps between tokens", words), columns, rows)


def _acceptance(groups: Sequence[GroupResult]) -> Section:
    known = {name: [(g, g.methods[name]) for g in groups if g.methods[name].rounds] for name in drafted(groups)}
    longest = max((len(f.acceptance_by_position) for found in known.values() for _, f in found), default=0)

    def rows(_: GroupResult, f: MethodFigures) -> Iterable[tuple[Cell, ...]]:
        if f.rounds:
            hits = Share(f.hit_rate) if f.hit_rate is not None else None
            shares = (*map(Share, f.acceptance_by_position), *[None] * (longest - len(f.acceptance_by_position)))
            yield f.rounds, f.tokens_per_round, f.candidates, hits, *shares

    words = (
        "Share of rounds in which the draft was right up to and including that position. hit: how often the "
        "text's token was among the drafter's candidates of the position, so what a perfect choice could reach.",
    )
    series = tuple(series for name, found in known.items() for series in _acceptance_series(name, found))
    chart = Chart("lines", "Acceptance by position of the draft", "position after the anchor", "share kept", series)
    section = Section("acceptance", "Acceptance by position", words, None, (chart,))
    columns = ("rounds", "tokens/round", "candidates", "hit", *(str(i + 1) for i in range(longest)))
    return _by_method(groups, section, columns, rows)


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
    longest = max(groups, key=lambda group: len(group.methods[PLAIN].rate_over_answer))
    series = [
        Series(title(name), tuple(float(t) for t, _ in points), tuple(rate for _, rate in points), colour=name)
        for name, figures in longest.methods.items()
        if len(points := figures.rate_over_answer) > 1
    ]
    words = (f"Rate of every {WINDOW} tokens in turn; answers shorter than that have no point.",)
    chart = Chart("lines", f"Rate over the answer: {longest.name}", "tokens so far", "tok/s", tuple(series))
    section = Section("course", "Rate over the answer", words, None, (chart,))
    return _by_method(groups, section, ("tokens", "tok/s"), lambda _, f: f.rate_over_answer)


def _parts(groups: Sequence[GroupResult]) -> Section:
    parts, series = ("draft", "verify", "accept", "host"), []
    for name in groups[0].methods:
        found = [astuple(shares) for group in groups if (shares := group.methods[name].shares)]
        means = tuple(sum(values) / len(found) for values in zip(*found, strict=True))
        series += [Series(title(name), (0.0, 1.0, 2.0, 3.0), means, colour=name)] if found else []
    words = (
        "Measured in answers of their own, with a wait for the device after each part, which costs time that normal "
        "answers do not spend: drafting and verifying overlap with the rest there. accept: choosing the tokens, the "
        "transfer, committing and the loop; host: turning tokens into text.",
    )
    chart = Chart("bars", "Share of the decoding time, mean over the workloads", "share", "", tuple(series), parts)
    section = Section("parts", "Where the time goes", words, None, (chart,))
    return _by_method(groups, section, parts, lambda _, f: [tuple(map(Share, astuple(f.shares)))] if f.shares else [])


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
    def rows(_: GroupResult, f: MethodFigures) -> Iterable[tuple[Cell, ...]]:
        for number, t in enumerate(f.turns, start=1):
            rates = map(median_of, (t.first_token_s, t.decode_rate))
            yield number, t.prompt_tokens, t.cached_tokens, t.completion_tokens, *rates

    columns = ("turn", "prompt", "cached", "tokens", "first token s", "tok/s")
    return _by_method(groups, Section("turns", "Turn by turn"), columns, rows)


def _phases(groups: Sequence[GroupResult]) -> Section:
    def rows(_: GroupResult, f: MethodFigures) -> Iterable[tuple[Cell, ...]]:
        if f.thinking.tokens:
            yield f.thinking.tokens, f.thinking.rate, f.answer.tokens, f.answer.rate

    columns = ("thinking tokens", "tok/s", "answer tokens", "tok/s of the answer")
    return _by_method(groups, Section("phases", "Thinking and answer"), columns, rows)


def _memory(groups: Sequence[GroupResult]) -> Section:
    words = ("Peak of MLX's memory during an answer; all methods' weights are loaded while any of them answers.",)
    section = Section("memory", "Memory and energy", words)
    return _by_method(
        groups, section, ("peak MiB", "joules/token"), lambda _, f: [(f.peak_bytes / 2**20, f.joules_per_token)]
    )
