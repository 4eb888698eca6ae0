"""`POST /v1/chat/completions`: OpenAI's chat, streamed and whole. Knows the text layer's events, no HTTP."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dflash2_mlx import __version__
from dflash2_mlx.config import MAX_TOP_LOGPROBS, TextParams
from dflash2_mlx.events import Delta, Finished, Round, TokenLogprob, ToolCall
from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.conversation import conversation
from dflash2_mlx.server.dialect import Call, Heading, answering
from dflash2_mlx.server.errors import ApiError, invalid, unsupported
from dflash2_mlx.server.fields import (
    Fields,
    check_model,
    engine_params,
    read_fields,
    reasoning_word,
    refuse_other,
    sampling_params,
    stops,
    template_word,
    thinking_word,
)
from dflash2_mlx.server.logprobs import chat_logprobs, shown
from dflash2_mlx.server.numbers import Tally, timings
from dflash2_mlx.server.schemas_openai import ChatBody, CompletionFields
from dflash2_mlx.server.served import Served
from dflash2_mlx.server.settings import Settings
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.server.tools import offered_tools

if TYPE_CHECKING:
    from dflash2_mlx.session import Event

FINGERPRINT = f"dflash2-mlx-{__version__}"


def read_chat(document: JsonObject, served: Served, settings: Settings) -> Call:
    """A chat request, rendered and checked. Raises: as `Dialect` says."""
    from dflash2_mlx.session import Request

    body = read_fields(ChatBody, document)
    check_model(body.model, served)
    _refuse(body)
    tools, ignored = offered_tools(body.tools, body.tool_choice)
    word = reasoning(body, served, settings)
    logprobs = top_count(body.logprobs, body.top_logprobs)
    sampling = sampling_params(body, served, logprobs)
    text = TextParams(stop=stops(body.stop), tools=tools)
    prompt = served.render(conversation(body.messages), tools, word)
    name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    engine = engine_params(len(prompt.tokens), getattr(body, name), served, settings, name)
    tally = Tally(served.tokenizer, prompt.channel == "reasoning", warnings=list(served.warnings))
    writer = ChatWriter(Heading(served.name, "chatcmpl-"), tally, served)
    writer.usage_wanted = wants_usage(body)
    writer.one_call = body.parallel_tool_calls is False
    writer.logprobs_wanted = logprobs is not None
    return Call(answering(Request(prompt, sampling, engine, text)), writer, bool(body.stream), extra(body, *ignored))


def _refuse(body: ChatBody) -> None:
    refuse_other(body)
    only_one(body.n)
    kind = (body.response_format or {}).get("type", "text")
    if kind != "text":
        raise unsupported(
            "response_format", f"type {str(kind)[:40]!r} cannot be enforced yet. Ask for it in the prompt."
        )
    if body.modalities not in (None, [], ["text"]):
        raise unsupported("modalities", "this server answers in text only.")


def only_one(n: int | None) -> None:
    """Raise ApiError 400 for more than one choice."""
    if n is not None and n != 1:
        raise unsupported("n", f"it is {n}, and one choice is given. Send the request again for another.")


def wants_usage(body: CompletionFields) -> bool:
    """Whether a stream is to end in a usage chunk. A request that is not streamed always has usage."""
    return bool(not body.stream or (body.stream_options and body.stream_options.include_usage))


def reasoning(body: ChatBody, served: Served, settings: Settings) -> str | None:
    """Our reasoning word, whichever of the three fields says it. Raises: ApiError 400."""
    named = reasoning_word(body.reasoning_effort, served, settings, "reasoning_effort")
    told = template_word(body.chat_template_kwargs, served, settings)
    if named is not None and told is not None and named != told:
        raise invalid("reasoning_effort and chat_template_kwargs contradict each other. Drop one.", "reasoning_effort")
    return thinking_word(body.enable_thinking, named or told, served, "enable_thinking")


def top_count(logprobs: bool | None, top: int | None) -> int | None:
    """How many likeliest tokens are wanted beside each one; None without logprobs. Raises: ApiError 400."""
    if top is not None and not 0 <= top <= MAX_TOP_LOGPROBS:
        raise invalid(f"top_logprobs is {top}. Give 0 to {MAX_TOP_LOGPROBS}.", "top_logprobs")
    if top and not logprobs:
        raise invalid("top_logprobs needs logprobs: true.", "top_logprobs")
    return (top or 0) if logprobs else None


def extra(body: Fields, *more: str) -> tuple[str, ...]:
    """Names of fields that nobody reads."""
    return (*(name for name, value in (body.model_extra or {}).items() if value is not None), *more)


class ChatWriter:
    """Chunks of one chat completion: the role once, a chunk a round and channel, one finish_reason."""

    ends_with_done = True

    def __init__(self, heading: Heading, tally: Tally, served: Served) -> None:
        self._heading, self._tally, self._served = heading, tally, served
        self.usage_wanted = self.one_call = self.logprobs_wanted = False
        self._opened = False
        self._calls = self._dropped = 0
        self._entries: list[TokenLogprob] = []  # of tokens whose text has not come yet

    def opening(self) -> list[Frame]:
        return []

    def sign_of_life(self) -> list[Frame]:
        return []

    def filler(self) -> list[Frame]:
        return [self._chunk({})] if self._opened else self._open([])

    def read(self, event: "Event") -> list[Frame]:
        self._tally.see(event)
        if isinstance(event, Round):
            self._entries += shown(event, self._served.end_tokens)
            return self._open([])
        if isinstance(event, Delta):
            key = "reasoning_content" if event.channel == "reasoning" else "content"
            return self._open([self._chunk({key: event.text})])
        if isinstance(event, ToolCall):
            return self._open(self._call(event))
        return self._open(self._finish(event)) if isinstance(event, Finished) else []

    def failed(self, error: ApiError) -> list[Frame]:
        return [Frame({"error": error.openai(), "choices": []})]

    def fold(self, frames: Sequence[Frame]) -> dict[str, object]:
        return fold_chat(frames)

    def _open(self, frames: list[Frame]) -> list[Frame]:
        if self._opened:
            return frames
        self._opened = True
        return [Frame({**self._head(), "choices": [_choice({"role": "assistant", "content": ""})]}), *frames]

    def _call(self, event: ToolCall) -> list[Frame]:
        if self.one_call and self._calls:
            self._dropped += 1
            return []
        number, self._calls = self._calls, self._calls + 1
        function = {"name": event.name, "arguments": event.arguments}
        call = {
            "index": number,
            "id": f"call_{self._heading.unique}_{number}",
            "type": "function",
            "function": function,
        }
        return [self._chunk({"tool_calls": [call]})]

    def _finish(self, event: Finished) -> list[Frame]:
        if self._dropped:
            self._tally.warnings.append(
                f"parallel_tool_calls is false: {self._dropped} further tool calls were dropped"
            )
        reason = "tool_calls" if event.reason == "stop" and self._calls else event.reason
        frames = [self._chunk({})] if self._entries else []
        last = self._chunk({}, finish_reason=reason)
        numbers = {"timings": timings(event.summary), "dflash": self._tally.dflash(event.summary)}
        if not self.usage_wanted:
            return [*frames, Frame({**last.data, **numbers})]
        usage = {"usage": self._tally.usage(event.summary), **numbers}
        return [*frames, last, Frame({**self._head(), "choices": [], **usage})]

    def _head(self) -> dict[str, object]:
        heading = self._heading
        return {
            "id": heading.id,
            "object": "chat.completion.chunk",
            "created": heading.created,
            "model": heading.model,
            "system_fingerprint": FINGERPRINT,
        }

    def _chunk(self, delta: Mapping[str, object], finish_reason: str | None = None) -> Frame:
        """A chunk with the log probabilities of the tokens since the last one."""
        choice = _choice(delta, finish_reason)
        if self.logprobs_wanted and self._entries:
            choice["logprobs"] = {"content": chat_logprobs(self._entries, self._served.token_bytes), "refusal": None}
        self._entries = []
        return Frame({**self._head(), "choices": [choice]})


def _choice(delta: Mapping[str, object], finish_reason: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}


def fold_chat(frames: Sequence[Frame]) -> dict[str, object]:
    """The completion that the chunks add up to."""
    reply: dict[str, object] = {**frames[0].data, "object": "chat.completion"}
    content, thoughts, calls = list[str](), list[str](), list[object]()
    entries, finish = list[object](), None
    for frame in frames:
        reply.update({key: frame.data[key] for key in ("usage", "timings", "dflash") if key in frame.data})
        for choice in cast(list[dict[str, object]], frame.data["choices"]):
            delta = cast(dict[str, object], choice["delta"])
            content.append(str(delta.get("content", "")))
            thoughts.append(str(delta.get("reasoning_content", "")))
            calls += [_without_index(call) for call in cast(list[dict[str, object]], delta.get("tool_calls", []))]
            if choice["logprobs"]:
                entries += cast(dict[str, list[object]], choice["logprobs"])["content"]
            finish = choice["finish_reason"] or finish
    text, reasoning_text = "".join(content), "".join(thoughts)
    message: dict[str, object] = {"role": "assistant", "content": text if text or not calls else None}
    message.update({"reasoning_content": reasoning_text} if reasoning_text else {})
    message.update({"tool_calls": calls} if calls else {})
    logprobs = {"content": entries, "refusal": None} if entries else None
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
    return {**reply, "choices": [choice]}


def _without_index(call: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in call.items() if key != "index"}
