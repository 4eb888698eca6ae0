"""`POST /v1/chat/completions`: OpenAI's chat, streamed and whole. Knows the text layer's events, no HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from dflash2_mlx.config import MAX_TOP_LOGPROBS, TextParams
from dflash2_mlx.events import Delta, Finished, Round, TokenLogprob, ToolCall
from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.chat_messages import template_messages
from dflash2_mlx.server.dialect import Heading, Prepared, answering
from dflash2_mlx.server.errors import invalid, unsupported
from dflash2_mlx.server.fields import (
    engine_params,
    read_fields,
    reasoning_word,
    sampling_params,
    stops,
    template_word,
    thinking_word,
    unless_unlimited,
)
from dflash2_mlx.server.model import ServedModel
from dflash2_mlx.server.openai.bodies import ChatBody
from dflash2_mlx.server.openai.chunks import ChunkWriter, numbers_of, only_one
from dflash2_mlx.server.openai.drafted import DraftedText
from dflash2_mlx.server.openai.logprobs import chat_logprobs
from dflash2_mlx.server.openai.tool_choice import offered_tools
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.server.usage import Tally

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event


def read_chat(document: JsonObject, reading: Reading) -> Prepared:
    """A chat request, rendered and checked. Raises: as `Dialect` says."""
    from dflash2_mlx.session.session import Request

    body, model = read_fields(ChatBody, document, reading), reading.model
    _refuse(body)
    tools = offered_tools(body.tools, body.tool_choice, reading)
    sampling = sampling_params(body, model, top_count(body.logprobs, body.top_logprobs))
    text = TextParams(stop=stops(body.stop), tools=tools)
    prompt = model.render(template_messages(body.messages, reading), tools, _reasoning(body, reading))
    name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    engine = engine_params(len(prompt.tokens), unless_unlimited(getattr(body, name)), reading, name)
    if body.speculate is False:
        engine = replace(engine, block_size=1)
    tally = Tally.of(prompt, model, "parallel_tool_calls is false" if body.parallel_tool_calls is False else None)
    writer = ChatWriter(Heading(model.name, "chatcmpl-"), tally, model, body)
    return Prepared(answering(Request(prompt, sampling, engine, text)), writer, bool(body.stream))


def _refuse(body: ChatBody) -> None:
    only_one(body.n)
    kind = (body.response_format or {}).get("type", "text")
    if kind != "text":
        raise unsupported(
            "response_format", f"type {str(kind)[:40]!r} cannot be enforced yet. Ask for it in the prompt."
        )
    if body.modalities not in (None, [], ["text"]):
        raise unsupported("modalities", "this server answers in text only.")
    begun = bool(body.messages) and body.messages[-1].get("role") == "assistant"
    for name, wanted in (("continue_final_message", begun), ("add_generation_prompt", not begun)):
        if getattr(body, name) not in (None, wanted):
            raise unsupported(name, "an answer goes on from a last assistant message, and is a new one elsewhere.")


def _reasoning(body: ChatBody, reading: Reading) -> str | None:
    """Our reasoning word, whichever of the three fields says it. Raises: ApiError 400."""
    named = reasoning_word(body.reasoning_effort, reading, "reasoning_effort")
    told = template_word(body.chat_template_kwargs, reading)
    if named is not None and told is not None and named != told:
        raise invalid("reasoning_effort and chat_template_kwargs contradict each other. Drop one.", "reasoning_effort")
    return thinking_word(body.enable_thinking, named or told, reading, "enable_thinking")


def top_count(logprobs: bool | None, top: int | None) -> int | None:
    """How many likeliest tokens are wanted beside each one; None without logprobs. Raises: ApiError 400."""
    if top is not None and not 0 <= top <= MAX_TOP_LOGPROBS:
        raise invalid(f"top_logprobs is {top}. Give 0 to {MAX_TOP_LOGPROBS}.", "top_logprobs")
    if top and not logprobs:
        raise invalid("top_logprobs needs logprobs: true.", "top_logprobs")
    return (top or 0) if logprobs else None


class ChatWriter(ChunkWriter):
    """Chunks of one chat completion: the role once, a chunk a round and channel, one finish_reason."""

    kind, content = "chat.completion.chunk", "delta"
    _opened = False

    def __init__(self, heading: Heading, tally: Tally, model: ServedModel, body: ChatBody) -> None:
        super().__init__(heading, tally, model, body)
        wanted = body.stream_options and body.stream_options.include_drafted
        self._drafted = DraftedText(model.token_bytes) if wanted else None

    def filler(self) -> list[Frame]:
        return [self._chunk({})] if self._opened else self._open()

    def read(self, event: "Event") -> list[Frame]:
        self._tally.see(event)
        if isinstance(event, Round):
            opening = self._open()
            self._note(event)
            if self._drafted:
                self._drafted.see(event)
            return opening
        if isinstance(event, Delta):
            key = "reasoning_content" if event.channel == "reasoning" else "content"
            chunk = self._chunk({key: event.text})
            if self._drafted:
                chunk.data["round"] = self._drafted.take(event.text)
            return [*self._open(), chunk]
        if isinstance(event, ToolCall):
            return [*self._open(), *self._call(event)]
        return [*self._open(), *self._finish(event)] if isinstance(event, Finished) else []

    def fold(self, frames: Sequence[Frame]) -> dict[str, object]:
        return fold_chat(frames)

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, object]:
        return {"content": chat_logprobs(entries, self._model.token_bytes), "refusal": None}

    def _open(self) -> list[Frame]:
        """The chunk with the role, once."""
        if self._opened:
            return []
        self._opened = True
        return [self._chunk({"role": "assistant", "content": ""})]

    def _call(self, event: ToolCall) -> list[Frame]:
        number = self._tally.take_call()
        if number is None:
            return []
        function = {"name": event.name, "arguments": event.arguments}
        identity = f"call_{self._heading.unique}_{number}"
        call = {"index": number, "id": identity, "type": "function", "function": function}
        return [self._chunk({"tool_calls": [call]})]

    def _finish(self, event: Finished) -> list[Frame]:
        reason = "tool_calls" if event.reason == "stop" and self._tally.calls else event.reason
        unsaid = [self._chunk({})] if self._entries else []
        return [*unsaid, *self._ending(self._chunk({}, reason), event)]


def fold_chat(frames: Sequence[Frame]) -> dict[str, object]:
    """The completion that the chunks add up to."""
    content, thoughts, calls = list[str](), list[str](), list[object]()
    entries, finish = list[object](), None
    for frame in frames:
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
    return {**frames[0].data, "object": "chat.completion", **numbers_of(frames), "choices": [choice]}


def _without_index(call: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in call.items() if key != "index"}
