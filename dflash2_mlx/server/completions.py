"""`POST /v1/completions`: raw text continued, without any template. Knows the text layer's events, no HTTP."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dflash2_mlx.config import MAX_TOP_LOGPROBS, TextParams
from dflash2_mlx.events import Delta, Finished, Round, TokenLogprob
from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.chat import FINGERPRINT, extra, only_one, wants_usage
from dflash2_mlx.server.dialect import Call, Heading, answering
from dflash2_mlx.server.errors import ApiError, invalid, unsupported
from dflash2_mlx.server.fields import check_model, engine_params, read_fields, refuse_other, sampling_params, stops
from dflash2_mlx.server.logprobs import completion_logprobs, shown
from dflash2_mlx.server.numbers import Tally, timings
from dflash2_mlx.server.schemas_openai import CompletionBody
from dflash2_mlx.server.served import Served
from dflash2_mlx.server.settings import Settings
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.text.prompt import Prompt

if TYPE_CHECKING:
    from dflash2_mlx.session import Event


def read_completion(document: JsonObject, served: Served, settings: Settings) -> Call:
    """A completion request, tokenised and checked. Raises: as `Dialect` says."""
    from dflash2_mlx.session import Request

    body = read_fields(CompletionBody, document)
    check_model(body.model, served)
    refuse_other(body)
    only_one(body.n)
    for name, asked in (("echo", body.echo), ("suffix", body.suffix), ("best_of", (body.best_of or 1) > 1)):
        if asked:
            raise unsupported(name, "the text is continued once, and only the continuation is returned. Drop it.")
    if body.logprobs is not None and not 0 <= body.logprobs <= MAX_TOP_LOGPROBS:
        raise invalid(f"logprobs is {body.logprobs}. Give 0 to {MAX_TOP_LOGPROBS}.", "logprobs")
    prompt = served.raw(_prompt(body.prompt, served))
    sampling = sampling_params(body, served, body.logprobs)
    engine = engine_params(len(prompt.tokens), body.max_tokens, served, settings)
    tally = Tally(served.tokenizer, reasons=False, warnings=list(served.warnings))
    writer = CompletionWriter(Heading(served.name, "cmpl-"), tally, served)
    writer.usage_wanted, writer.logprobs_wanted = wants_usage(body), body.logprobs is not None
    text = TextParams(stop=stops(body.stop), raw=True)
    return Call(answering(Request(prompt, sampling, engine, text)), writer, bool(body.stream), extra(body))


def _prompt(given: str | list[str] | list[int] | list[list[int]], served: Served) -> Prompt:
    """The one prompt. Raises: ApiError 400 for several, PromptError for an empty one."""
    if isinstance(given, list) and given and not isinstance(given[0], int):
        if len(given) > 1:
            raise unsupported("prompt", f"it is a list of {len(given)} prompts. Send one at a time.")
        given = given[0]
    if isinstance(given, str):
        served.check_length(given)
        return served.chat.raw(given)
    if not given:
        raise invalid("prompt is empty: there is nothing to continue. Give some text.", "prompt")
    tokens = cast(list[int], given)
    outside = [token for token in tokens if not 0 <= token < served.vocab_size]
    if outside:
        message = f"prompt holds token {str(outside[0])[:40]}, which is none of 0 to {served.vocab_size - 1}."
        raise invalid(message, "prompt")
    return Prompt(tuple(tokens), "answer")


class CompletionWriter:
    """Chunks of one text completion."""

    ends_with_done = True

    def __init__(self, heading: Heading, tally: Tally, served: Served) -> None:
        self._heading, self._tally, self._served = heading, tally, served
        self.usage_wanted = self.logprobs_wanted = False
        self._entries: list[TokenLogprob] = []  # of tokens whose text has not come yet
        self._offset = 0

    def opening(self) -> list[Frame]:
        return []

    def sign_of_life(self) -> list[Frame]:
        return []

    def filler(self) -> list[Frame]:
        return [self._chunk("")]

    def read(self, event: "Event") -> list[Frame]:
        self._tally.see(event)
        if isinstance(event, Round):
            self._entries += shown(event, self._served.end_tokens)
        if isinstance(event, Delta):
            return [self._chunk(event.text)]
        return self._finish(event) if isinstance(event, Finished) else []

    def failed(self, error: ApiError) -> list[Frame]:
        return [Frame({"error": error.openai(), "choices": []})]

    def fold(self, frames: Sequence[Frame]) -> dict[str, object]:
        reply: dict[str, object] = dict(frames[0].data)
        text, finish, logprobs = "", None, dict[str, list[object]]()
        for frame in frames:
            reply.update({key: frame.data[key] for key in ("usage", "timings", "dflash") if key in frame.data})
            for choice in cast(list[dict[str, object]], frame.data["choices"]):
                text += str(choice["text"])
                finish = choice["finish_reason"] or finish
                for key, values in cast(dict[str, list[object]], choice["logprobs"] or {}).items():
                    logprobs.setdefault(key, []).extend(values)
        choice = {"index": 0, "text": text, "logprobs": logprobs or None, "finish_reason": finish}
        return {**reply, "choices": [choice]}

    def _finish(self, event: Finished) -> list[Frame]:
        last = self._chunk("", event.reason)
        numbers = {"timings": timings(event.summary), "dflash": self._tally.dflash(event.summary)}
        if not self.usage_wanted:
            return [Frame({**last.data, **numbers})]
        usage = {"usage": self._tally.usage(event.summary), **numbers}
        return [last, Frame({**self._head(), "choices": [], **usage})]

    def _head(self) -> dict[str, object]:
        heading = self._heading
        return {
            "id": heading.id,
            "object": "text_completion",
            "created": heading.created,
            "model": heading.model,
            "system_fingerprint": FINGERPRINT,
        }

    def _chunk(self, text: str, finish_reason: str | None = None) -> Frame:
        choice: dict[str, object] = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        if self.logprobs_wanted and self._entries:
            shape, self._offset = completion_logprobs(self._entries, self._served.token_bytes, self._offset)
            choice["logprobs"] = shape
        self._entries = []
        return Frame({**self._head(), "choices": [choice]})
