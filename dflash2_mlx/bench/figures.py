"""What a group of answers of one method adds up to. Pure arithmetic over measured answers and timed parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from dflash2_mlx.bench.answers import Measured, phase_rate, rate_over_answer, token_gaps
from dflash2_mlx.bench.numbers import Percentiles, Spread, percentiles, rate, spread
from dflash2_mlx.bench.timing import Parts
from dflash2_mlx.session.statistics import Stats

WINDOW = 64  # tokens of one point of the rate over an answer


@dataclass(frozen=True, slots=True)
class Shares:
    """Share of the decoding time in each part, measured with a wait round each; they add up to 1."""

    draft: float
    verify: float
    accept: float
    host: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Medians of one turn of the conversations, over conversations and repeats."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_token_s: Spread | None
    decode_rate: Spread | None


@dataclass(frozen=True, slots=True)
class Phase:
    """Thinking or answer: tokens of one repeat, and their rate over all repeats."""

    tokens: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """Everything measured of one method in one group. Seconds, tok/s, bytes; spreads are over the repeats.

    decode_rate: the tokens after the first over the time they took. acceptance_by_position[i]: share of
    drafts whose token i was kept. hits_by_position[i]: share of drafted positions i where the text's token was among
    the drafter's `candidates` candidates, whatever was drafted before it. peak_bytes: of MLX, all loaded
    weights included.
    """

    first_token_s: Spread | None
    prefill_rate: Spread | None
    decode_rate: Spread | None
    total_s: Spread | None
    plain_steps: int
    decoded_tokens: int
    completion_tokens: int
    round_gap_s: Percentiles | None
    token_gap_s: Percentiles | None
    rounds: int
    tokens_per_round: float
    acceptance: float
    acceptance_by_position: tuple[float, ...]
    candidates: int
    hit_rate: float | None
    hits_by_position: tuple[float, ...]
    rate_over_answer: tuple[tuple[int, float], ...]
    thinking: Phase
    answer: Phase
    turns: tuple[Turn, ...]
    peak_bytes: int
    block_size: int
    shares: Shares | None
    joules_per_token: float | None


@dataclass(frozen=True, slots=True)
class Passes:
    """All answers of one method in one group: answers[repeat][conversation][turn], and its timed parts."""

    answers: tuple[tuple[tuple[Measured, ...], ...], ...]
    parts: tuple[Parts, ...] = ()
    joules_per_token: float | None = None

    def repeats(self) -> list[list[Measured]]:
        """The answers of every repeat, in order."""
        return [[answer for turns in conversations for answer in turns] for conversations in self.answers]


def figures(passes: Passes) -> MethodFigures:
    """The figures of one method in one group."""
    repeats = passes.repeats()
    flat, once = [answer for answers in repeats for answer in answers], repeats[0]
    counts = count_rounds(once)
    drafted = sum(counts.drafted_at)
    size, hits, tried = count_hits(passes.parts)
    return MethodFigures(
        first_token_s=_over(repeats, lambda answers: _mean([a.first_token_s for a in answers])),
        prefill_rate=_over(repeats, _prefill_rate),
        decode_rate=_over(repeats, decode_rate),
        total_s=_over(repeats, lambda answers: sum(a.total_s for a in answers)),
        plain_steps=sum(not stamp.done.drafted for answer in once for stamp in answer.stamps[1:]),
        decoded_tokens=sum(answer.decoded for answer in once),
        completion_tokens=sum(len(answer.tokens) for answer in once),
        round_gap_s=percentiles([gap for answer in flat for gap in answer.gaps]),
        token_gap_s=percentiles([gap for answer in flat for gap in token_gaps(answer)]),
        rounds=counts.rounds,
        tokens_per_round=counts.round_tokens / counts.rounds if counts.rounds else 1.0,
        acceptance=sum(counts.accepted_at) / drafted if drafted else 0.0,
        acceptance_by_position=tuple(a / d for a, d in zip(counts.accepted_at, counts.drafted_at, strict=True)),
        candidates=size,
        hit_rate=sum(hits) / sum(tried) if sum(tried) else None,
        hits_by_position=tuple(h / t if t else 0.0 for h, t in zip(hits, tried, strict=True)),
        rate_over_answer=tuple(rate_over_answer(flat, WINDOW)),
        thinking=Phase(phase_rate(once, thinking=True)[0], phase_rate(flat, thinking=True)[1]),
        answer=Phase(phase_rate(once, thinking=False)[0], phase_rate(flat, thinking=False)[1]),
        turns=tuple(_turns(passes)),
        peak_bytes=max(answer.summary.peak_bytes for answer in flat),
        block_size=max(answer.summary.block_size for answer in flat),
        shares=shares(passes.parts),
        joules_per_token=passes.joules_per_token,
    )


def decode_rate(answers: Sequence[Measured]) -> float | None:
    """All tokens over the time from the end of the prefill to the last, of several answers together."""
    return rate(sum(a.decoded for a in answers), sum(a.decode_s for a in answers))


def count_rounds(answers: Sequence[Measured]) -> Stats:
    """The rounds of the answers together."""
    counts = Stats(prompt_tokens=0)
    for answer in answers:
        for stamp in answer.stamps:
            counts.add(stamp.done)
    return counts


def count_hits(parts: Sequence[Parts]) -> tuple[int, list[int], list[int]]:
    """Candidates a position; by position, how often the text's token was among them, and of how many."""
    hits: list[int] = []
    tried: list[int] = []
    size = 0
    for part in parts:
        text = [token for done in part.rounds for token in done.tokens]
        place, kept = 0, iter(part.candidates)
        for done in part.rounds:
            rows = next(kept, ()) if done.drafted else ()
            grown = max(0, len(rows) - len(hits))
            hits, tried = hits + [0] * grown, tried + [0] * grown
            for position, (row, token) in enumerate(zip(rows, text[place:], strict=False)):
                size = max(size, len(row))
                hits[position] += token in row
                tried[position] += 1
            place += len(done.tokens)
    return size, hits, tried


def shares(parts: Sequence[Parts]) -> Shares | None:
    """Where the time of these answers went; None where there was none."""
    total = sum(part.total_s for part in parts)
    if total <= 0:
        return None
    return Shares(
        *(
            sum(seconds) / total
            for seconds in zip(*((p.draft_s, p.verify_s, p.accept_s, p.host_s) for p in parts), strict=True)
        )
    )


def _over(repeats: Sequence[Sequence[Measured]], number: Callable[[Sequence[Measured]], float | None]) -> Spread | None:
    return spread([value for value in map(number, repeats) if value is not None])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _prefill_rate(answers: Sequence[Measured]) -> float | None:
    count = sum(a.summary.prompt_tokens - a.summary.cached_tokens for a in answers)
    return rate(count, sum(a.summary.first_token_s for a in answers))


def _turns(passes: Passes) -> list[Turn]:
    """One entry a turn where conversations have several."""
    found = []
    conversations = [conversation for repeat in passes.answers for conversation in repeat]
    for answers in zip_longest(*conversations):
        there = [answer for answer in answers if answer is not None]
        rates = [value for value in (decode_rate([a]) for a in there) if value is not None]
        found.append(
            Turn(
                there[0].summary.prompt_tokens,
                there[0].summary.cached_tokens,
                len(there[0].tokens),
                spread([a.first_token_s for a in there if a.first_token_s is not None]),
                spread(rates),
            )
        )
    return found if len(found) > 1 else []
