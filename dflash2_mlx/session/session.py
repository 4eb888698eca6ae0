"""Answers over a loaded pair, one after the other. Knows sessions' own room and the device's memory."""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Self

import mlx.core as mx

from dflash2_mlx.config import EngineParams
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.events import Event
from dflash2_mlx.loading.load import Pair
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.session.answer import Answer
from dflash2_mlx.session.known import block_size_for, known_of
from dflash2_mlx.session.prefixes import PrefixCache
from dflash2_mlx.session.request import Conversation, Request, default_sampling, render

# handed on: rooms above need to know this file alone
__all__ = ["Conversation", "Event", "Request", "Session", "block_size_for", "default_sampling", "render", "stream"]

_WIRED_SHARE = 0.9  # above it wiring starves the system
_WARM_TOKENS = 12
_CACHE_SHARE, _LEAST_CACHE_BYTES, _MOST_CACHE_BYTES = 0.25, 2**29, 2**33


class Session:
    """Answers requests over one pair, one after the other, and runs only what no earlier text began with.

    `with Session(pair) as session:` (or `open` and `close`) keeps the weights wired from the first answer to the last;
    without it, every answer does so for itself. cache_bytes: how much memory earlier texts may hold between answers; 0
    keeps nothing.
    """

    def __init__(self, pair: Pair, *, cache_bytes: int = 0) -> None:
        self.pair = pair
        self.prefixes = PrefixCache(pair.target, pair.drafter, cache_bytes)
        self._wired: AbstractContextManager[None] | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Get ready to answer: compile what the first answer would wait for, and wire the weights."""
        warm_up(self.pair)
        if self._wired is None:
            wired = wired_memory(self.pair)
            wired.__enter__()
            self._wired = wired

    def close(self) -> None:
        """Let go of the wired memory; a later answer works all the same."""
        wired, self._wired = self._wired, None
        if wired:
            wired.__exit__(None, None, None)

    def stream(self, request: Request) -> Generator[Event, None, None]:
        """Answer `request`: prefill progress, rounds and the text they gave, in this order; Finished comes last.

        A round that a stop string or an end token cut short is yielded cut. Closing the iterator stops the engine.
        Raises: PromptError, TemplateError, UsageError before anything is computed; UsageError where its events are
        taken on several threads.
        """
        reuse = self.prefixes.budget_bytes > 0
        block_size_for(self.pair, request.engine.block_size)  # refused before a long prompt is rendered
        prompt = render(self.pair, request, reuse=reuse)
        if reuse and not prompt.boundaries:  # text without turns: it may come again, or go on
            prompt = replace(prompt, boundaries=(len(prompt.tokens) - 1,))
        answer = Answer(self.pair, self.prefixes, request, prompt)
        with nullcontext() if self._wired else self:
            yield from answer.run()


def stream(pair: Pair, request: Request) -> Iterator[Event]:
    """Answer one `request` with nothing kept from earlier ones; see `Session.stream`."""
    yield from Session(pair).stream(request)


def default_cache_bytes(pair: Pair) -> int:
    """What earlier texts may hold: a quarter of the memory that the weights leave, 0.5 to 8 GiB."""
    machine = probe()
    free = (machine.working_set_bytes or machine.memory_bytes or 0) - pair.weight_bytes
    return max(_LEAST_CACHE_BYTES, min(_MOST_CACHE_BYTES, int(_CACHE_SHARE * free)))


def wired_memory(pair: Pair) -> AbstractContextManager[None]:
    """Keep the weights in memory meanwhile, where Metal can and they fit its recommended working set."""
    if not mx.metal.is_available():
        return nullcontext()
    from mlx_lm.generate import wired_limit

    recommended = int(mx.device_info()["max_recommended_working_set_size"])
    return wired_limit(pair.target.module) if pair.weight_bytes < _WIRED_SHARE * recommended else nullcontext()


def warm_up(pair: Pair) -> None:
    """Decode a few tokens, so that the first answer does not wait for kernels to be compiled: once per pair."""
    known, target, drafter = known_of(pair), pair.target, pair.drafter
    if drafter is None or known.warm or known.answering:
        return
    for rows in (block_size_for(pair, None).rows, 1):  # a width of its own: slow first rounds teach the pair nothing
        params = EngineParams(max_tokens=_WARM_TOKENS, block_size=rows)
        target.reset()
        drafter.cache = drafter.new_cache()
        for _ in decode(target, drafter, Task((0, 0), default_sampling(pair), params)):
            pass
    target.reset()
    drafter.cache = drafter.new_cache()
    known.warm = True
