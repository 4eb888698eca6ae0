"""What is served: a session for the engine thread, and what the event loop may know of it. Names no array."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dflash2_mlx.config import LoadParams, SamplingParams
from dflash2_mlx.pairs import known_pair
from dflash2_mlx.server.settings import Settings
from dflash2_mlx.text.prompt import PROBE, ChatFormat
from dflash2_mlx.text.stream import DecodingTokenizer, TokenBytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash2_mlx.session import Event, Request


class Tokens(DecodingTokenizer, Protocol):
    """What is read of a tokenizer outside the text layer."""

    @property
    def think_end(self) -> str | None: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]: ...


class Answering(Protocol):
    """What is used of a session."""

    def stream(self, request: "Request") -> "Iterator[Event]": ...


@dataclass(frozen=True, slots=True)
class Served:
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

    @property
    def name(self) -> str:
        """The name that replies carry."""
        return self.names[0]

    @property
    def thinks(self) -> bool:
        """Whether it thinks where a request says nothing of it; True where that cannot be told."""
        if "off" not in self.chat.levels:
            return True
        return self.chat.render_text(PROBE) != self.chat.render_text(PROBE, reasoning="off")


@dataclass(frozen=True, slots=True)
class Engine:
    """What jobs are given on the engine thread."""

    session: Answering
    served: Served


def open_engine(load: LoadParams, settings: Settings) -> Engine:
    """Load the pair. To be called on the engine thread. Raises: LoadError and its kinds, UsageError."""
    from dflash2_mlx.loading import load_pair
    from dflash2_mlx.session import Session, block_size_for, default_sampling

    pair = load_pair(load)
    block = block_size_for(pair, settings.block_size)
    tokenizer = copy.deepcopy(pair.tokenizer)
    limit = pair.target.context_limit
    served = Served(
        names=_names(load, settings),
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
    )
    return Engine(Session(pair), served)


def _names(load: LoadParams, settings: Settings) -> tuple[str, ...]:
    """The served name, then every other name of the same model; each once."""
    pair = known_pair(load.model)
    known = (pair.alias, pair.target.split("@")[0]) if pair else ()
    return tuple(dict.fromkeys((settings.served_name or load.model, load.model, load.model.split("@")[0], *known)))


def listed(levels: Mapping[str, str] | Sequence[str]) -> str:
    """Words for a message."""
    return ", ".join(levels) if levels else "nothing"
