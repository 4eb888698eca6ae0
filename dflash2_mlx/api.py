"""The Python interface: load a pair, generate or stream an answer. Knows sessions, nothing of the command line."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from dflash2_mlx.config import EngineParams, LoadParams, SamplingParams, TextParams
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Delta, Finished, FinishReason, Round, Summary, TokenLogprob, ToolCall
from dflash2_mlx.loading.load import load_opened
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.memory.verdict import check_memory
from dflash2_mlx.session.session import Conversation, Event, Request, default_sampling, stream
from dflash2_mlx.store.opening import open_pair


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. text: what stdout would show; rounds: accepted draft tokens of every drafted round."""

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    rounds: tuple[int, ...]
    finish_reason: FinishReason
    summary: Summary


def load(
    model: str = "demo",
    draft: str | None = None,
    *,
    draft_bits: int | None = None,
    speculate: bool = True,
    require_draft: bool = False,
) -> Pair:
    """The pair of target `model` and drafter `draft`: folders, repository ids in the local cache, or an alias.

    draft None = the drafter known for this model. draft_bits: 4 or 8 quantises it on load, 16 keeps it as stored.
    Warns where the memory is short. Raises: LoadError and its kinds; also where the pair does not fit this machine,
    unless DFLASH2_SKIP_FIT=1.
    """
    opened = open_pair(LoadParams(model, draft, draft_bits, None, speculate, require_draft))
    warning = check_memory(opened)
    if warning:
        warnings.warn(warning, stacklevel=2)
    return load_opened(opened)


def stream_generate(
    pair: Pair,
    prompt: Conversation,
    *,
    sampling: SamplingParams | None = None,
    engine: EngineParams | None = None,
    text: TextParams | None = None,
) -> Iterator[Event]:
    """Events of the answer to `prompt` (text or chat messages): Prefilling, Round, Delta, ToolCall, then Finished.

    sampling None = what the target's generation_config asks for. Close the iterator to stop early.
    Raises: PromptError, TemplateError, UsageError.
    """
    if not isinstance(pair, Pair):
        raise UsageError(f"the pair is of type {type(pair).__name__}. Give what load() returned.")
    return stream(
        pair, Request(prompt, sampling or default_sampling(pair), engine or EngineParams(), text or TextParams())
    )


def generate(
    pair: Pair,
    prompt: Conversation,
    *,
    sampling: SamplingParams | None = None,
    engine: EngineParams | None = None,
    text: TextParams | None = None,
) -> Answer:
    """The whole answer to `prompt`; see `stream_generate`."""
    return gather(stream_generate(pair, prompt, sampling=sampling, engine=engine, text=text))


def gather(events: Iterator[Event]) -> Answer:
    """The answer that `events`, which must run to their end, add up to."""
    kept: list[Event] = list(events)
    last = kept[-1]
    assert isinstance(last, Finished)
    rounds = [event for event in kept if isinstance(event, Round)]
    return Answer(
        text="".join(e.text for e in kept if isinstance(e, Delta) and e.channel == "answer"),
        reasoning="".join(e.text for e in kept if isinstance(e, Delta) and e.channel == "reasoning"),
        tool_calls=tuple(e for e in kept if isinstance(e, ToolCall)),
        tokens=tuple(token for done in rounds for token in done.tokens),
        logprobs=tuple(entry for done in rounds for entry in done.logprobs),
        rounds=tuple(done.accepted for done in rounds if done.drafted),
        finish_reason=last.reason,
        summary=last.summary,
    )
