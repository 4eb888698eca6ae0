"""`POST /v1/completions`: raw text continued, without any template. Knows the text layer's events, no HTTP."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dflash2_mlx.config import MAX_TOP_LOGPROBS, TextParams
from dflash2_mlx.events import Delta, Finished, Round, TokenLogprob
from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.dialect import Heading, Prepared, answering
from dflash2_mlx.server.errors import invalid, unsupported
from dflash2_mlx.server.fields import engine_params, read_fields, sampling_params, stops, unless_unlimited
from dflash2_mlx.server.model import ServedModel
from dflash2_mlx.server.openai.bodies import CompletionBody
from dflash2_mlx.server.openai.chunks import ChunkWriter, numbers_of, only_one
from dflash2_mlx.server.openai.logprobs import completion_logprobs
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.server.usage import Tally
from dflash2_mlx.text.prompt import Prompt

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event


def read_completion(document: JsonObject, reading: Reading) -> Prepared:
    """A completion request, tokenised and checked. Raises: as `Dialect` says."""
    from dflash2_mlx.session.session import Request

    body, model = read_fields(CompletionBody, document, reading), reading.model
    only_one(body.n)
    for name, asked in (("echo", body.echo), ("suffix", body.suffix), ("best_of", (body.best_of or 1) > 1)):
        if asked:
            raise unsupported(name, "the text is continued once, and only the continuation is returned. Drop it.")
    if body.logprobs is not None and not 0 <= body.logprobs <= MAX_TOP_LOGPROBS:
        raise invalid(f"logprobs is {body.logprobs}. Give 0 to {MAX_TOP_LOGPROBS}.", "logprobs")
    prompt = model.raw(_prompt(body.prompt, model))
    sampling = sampling_params(body, model, body.logprobs)
    engine = engine_params(len(prompt.tokens), unless_unlimited(body.max_tokens), reading)
    writer = CompletionWriter(Heading(model.name, "cmpl-"), Tally.of(prompt, model), model, body)
    text = TextParams(stop=stops(body.stop), raw=True)
    return Prepared(answering(Request(prompt, sampling, engine, text)), writer, bool(body.stream))


def _prompt(given: str | list[str] | list[int] | list[list[int]], model: ServedModel) -> Prompt:
    """The one prompt. Raises: ApiError 400 for several, PromptError for an empty one."""
    if isinstance(given, list) and given and not isinstance(given[0], int):
        if len(given) > 1:
            raise unsupported("prompt", f"it is a list of {len(given)} prompts. Send one at a time.")
        given = given[0]
    if isinstance(given, str):
        model.check_length(given)
        return model.chat.raw(given)
    if not given:
        raise invalid("prompt is empty: there is nothing to continue. Give some text.", "prompt")
    tokens = cast(list[int], given)
    outside = [token for token in tokens if not 0 <= token < model.vocab_size]
    if outside:
        message = f"prompt holds token {str(outside[0])[:40]}, which is none of 0 to {model.vocab_size - 1}."
        raise invalid(message, "prompt")
    return Prompt(tuple(tokens), "answer")


class CompletionWriter(ChunkWriter):
    """Chunks of one text completion."""

    kind, content = "text_completion", "text"
    _offset = 0  # characters that the log probabilities were given of

    def filler(self) -> list[Frame]:
        return [self._chunk("")]

    def read(self, event: "Event") -> list[Frame]:
        self._tally.see(event)
        if isinstance(event, Round):
            self._note(event)
        if isinstance(event, Delta):
            return [self._chunk(event.text)]
        return self._ending(self._chunk("", event.reason), event) if isinstance(event, Finished) else []

    def fold(self, frames: Sequence[Frame]) -> dict[str, object]:
        text, finish, logprobs = "", None, dict[str, list[object]]()
        for frame in frames:
            for choice in cast(list[dict[str, object]], frame.data["choices"]):
                text += str(choice["text"])
                finish = choice["finish_reason"] or finish
                for key, values in cast(dict[str, list[object]], choice["logprobs"] or {}).items():
                    logprobs.setdefault(key, []).extend(values)
        choice = {"index": 0, "text": text, "logprobs": logprobs or None, "finish_reason": finish}
        return {**frames[0].data, **numbers_of(frames), "choices": [choice]}

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, object]:
        shape, self._offset = completion_logprobs(entries, self._model.token_bytes, self._offset)
        return shape
