"""What the chunks of OpenAI's chat and text completions share: the heading, log probabilities, and the end."""

from abc import abstractmethod
from collections.abc import Sequence

from dflash2_mlx import __version__
from dflash2_mlx.events import Finished, Round, TokenLogprob
from dflash2_mlx.server.dialect import Heading, Writer
from dflash2_mlx.server.errors import ApiError, unsupported
from dflash2_mlx.server.model import ServedModel
from dflash2_mlx.server.openai.bodies import ChatBody, CompletionBody
from dflash2_mlx.server.openai.logprobs import shown
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.server.usage import Tally, timings

_FINGERPRINT = f"dflash2-mlx-{__version__}"
_NUMBERS = ("usage", "timings", "dflash")


def only_one(n: int | None) -> None:
    """Raise ApiError 400 for more than one choice."""
    if n is not None and n != 1:
        raise unsupported("n", f"it is {n}, and one choice is given. Send the request again for another.")


def numbers_of(frames: Sequence[Frame]) -> dict[str, object]:
    """The numbers that the last chunks carry."""
    return {key: frame.data[key] for frame in frames for key in _NUMBERS if key in frame.data}


class ChunkWriter(Writer):
    """kind: the chunks' object. content: the key of what a choice adds."""

    kind: str
    content: str
    ends_with_done = True

    def __init__(self, heading: Heading, tally: Tally, model: ServedModel, body: ChatBody | CompletionBody) -> None:
        self._heading, self._tally, self._model = heading, tally, model
        asked = body.stream_options and body.stream_options.include_usage
        self._pending: dict[str, object] = {"usage": None} if asked and body.stream else {}  # of all but the last chunk
        self._usage_wanted = bool(asked or not body.stream)  # a reply that is not streamed always has usage
        self._logprobs_wanted = body.logprobs not in (None, False)
        self._entries: list[TokenLogprob] = []  # of tokens whose text has not come yet

    def failed(self, error: ApiError) -> list[Frame]:
        return [Frame({"error": error.openai(), "choices": []})]

    @abstractmethod
    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, object]:
        """A choice's log probabilities."""

    def _note(self, done: Round) -> None:
        """Keep the round's log probabilities for the next chunk."""
        self._entries += shown(done, self._model.end_tokens)

    def _chunk(self, content: object, finish_reason: str | None = None) -> Frame:
        """A chunk with the log probabilities of the tokens since the last one."""
        entries, self._entries = self._entries, []
        logprobs = self._logprobs(entries) if entries and self._logprobs_wanted else None
        return self._frame({"index": 0, self.content: content, "logprobs": logprobs, "finish_reason": finish_reason})

    def _ending(self, last: Frame, event: Finished) -> list[Frame]:
        """The `last` chunk with its numbers; with one more for usage where that is wanted."""
        numbers = {"timings": timings(event.summary), "dflash": self._tally.dflash(event.summary)}
        if not self._usage_wanted:
            return [Frame({**last.data, **numbers})]
        return [last, Frame({**self._frame().data, "usage": self._tally.usage(event.summary), **numbers})]

    def _frame(self, *choices: object) -> Frame:
        heading = self._heading
        return Frame(
            {
                "id": heading.id,
                "object": self.kind,
                "created": heading.created,
                "model": heading.model,
                "system_fingerprint": _FINGERPRINT,
                "choices": list(choices),
                **self._pending,
            }
        )
