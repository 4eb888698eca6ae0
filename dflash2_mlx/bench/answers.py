"""One measured answer: what came when. Knows sessions by protocol and the clock; the device is waited for by them."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from dflash2_mlx.bench.numbers import rate
from dflash2_mlx.events import Delta, Finished, FinishReason, Round, Summary, ToolCall
from dflash2_mlx.session.session import Event, Request

Clock = Callable[[], float]


class Answering(Protocol):
    """What is measured: anything that answers requests, one after the other."""

    def stream(self, request: Request) -> Generator[Event, None, None]:
        """The events of one answer; Finished comes last."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A round and when it came, in seconds after the request. thinking: before any text of the answer itself."""

    at_s: float
    done: Round
    thinking: bool

    @property
    def count(self) -> int:
        """Tokens of the round."""
        return len(self.done.tokens)


@dataclass(frozen=True, slots=True)
class Measured:
    """An answer with its times in seconds after the request. Decoding is what follows the first token."""

    stamps: tuple[Stamp, ...]
    total_s: float
    reason: FinishReason
    text: str
    tool_calls: tuple[ToolCall, ...]
    summary: Summary

    @property
    def tokens(self) -> tuple[int, ...]:
        """All committed tokens."""
        return tuple(token for stamp in self.stamps for token in stamp.done.tokens)

    @property
    def first_token_s(self) -> float | None:
        """From the request to the first token."""
        return self.stamps[0].at_s if self.stamps else None

    @property
    def decode_s(self) -> float:
        """From the first token to the last one."""
        return self.stamps[-1].at_s - self.stamps[0].at_s if self.stamps else 0.0

    @property
    def decoded(self) -> int:
        """Tokens after the first."""
        return max(0, len(self.tokens) - 1)

    @property
    def gaps(self) -> list[float]:
        """Seconds that each round after the first token took."""
        return [later.at_s - sooner.at_s for sooner, later in pairwise(self.stamps)]


def measure(session: Answering, request: Request, clock: Clock = time.perf_counter) -> Measured:
    """Answer `request` to its end and note when every round came."""
    began = clock()
    times: list[tuple[float, Round]] = []
    text: list[str] = []
    calls: list[ToolCall] = []
    answer_from, reasoned = None, False  # the round that brought the first text of the answer
    for event in session.stream(request):
        if isinstance(event, Round):
            times.append((clock() - began, event))
        elif isinstance(event, Delta):
            reasoned |= event.channel == "reasoning"
            if event.channel == "answer":
                text.append(event.text)
                answer_from = len(times) - 1 if answer_from is None and event.text.strip() else answer_from
        elif isinstance(event, ToolCall):
            calls.append(event)
            answer_from = len(times) - 1 if answer_from is None else answer_from
        elif isinstance(event, Finished):
            limit = (len(times) if answer_from is None else answer_from) if reasoned else 0
            stamps = tuple(Stamp(at, done, number < limit) for number, (at, done) in enumerate(times))
            total_s = clock() - began
            return Measured(stamps, total_s, event.reason, "".join(text), tuple(calls), event.summary)
    raise AssertionError("an answer ended without Finished")


def token_gaps(answer: Measured) -> list[float]:
    """Seconds per token after the first: each round's gap, divided among its tokens."""
    later = zip(answer.gaps, answer.stamps[1:], strict=True)
    return [gap / stamp.count for gap, stamp in later for _ in range(stamp.count)]


def phase_rate(answers: Sequence[Measured], *, thinking: bool) -> tuple[int, float | None]:
    """Tokens and tok/s of one phase of the answers, their first tokens left out."""
    count, seconds = 0, 0.0
    for answer in answers:
        for gap, stamp in zip(answer.gaps, answer.stamps[1:], strict=True):
            if stamp.thinking == thinking:
                count, seconds = count + stamp.count, seconds + gap
    return count, rate(count, seconds)


def rate_over_answer(answers: Sequence[Measured], window: int) -> list[tuple[int, float]]:
    """(tokens so far, tok/s of the last `window` of them) over the answers.

    What follows the first tokens, whole windows only.

    The tokens of a round are taken to come evenly within it.
    """
    totals: dict[int, list[float]] = {}
    for answer in answers:
        if not answer.stamps:
            continue
        seen, before = 0, answer.stamps[0].at_s
        edge_s = before  # when the last window was full
        for stamp in answer.stamps[1:]:
            for edge in range(seen // window + 1, (seen + stamp.count) // window + 1):
                share = (edge * window - seen) / stamp.count
                full_s = before + share * (stamp.at_s - before)
                totals.setdefault(edge * window, []).append(full_s - edge_s)
                edge_s = full_s
            seen, before = seen + stamp.count, stamp.at_s
    return [(tokens, window * len(times) / sum(times)) for tokens, times in sorted(totals.items()) if sum(times) > 0]
