"""The ways to answer that are compared: plain, DFlash 1, DFlash 2, over one target in one process. Knows pairs."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial

from dflash2_mlx.bench.answers import Answering
from dflash2_mlx.bench.environment import Environment
from dflash2_mlx.bench.judge import EXACT, ROUNDED, Judge
from dflash2_mlx.bench.margins import margin_of
from dflash2_mlx.bench.timing import Parts, measure_parts
from dflash2_mlx.config import Acceptance, SamplingParams, TextParams
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.session.session import Event, Request, Session, default_cache_bytes, render

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Method:
    """A way to answer.

    open: a session that keeps nothing; converse: one that keeps its own earlier turns, as chat and server do. Nothing
    is kept from one session to the next. parts: one answer, timed part by part.
    """

    name: str
    open: Callable[[], Answering]
    converse: Callable[[], Answering]
    parts: Callable[[Request], Parts]


@dataclass(frozen=True, slots=True)
class Width:
    """The block size of a method, None = the pair's own choice, and the rule by which drafts are accepted."""

    block_size: int | None
    acceptance: Acceptance = "coupled"

    def of(self, request: Request) -> Request:
        """The request answered so."""
        engine = replace(request.engine, block_size=self.block_size, acceptance=self.acceptance)
        return replace(request, engine=engine)


class FixedWidth:
    """A session whose every answer is drafted in the same way."""

    def __init__(self, inner: Answering, width: Width) -> None:
        self._inner, self._width = inner, width

    def stream(self, request: Request) -> Generator[Event, None, None]:
        """See Session.stream."""
        return self._inner.stream(self._width.of(request))


def method(pair: Pair, name: str, width: Width) -> Method:
    """Answers of `pair`, drafted as `width` says."""
    return Method(
        name,
        lambda: FixedWidth(Session(pair), width),
        lambda: FixedWidth(Session(pair, cache_bytes=default_cache_bytes(pair)), width),
        lambda request: measure_parts(pair, width.of(request)),
    )


def methods_of(pair: Pair, older: Pair | None, width: Width) -> tuple[Method, ...]:
    """Plain decoding first, then the older drafter's pair if there is one, then the pair itself if it has a drafter."""
    found = [method(pair, PLAIN, Width(1))]
    if older:
        found.append(method(older, drafter_kind(older), width))
    if pair.drafter:
        found.append(method(pair, drafter_kind(pair), width))
    return tuple(found)


def drafter_kind(pair: Pair) -> str:
    """`dflash1` or `dflash2`."""
    assert pair.drafter is not None
    return pair.drafter.config.kind.lower().replace(" ", "")


def title(name: str) -> str:
    """The method for people."""
    return {PLAIN: "plain", "dflash1": "DFlash 1", "dflash2": "DFlash 2"}[name]


def judge_of(pair: Pair, where: Environment, limit: float | None = None) -> Judge:
    """The judge of the pair's drafted texts. limit: None = what rounding can do on this machine."""
    return Judge(limit if limit is not None else EXACT if where.exact else ROUNDED, partial(margin_of, pair))


def token_counter(pair: Pair, reasoning: str | None) -> Callable[[str], int]:
    """How many prompt tokens a single user message makes."""

    def count(message: str) -> int:
        return len(render(pair, Request(message, SamplingParams(), text=TextParams(reasoning=reasoning))).tokens)

    return count
