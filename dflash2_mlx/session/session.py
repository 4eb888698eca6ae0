"""Answers over a loaded pair: prompt -> engine -> text. Knows the engine, the text layer and the device's memory."""

import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace

import mlx.core as mx

from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.engine.adaptive import AdaptiveDrafter
from dflash2_mlx.engine.baseline import decode_plain
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.prefill import Drafter, room_for, take_in
from dflash2_mlx.engine.widths import BlockSize
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Delta, Ended, Finished, FinishReason, Prefilling, Round, ToolCall
from dflash2_mlx.loading.load import Pair, block_size_of
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.session.prefixes import PrefixCache
from dflash2_mlx.session.statistics import Setting, Stats
from dflash2_mlx.text.messages import user_message
from dflash2_mlx.text.prompt import Prompt
from dflash2_mlx.text.stream import TextPipeline

Conversation = str | Sequence[Mapping[str, object]]
_WIRED_SHARE = 0.9  # above it wiring starves the system
_WARM_TOKENS = 12
_CACHE_SHARE, _LEAST_CACHE_BYTES, _MOST_CACHE_BYTES = 0.25, 2**29, 2**33
Event = Prefilling | Round | Delta | ToolCall | Finished


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to generate. `prompt`: what to answer, as text, as chat messages, or as `render` gave it.

    Raises: UsageError for settings of another type.
    """

    prompt: Conversation | Prompt
    sampling: SamplingParams
    engine: EngineParams = field(default_factory=EngineParams)
    text: TextParams = field(default_factory=TextParams)

    def __post_init__(self) -> None:
        given = (("sampling", self.sampling, SamplingParams), ("engine", self.engine, EngineParams))
        for name, value, kind in (*given, ("text", self.text, TextParams)):
            if not isinstance(value, kind):
                raise UsageError(f"{name} is of type {type(value).__name__}. Give {kind.__name__}(...).")


def default_sampling(pair: Pair) -> SamplingParams:
    """The sampling settings that the target's generation_config asks for."""
    known = pair.defaults
    return SamplingParams(
        temperature=float(known.get("temperature", 0.0)),
        top_p=float(known.get("top_p", 1.0)),
        top_k=int(known.get("top_k", 0)),
        min_p=float(known.get("min_p", 0.0)),
        repetition_penalty=float(known.get("repetition_penalty", 1.0)),
    )


def block_size_for(pair: Pair, requested: int | None) -> BlockSize:
    """The block size in use for this pair and why; 1 where there is no drafter.

    Raises: UsageError for more rows than the drafter was trained with.
    """
    if pair.drafter is None:
        return BlockSize(1, pair.speculation_off or "no drafter is loaded")
    return block_size_of(pair.target, pair.drafter, requested)


def default_cache_bytes(pair: Pair) -> int:
    """What earlier texts may hold: a quarter of the memory that the weights leave, 0.5 to 8 GiB."""
    machine = probe()
    free = (machine.working_set_bytes or machine.memory_bytes or 0) - pair.weight_bytes
    return max(_LEAST_CACHE_BYTES, min(_MOST_CACHE_BYTES, int(_CACHE_SHARE * free)))


def render(pair: Pair, request: Request, *, reuse: bool = False) -> Prompt:
    """The prompt's tokens; with the boundaries of later prompts where they are of use.

    Raises: PromptError, TemplateError, UsageError.
    """
    text = request.text
    if isinstance(request.prompt, Prompt):
        return request.prompt
    if text.raw:
        if not isinstance(request.prompt, str):
            raise UsageError("chat messages need the chat template: drop raw, or give the prompt as text.")
        return pair.chat.raw(request.prompt)
    messages = user_message(request.prompt, text.system) if isinstance(request.prompt, str) else request.prompt
    tools, reasoning = text.tools or None, text.reasoning
    if not reuse:
        return pair.chat.render(messages, tools=tools, reasoning=reasoning)
    most = pair.target.context_limit
    return pair.chat.render_for_reuse(messages, tools=tools, reasoning=reasoning, most=most)


def wired_memory(pair: Pair) -> AbstractContextManager[None]:
    """Keep the weights in memory while an answer runs, where Metal can and they fit its recommended working set."""
    if not mx.metal.is_available():
        return nullcontext()
    from mlx_lm.generate import wired_limit

    recommended = int(mx.device_info()["max_recommended_working_set_size"])
    return wired_limit(pair.target.module) if pair.weight_bytes < _WIRED_SHARE * recommended else nullcontext()


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
        block = block_size_for(self.pair, request.engine.block_size)
        reuse = self.prefixes.budget_bytes > 0
        prompt = render(self.pair, request, reuse=reuse)
        if reuse and not prompt.boundaries:  # text without turns: it may come again, or go on
            prompt = replace(prompt, boundaries=(len(prompt.tokens) - 1,))
        yield from _Answer(self, request, prompt, block).run()


def stream(pair: Pair, request: Request) -> Iterator[Event]:
    """Answer one `request` with nothing kept from earlier ones; see `Session.stream`."""
    yield from Session(pair).stream(request)


def warm_up(pair: Pair) -> None:
    """Generate a few tokens, so that the first answer does not wait for kernels to be compiled."""
    prompt = Prompt((0, 0), "answer")
    for rows in (block_size_for(pair, None).rows, 1):  # given, so that slow first rounds teach `pair.widths` nothing
        engine = EngineParams(max_tokens=_WARM_TOKENS, block_size=rows)
        for _ in stream(pair, Request(prompt, default_sampling(pair), engine, TextParams(raw=True))):
            pass


class _Answer:
    """The state of one answer while it is generated."""

    def __init__(self, session: Session, request: Request, prompt: Prompt, block: BlockSize) -> None:
        pair = session.pair
        self._pair, self._prefixes, self._prompt, self._block = pair, session.prefixes, prompt, block
        self._drafter: Drafter | None = pair.drafter if block.rows > 1 else None
        # rejection draws other random numbers at every width, so there a seed needs a fixed one
        self._policy = pair.widths if request.engine.block_size is None and not self._rejects(request) else None
        if pair.drafter and self._drafter and self._policy:
            self._drafter = AdaptiveDrafter(pair.drafter, self._policy)
        self._room = room_for(prompt.tokens, pair.target.context_limit, request.engine)
        self._committed: list[int] = []
        sampling = request.sampling
        if sampling.seed is None and sampling.temperature > 0:
            sampling = replace(sampling, seed=secrets.randbits(32))
        self._sampling = sampling
        ends = request.engine.end_tokens or pair.end_tokens
        rows = None if self._policy else block.rows
        self._engine = replace(request.engine, block_size=rows, end_tokens=ends)
        self._text = TextPipeline.answering(pair.tokenizer, prompt, request.text, ends)
        self._stats = Stats(prompt_tokens=len(prompt.tokens))

    def run(self) -> Iterator[Event]:
        pair = self._pair
        if pair.target.answering:
            raise UsageError("this pair is already answering, and it has one cache. Finish or close that answer first.")
        pair.target.answering = True
        try:
            yield from self._answer()
        finally:
            pair.target.answering = False

    def _answer(self) -> Iterator[Event]:
        prefixes, prompt = self._prefixes, self._prompt
        mx.reset_peak_memory()
        self._stats.cached_tokens = prefixes.open(
            prompt.tokens, boundaries=prompt.boundaries, drafting=self._drafter is not None
        )
        try:
            with wired_memory(self._pair):
                yield from self._take_in()
                reason = yield from self._decode()
        except GeneratorExit:
            prefixes.close((*prompt.tokens, *self._committed))
            raise
        except BaseException:  # whatever stopped it may have left the caches between two states
            prefixes.drop()
            raise
        prefixes.close((*prompt.tokens, *self._committed))
        if self._text.stopped is not None:  # read after finish: the last characters may complete a stop string
            reason = "stop"
        yield Finished(reason, self._text.stopped, self._stats.summary(self._setting(), mx.get_peak_memory()))

    def _take_in(self) -> Iterator[Event]:
        """Prefill up to each boundary of the prompt, and keep it."""
        target, tokens = self._pair.target, self._prompt.tokens
        for boundary in self._prompt.boundaries if self._room else ():
            if target.position < boundary < len(tokens):
                yield from take_in(target, self._drafter, tokens, self._engine.prefill_chunk, boundary)
                self._prefixes.mark(tokens)

    def _decode(self) -> Generator[Event, None, FinishReason]:
        """Run the engine from where the caches are, and read what it says; why it ended."""
        target, prompt = self._pair.target, self._prompt.tokens
        reason: FinishReason = "length"
        if self._drafter:
            events = decode(target, self._drafter, prompt, self._sampling, self._engine)
        else:
            events = decode_plain(target, prompt, self._sampling, self._engine)
        with closing(events):
            for event in events:
                if isinstance(event, Ended):
                    reason = event.reason
                elif isinstance(event, Prefilling):
                    yield event
                else:
                    self._committed += event.tokens
                    yield from self._read(event)
                    if self._text.stopped is not None:
                        break
        yield from self._text.finish()
        return reason

    def _read(self, done: Round) -> Iterator[Event]:
        """The round, cut where a stop string completed, then its text."""
        texts, count = self._text.push(done.tokens)
        if count is not None:
            done = done.cut(count)
        self._stats.add(done)
        yield done
        yield from texts

    def _rejects(self, request: Request) -> bool:
        return request.engine.acceptance == "rejection" and request.sampling.temperature > 0

    def _setting(self) -> Setting:
        plain = self._block.rows == 1
        return Setting(
            mode="plain" if plain else "drafted",
            block_size=self._block.rows,
            block_size_reason=self._block.reason + (self._policy.note() if self._policy and not plain else ""),
            speculation_off=self._block.reason if plain else None,
            acceptance_rule="greedy" if self._sampling.temperature == 0 else self._engine.acceptance,
            seed=self._sampling.seed,
        )
