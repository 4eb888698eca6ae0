"""Answers over a loaded pair, one after the other. Knows sessions' own room and the device's memory."""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import mlx.core as mx

from dflash2_mlx.config import EngineParams, TextParams
from dflash2_mlx.events import Event
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.session.answer import Answer
from dflash2_mlx.session.known import block_size_for
from dflash2_mlx.session.prefixes import PrefixCache
from dflash2_mlx.session.request import Conversation, Request, default_sampling, render
from dflash2_mlx.text.prompt import Prompt

# what other rooms ask of this one
__all__ = [
    "Conversation",
    "Event",
    "Request",
    "Session",
    "block_size_for",
    "default_cache_bytes",
    "default_sampling",
    "render",
    "stream",
    "warm_up",
    "wired_memory",
]

_WIRED_SHARE = 0.9  # above it wiring starves the system
_WARM_TOKENS = 12
_CACHE_SHARE, _LEAST_CACHE_BYTES, _MOST_CACHE_BYTES = 0.25, 2**29, 2**33


class Session:
    """Answers requests over one pair, one after the other, and runs only what no earlier text began with.

    cache_bytes: how much memory earlier texts may hold between answers; 0 keeps nothing.
    """

    def __init__(self, pair: Pair, *, cache_bytes: int = 0) -> None:
        self.pair = pair
        self.prefixes = PrefixCache(pair.target, pair.drafter, cache_bytes)

    def stream(self, request: Request) -> Generator[Event, None, None]:
        """Answer `request`: prefill progress, rounds and the text they gave, in this order; Finished comes last.

        A round that a stop string or an end token cut short is yielded cut. Closing the iterator stops the engine.
        Raises: PromptError, TemplateError, UsageError before anything is computed.
        """
        reuse = self.prefixes.budget_bytes > 0
        block_size_for(self.pair, request.engine.block_size)  # refused before a long prompt is rendered
        prompt = render(self.pair, request, reuse=reuse)
        if reuse and not prompt.boundaries:  # text without turns: it may come again, or go on
            prompt = replace(prompt, boundaries=(len(prompt.tokens) - 1,))
        with wired_memory(self.pair):
            yield from Answer(self.pair, self.prefixes, request, prompt).run()


def stream(pair: Pair, request: Request) -> Iterator[Event]:
    """Answer one `request` with nothing kept from earlier ones; see `Session.stream`."""
    yield from Session(pair).stream(request)


def default_cache_bytes(pair: Pair) -> int:
    """What earlier texts may hold: a quarter of the memory that the weights leave, 0.5 to 8 GiB."""
    machine = probe()
    free = (machine.working_set_bytes or machine.memory_bytes or 0) - pair.weight_bytes
    return max(_LEAST_CACHE_BYTES, min(_MOST_CACHE_BYTES, int(_CACHE_SHARE * free)))


def wired_memory(pair: Pair) -> AbstractContextManager[None]:
    """Keep the weights in memory while an answer runs, where Metal can and they fit its recommended working set."""
    if not mx.metal.is_available():
        return nullcontext()
    from mlx_lm.generate import wired_limit

    recommended = int(mx.device_info()["max_recommended_working_set_size"])
    return wired_limit(pair.target.module) if pair.weight_bytes < _WIRED_SHARE * recommended else nullcontext()


def warm_up(pair: Pair) -> None:
    """Generate a few tokens, so that the first answer does not wait for kernels to be compiled."""
    prompt = Prompt((0, 0), "answer")
    for rows in (block_size_for(pair, None).rows, 1):  # given, so that slow first rounds teach no widths
        engine = EngineParams(max_tokens=_WARM_TOKENS, block_size=rows)
        for _ in stream(pair, Request(prompt, default_sampling(pair), engine, TextParams(raw=True))):
            pass
