"""What is served: a session for the engine thread, and what the event loop may know of it. Names no array."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dflash2_mlx.config import LoadParams, SamplingParams
from dflash2_mlx.server.errors import too_long
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.store.opening import OpenedPair
from dflash2_mlx.store.pairs import known_pair
from dflash2_mlx.text.messages import Message
from dflash2_mlx.text.prompt import PROBE, ChatFormat, Prompt
from dflash2_mlx.text.stream import DecodingTokenizer, TokenBytes
from dflash2_mlx.text.tags import Tool

_LEAST_TOKEN = 2  # characters; a text with fewer a token is rare, and then only counted late
_SLICE = 2**15  # characters
_DOUBT, _DOUBT_TOKENS = 1.02, 100  # what slicing may add

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash2_mlx.session.session import Event, Request


class Tokens(DecodingTokenizer, Protocol):
    """What is read of a tokenizer outside the text layer."""

    @property
    def think_end(self) -> str | None: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]: ...


class Answering(Protocol):
    """What is used of a session."""

    def stream(self, request: "Request") -> "Iterator[Event]": ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model as requests see it. Its tokenizer is not the engine's: the two are used on different threads.

    names: what a request may call it, the first being its own name. context: the most tokens of prompt and answer.
    sampling: what is used where a request says nothing. speculation_off: why nothing is drafted, else None.
    """

    names: tuple[str, ...]
    draft_name: str | None
    chat: ChatFormat
    tokenizer: Tokens
    token_bytes: TokenBytes
    context: int
    vocab_size: int
    end_tokens: frozenset[int]
    sampling: SamplingParams
    block_size: int
    block_size_reason: str
    speculation_off: str | None
    weight_bytes: int
    warnings: tuple[str, ...] = ()
    cache_bytes: int = 0  # what the session may keep of earlier texts; prompts then say where they may be cut

    @property
    def name(self) -> str:
        """The name that replies carry."""
        return self.names[0]

    @property
    def thinks(self) -> bool:
        """Whether it thinks where a request says nothing of it."""
        if "off" in self.chat.levels:
            return self.chat.render_text(PROBE) != self.chat.render_text(PROBE, reasoning="off")
        return bool(self.chat.levels) or self.chat.render(PROBE).channel == "reasoning"

    def render(self, messages: Sequence[Message], tools: Sequence[Tool], reasoning: str | None) -> Prompt:
        """The prompt of a conversation. Raises: PromptError, TemplateError, UsageError; ApiError if far too long."""
        if _characters([*messages, *tools]) >= _LEAST_TOKEN * self.context:  # the template may leave some of it out
            self.check_length(self.chat.render_text(messages, tools=tools or None, reasoning=reasoning))
        render = self.chat.render_for_reuse if self.cache_bytes else self.chat.render
        return render(messages, tools=tools or None, reasoning=reasoning)

    def check_length(self, whole: str) -> None:
        """Raise ApiError 400 for a text that is surely too long, before the whole of it is tokenised, several times.

        It is counted in slices, of which each may count a token or two too many, and the error's number is what
        the rest of the text would add at the same rate.
        """
        if len(whole) < _LEAST_TOKEN * self.context:
            return
        most, count = self.context * _DOUBT + _DOUBT_TOKENS, 0
        for start in range(0, len(whole), _SLICE):
            count += len(self.tokenizer.encode(whole[start : start + _SLICE], add_special_tokens=False))
            if count > most:
                raise too_long(count * len(whole) // min(start + _SLICE, len(whole)), self.context)

    def raw(self, prompt: Prompt) -> Prompt:
        """A prompt without a template, cut for reuse right before its last token."""
        whole = len(prompt.tokens) - 1
        return replace(prompt, boundaries=(whole,)) if self.cache_bytes and whole else prompt


@dataclass(frozen=True, slots=True)
class Kept:
    """What the session's prefix cache holds, and its budget."""

    nbytes: int = 0
    boundaries: int = 0
    budget_bytes: int = 0


@dataclass(slots=True)
class Engine:
    """What jobs are given on the engine thread. `kept` is renewed there after each job, and may be read anywhere."""

    session: Answering
    model: ServedModel
    measure: Callable[[], Kept] = Kept
    kept: Kept = field(init=False)

    def __post_init__(self) -> None:
        self.note_kept()

    def note_kept(self) -> None:
        """Renew `kept`."""
        self.kept = self.measure()


def open_engine(opened: OpenedPair, settings: ServeSettings) -> Engine:
    """Load the pair. To be called on the engine thread. Raises: LoadError and its kinds, UsageError."""
    from dflash2_mlx.loading.load import load_opened
    from dflash2_mlx.session.session import Session, block_size_for, default_cache_bytes, default_sampling

    pair = load_opened(opened)
    block = block_size_for(pair, settings.block_size)
    opened.params.check_block(block.rows)
    cache_bytes = default_cache_bytes(pair) if settings.cache_bytes is None else settings.cache_bytes
    session = Session(pair, cache_bytes=cache_bytes)
    session.open()
    kept, tokenizer = session.prefixes, copy.deepcopy(pair.tokenizer)
    limit = pair.target.context_limit
    model = ServedModel(
        names=_names(opened.params, settings),
        draft_name=pair.draft_name,
        chat=ChatFormat(tokenizer),
        tokenizer=tokenizer,
        token_bytes=TokenBytes(tokenizer),
        context=min(limit, settings.max_context or limit),
        vocab_size=pair.target.vocab_size,
        end_tokens=pair.end_tokens,
        sampling=default_sampling(pair),
        block_size=block.rows,
        block_size_reason=block.reason,
        speculation_off=block.reason if block.rows == 1 else None,
        weight_bytes=pair.weight_bytes,
        warnings=(block.warning,) if block.warning else (),
        cache_bytes=kept.budget_bytes,
    )
    return Engine(session, model, lambda: Kept(kept.nbytes, kept.boundaries, kept.budget_bytes))


def _characters(part: object) -> int:
    """About how long a part of a request is as text, names and all; it is never longer than so many by a factor."""
    if isinstance(part, str):
        return len(part)
    if isinstance(part, Mapping):
        return sum(_characters(key) + _characters(value) for key, value in part.items())
    return sum(map(_characters, part)) if isinstance(part, list | tuple) else 1


def _names(load: LoadParams, settings: ServeSettings) -> tuple[str, ...]:
    """The served name, then every other name of the same model; each once."""
    pair = known_pair(load.model)
    known = (pair.alias, pair.target.split("@")[0]) if pair else ()
    return tuple(dict.fromkeys((settings.served_name or load.model, load.model, load.model.split("@")[0], *known)))
