"""One answer while it is generated: prompt -> engine -> text, over kept prefixes. Knows the engine and the text."""

import secrets
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from threading import get_ident

import mlx.core as mx

from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.prefill import take_in
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.engine.steps import decode_plain
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Ended, Event, Finished, FinishReason, Prefilling, Round, Setting
from dflash2_mlx.loading.load import Pair
from dflash2_mlx.session.known import block_size_for, known_of
from dflash2_mlx.session.prefixes import PrefixCache
from dflash2_mlx.session.request import Request
from dflash2_mlx.session.statistics import Stats
from dflash2_mlx.text.channels import Channels
from dflash2_mlx.text.pipeline import TextPipeline
from dflash2_mlx.text.prompt import Prompt


class Answer:
    """The answer to `request`, whose prompt was rendered. Raises: PromptError, UsageError."""

    def __init__(self, pair: Pair, prefixes: PrefixCache, request: Request, prompt: Prompt) -> None:
        self._pair, self._prefixes, self._boundaries = pair, prefixes, prompt.boundaries
        sampling, engine, text = request.sampling, request.engine, request.text
        self._block = block_size_for(pair, engine.block_size)
        self._drafter = pair.drafter if self._block.rows > 1 else None
        # rejection draws other random numbers at every width, so there a seed needs a fixed one
        rejects = engine.acceptance == "rejection" and sampling.temperature > 0
        automatic = self._drafter is not None and engine.block_size is None and not rejects
        self._policy = known_of(pair).widths if automatic else None
        if sampling.seed is None and sampling.temperature > 0:
            sampling = replace(sampling, seed=secrets.randbits(32))
        ends = engine.end_tokens or pair.end_tokens
        engine = replace(engine, block_size=self._block.rows, end_tokens=ends)
        self._task = Task(prompt.tokens, sampling, engine)
        self._room = self._task.room(pair.target.context_limit)
        self._committed: list[int] = []
        channels = Channels(pair.tokenizer, start=prompt.channel, tools=list(text.tools))
        channels = Channels.plain() if text.raw else channels
        self._text = TextPipeline.reading(pair.tokenizer, channels, stop=text.stop, end_tokens=ends)

    def run(self) -> Iterator[Event]:
        """All events. Raises: UsageError where the pair is answering already, or where two threads take them."""
        known = known_of(self._pair)
        if known.answering:
            raise UsageError("this pair is already answering, and it has one cache. Finish or close that answer first.")
        known.answering, self._thread = True, get_ident()
        self._stats = Stats(prompt_tokens=len(self._task.prompt))
        try:
            with closing(self._answer()) as events:
                for event in events:
                    yield event
                    if get_ident() != self._thread and not isinstance(event, Finished):
                        raise UsageError(
                            "an answer's events were taken on two threads, and MLX cannot go on with its work on "
                            "another one. Take them all on one thread, or call generate()."
                        )
        finally:
            known.answering = False

    def _answer(self) -> Generator[Event, None, None]:
        prefixes, prompt = self._prefixes, self._task.prompt
        mx.reset_peak_memory()
        if self._policy:
            self._policy.start()
        damaged = True  # whatever stops it may leave the caches between two states
        try:
            drafting = self._drafter is not None
            self._stats.cached_tokens = prefixes.open(prompt, boundaries=self._boundaries, drafting=drafting)
            yield from self._take_in()
            reason = yield from self._decode()
            damaged = False
        except GeneratorExit:
            damaged = get_ident() != self._thread
            raise
        finally:
            if damaged:
                prefixes.drop()
            else:
                prefixes.close((*prompt, *self._committed))
        if self._text.stopped is not None:  # read after finish: the last characters may complete a stop string
            reason = "stop"
        yield Finished(reason, self._text.stopped, self._stats.summary(self._setting(), mx.get_peak_memory()))

    def _take_in(self) -> Iterator[Event]:
        """Prefill up to each boundary of the prompt, and keep it."""
        target, prompt = self._pair.target, self._task.prompt
        for boundary in self._boundaries if self._room else ():
            if target.position < boundary < len(prompt):
                yield from take_in(target, self._drafter, self._task, boundary)
                self._prefixes.mark(prompt)

    def _decode(self) -> Generator[Event, None, FinishReason]:
        """Run the engine from where the caches are, and read what it says; why it ended."""
        target, task = self._pair.target, self._task
        reason: FinishReason = "length"
        events = decode(target, self._drafter, task, self._policy) if self._drafter else decode_plain(target, task)
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

    def _setting(self) -> Setting:
        plain, sampling = self._drafter is None, self._task.sampling
        plain_rate, drafted_rate = self._policy.rates() if self._policy else (None, None)
        return Setting(
            mode="plain" if plain else "drafted",
            block_size=self._block.rows,
            block_size_reason=self._block.reason + (self._policy.note() if self._policy else ""),
            speculation_off=self._block.reason if plain else None,
            acceptance_rule="greedy" if sampling.temperature == 0 else self._task.params.acceptance,
            seed=sampling.seed,
            plain_rate=plain_rate,
            drafted_rate=drafted_rate,
        )
