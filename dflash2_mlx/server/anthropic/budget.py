"""A limit on thinking: the answer goes on as if the model had closed it. Runs on the engine thread, over a session."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dflash2_mlx.events import Delta, Finished, Prefilling, Round, Summary, ToolCall
from dflash2_mlx.server.dialect import Work, answering
from dflash2_mlx.server.model import Engine, ServedModel
from dflash2_mlx.server.usage import end_of
from dflash2_mlx.session.statistics import Setting, Stats
from dflash2_mlx.text.prompt import Prompt

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event, Request

_CLOSING = "\n{tag}\n\n"


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `tokens` of thinking; `closing` are the tokens that end it, `tag` those of the tag alone."""

    tokens: int
    closing: tuple[int, ...]
    tag: tuple[int, ...]
    context: int


def budget_for(tokens: int, model: ServedModel) -> Budget | None:
    """The budget; None where the model has no closing tag, so that no limit can be kept."""
    tag = model.tokenizer.think_end
    if not tag:
        return None
    ids = model.tokenizer.encode(_CLOSING.format(tag=tag), add_special_tokens=False)
    alone = model.tokenizer.encode(tag, add_special_tokens=False)
    return Budget(tokens, tuple(ids), tuple(alone), model.context)


def answering_within(request: "Request", budget: Budget) -> Work:
    """The work of answering `request`, whose prompt is rendered, with no more thinking than `budget` allows.

    A round that would pass the limit is not kept, so that a few tokens of the budget may stay unused.
    """

    def work(engine: Engine) -> "Generator[Event, None, None]":
        assert isinstance(request.prompt, Prompt)
        stats = Stats(prompt_tokens=len(request.prompt.tokens))
        thought: list[int] = []
        with closing(answering(request)(engine)) as events:
            done = yield from _until_over(events, thought, budget, stats)
        if not done:
            with closing(answering(_rest(request, thought, budget))(engine)) as events:
                yield from _with_both(events, stats)

    return work


def _until_over(
    events: "Generator[Event, None, None]", thought: list[int], budget: Budget, stats: Stats
) -> "Generator[Event, None, bool]":
    """Relay `events` while the thinking is within its limit; whether they came to their end."""
    thinking = first = True
    for event in events:
        if isinstance(event, Prefilling):
            if first:
                stats.cached_tokens, first = event.done, False
        elif isinstance(event, Round) and thinking:
            left = budget.tokens - len(thought)
            if len(event.tokens) > left and end_of(budget.tag, [*thought, *event.tokens[:left]]) is None:
                return False
            thought += event.tokens
            stats.add(event)
        elif isinstance(event, ToolCall) or (isinstance(event, Delta) and event.channel == "answer"):
            thinking = False
        yield event
    return True


def _rest(request: "Request", thought: list[int], budget: Budget) -> "Request":
    """The request that goes on after the closing tag."""
    assert isinstance(request.prompt, Prompt)
    tokens = (*request.prompt.tokens, *thought, *budget.closing)
    room = max(0, budget.context - len(tokens))
    most = request.engine.max_tokens
    left = room if most is None else min(room, max(0, most - len(thought)))
    return replace(
        request,
        prompt=Prompt(tokens, "answer", request.prompt.boundaries),
        engine=replace(request.engine, max_tokens=left),
    )


def _with_both(events: "Generator[Event, None, None]", stats: Stats) -> "Generator[Event, None, None]":
    """Relay the second part; its Finished counts both."""
    for event in events:
        if isinstance(event, Round):
            stats.add(event)
        if isinstance(event, Finished):
            event = replace(event, summary=_joined(event.summary, stats))
        if not isinstance(event, Prefilling):
            yield event


def _joined(last: Summary, stats: Stats) -> Summary:
    setting = Setting(
        last.mode, last.block_size, last.block_size_reason, last.speculation_off, last.acceptance_rule, last.seed
    )
    return stats.summary(setting, last.peak_bytes)
