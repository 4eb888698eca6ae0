"""What a dialect gives the exchange: how to read a request and how to write its answer. Knows no dialect by name."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.errors import ApiError
from dflash2_mlx.server.model import Engine
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.server.sse import Frame

if TYPE_CHECKING:
    from collections.abc import Generator

    from dflash2_mlx.session.session import Event, Request

Work = Callable[[Engine], "Generator[Event, None, None]"]


class Writer(ABC):
    """Events in, frames out. The reply that is not streamed is folded from the same frames, so both always agree."""

    ends_with_done = False  # whether `[DONE]` closes the stream

    def opening(self) -> list[Frame]:
        """What is sent before anything is computed."""
        return []

    @abstractmethod
    def read(self, event: "Event") -> list[Frame]:
        """What `event` adds."""

    @abstractmethod
    def failed(self, error: ApiError) -> list[Frame]:
        """The end of a stream that cannot go on."""

    def sign_of_life(self) -> list[Frame]:
        """A frame that says nothing, where this dialect has one that clients wait for instead of comments."""
        return []

    def filler(self) -> list[Frame]:
        """A data frame that says nothing, for clients that do not count comments."""
        return self.sign_of_life()

    @abstractmethod
    def fold(self, frames: Sequence[Frame]) -> dict[str, object]:
        """The whole reply."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked request: what the engine is to do, and who writes the answer."""

    work: Work
    writer: Writer
    stream: bool


class Dialect(Protocol):
    """Reads the requests of one route."""

    def __call__(self, document: JsonObject, reading: Reading) -> Prepared:
        """The request, rendered and checked. Raises: ApiError; PromptError, TemplateError, UsageError."""


@dataclass(frozen=True, slots=True)
class Heading:
    """What every frame of one reply repeats."""

    model: str
    prefix: str
    created: int = field(default_factory=lambda: int(time.time()))
    unique: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def id(self) -> str:
        """The reply's id."""
        return f"{self.prefix}{self.unique}"


def answering(request: "Request") -> Work:
    """The work of answering `request`."""

    def work(engine: Engine) -> "Generator[Event, None, None]":
        try:
            yield from engine.session.stream(request)
        finally:
            engine.note_kept()

    return work
