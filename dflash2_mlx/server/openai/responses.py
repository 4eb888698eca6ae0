"""`POST /v1/responses`: OpenAI's responses without memory, for Codex. Knows the text layer's events, no HTTP."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dflash2_mlx.config import TextParams
from dflash2_mlx.events import Delta, Finished, ToolCall
from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.chat_messages import conversation
from dflash2_mlx.server.dialect import Heading, Prepared, Writer, answering
from dflash2_mlx.server.errors import ApiError, unsupported
from dflash2_mlx.server.fields import engine_params, read_fields, reasoning_word, sampling_params, unread
from dflash2_mlx.server.model import ServedModel
from dflash2_mlx.server.openai.bodies import ResponsesBody
from dflash2_mlx.server.openai.responses_input import chat_messages, flat_tools
from dflash2_mlx.server.openai.tool_choice import offered_tools
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.server.usage import Tally, timings

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event

_PARTS = {"reasoning": "reasoning_text", "message": "output_text"}  # item -> its content part and its events
_REFUSED = ("conversation", "prompt", "max_tool_calls")


def read_response(document: JsonObject, model: ServedModel, settings: ServeSettings) -> Prepared:
    """A responses request, rendered and checked. Raises: as `Dialect` says."""
    from dflash2_mlx.session.session import Request

    body = read_fields(ResponsesBody, document, model, *_REFUSED)
    _refuse(body)
    functions, left_out = flat_tools(body.tools)
    tools, ignored = offered_tools(functions, body.tool_choice)
    word = reasoning_word((body.reasoning or {}).get("effort"), model, settings, "reasoning.effort")
    messages = conversation(chat_messages(body.input, body.instructions))
    prompt = model.render(messages, tools, word)
    sampling = sampling_params(body, model)
    engine = engine_params(len(prompt.tokens), body.max_output_tokens, model, settings, "max_output_tokens")
    tally = Tally.of(prompt, model, "parallel_tool_calls is false" if body.parallel_tool_calls is False else None)
    writer = ResponsesWriter(Heading(model.name, "resp_"), tally, _echo(body))
    if (body.reasoning or {}).get("summary") or (body.reasoning or {}).get("generate_summary"):
        ignored = (*ignored, "reasoning.summary")
    request = Request(prompt, sampling, engine, TextParams(tools=tools))
    return Prepared(answering(request), writer, bool(body.stream), (*unread(body), *ignored, *left_out))


def _refuse(body: ResponsesBody) -> None:
    if body.previous_response_id or body.background:
        name = "previous_response_id" if body.previous_response_id else "background"
        raise unsupported(name, "this server keeps no responses. Send the whole conversation as input.")
    if body.truncation not in (None, "disabled"):
        raise unsupported("truncation", "a conversation is never cut quietly. Shorten it yourself.")
    if body.top_logprobs:
        raise unsupported("top_logprobs", "use /v1/chat/completions for log probabilities.")
    form = (body.text or {}).get("format")
    kind = form.get("type", "text") if isinstance(form, Mapping) else "text" if form is None else form
    if kind != "text":
        raise unsupported("text.format", f"{str(kind)[:40]!r} cannot be enforced yet. Ask for it in the prompt.")


def _echo(body: ResponsesBody) -> dict[str, object]:
    """The request's fields that a response repeats."""
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": body.reasoning or {"effort": None, "summary": None},
        "store": False,
        "temperature": body.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": [tool for tool in body.tools or [] if tool.get("type") == "function"],
        "top_p": body.top_p,
        "truncation": "disabled",
    }


class ResponsesWriter(Writer):
    """Events of one response: its items one after the other, and at the end the whole response."""

    def __init__(self, heading: Heading, tally: Tally, echo: Mapping[str, object]) -> None:
        self._heading, self._tally, self._echo = heading, tally, echo
        self._output: list[dict[str, object]] = []
        self._kind, self._text = "", ""  # of the open item, "" = none is open
        self._sequence = 0

    def opening(self) -> list[Frame]:
        return [self._state("response.created", "in_progress"), self._state("response.in_progress", "in_progress")]

    def sign_of_life(self) -> list[Frame]:
        return [self._state("response.in_progress", "in_progress")]

    def read(self, event: "Event") -> list[Frame]:
        self._tally.see(event)
        if isinstance(event, Delta):
            kind = "reasoning" if event.channel == "reasoning" else "message"
            begun = self._begin(kind)
            self._text += event.text
            return [*begun, self._event(f"response.{_PARTS[kind]}.delta", {**self._place(), "delta": event.text})]
        if isinstance(event, ToolCall):
            return self._call(event)
        return self._finish(event) if isinstance(event, Finished) else []

    def failed(self, error: ApiError) -> list[Frame]:
        reason = {"code": error.code, "message": error.message}
        return [self._state("response.failed", "failed", {"error": reason})]

    def fold(self, frames: Sequence[Frame]) -> dict[str, object]:
        return cast(dict[str, object], frames[-1].data["response"])

    def _event(self, kind: str, fields: Mapping[str, object]) -> Frame:
        frame = Frame({"type": kind, "sequence_number": self._sequence, **fields}, kind)
        self._sequence += 1
        return frame

    def _state(self, kind: str, status: str, more: Mapping[str, object] | None = None) -> Frame:
        heading = self._heading
        response: dict[str, object] = {
            "id": heading.id,
            "object": "response",
            "created_at": heading.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": heading.model,
            "output": list(self._output),
            "usage": None,
        }
        return self._event(kind, {"response": {**response, **self._echo, **(more or {})}})

    def _item(self, prefix: str) -> str:
        return f"{prefix}_{self._heading.unique}_{len(self._output)}"

    def _place(self) -> dict[str, object]:
        prefix = "rs" if self._kind == "reasoning" else "msg"
        return {"item_id": self._item(prefix), "output_index": len(self._output), "content_index": 0} | (
            {"logprobs": []} if self._kind == "message" else {}
        )

    def _open_item(self, status: str, content: list[object]) -> dict[str, object]:
        if self._kind == "reasoning":
            return {"id": self._item("rs"), "type": "reasoning", "summary": [], "content": content, "status": status}
        return {"id": self._item("msg"), "type": "message", "role": "assistant", "content": content, "status": status}

    def _part(self) -> dict[str, object]:
        part: dict[str, object] = {"type": _PARTS[self._kind], "text": self._text}
        return {**part, "annotations": [], "logprobs": []} if self._kind == "message" else part

    def _begin(self, kind: str) -> list[Frame]:
        """Open an item of `kind`, unless one is open."""
        if self._kind == kind:
            return []
        closed = self._end("completed")
        self._kind = kind
        item = {"output_index": len(self._output), "item": self._open_item("in_progress", [])}
        part = {key: value for key, value in self._place().items() if key != "logprobs"}
        return [
            *closed,
            self._event("response.output_item.added", item),
            self._event("response.content_part.added", {**part, "part": self._part()}),
        ]

    def _end(self, status: str) -> list[Frame]:
        """Close the open item."""
        if not self._kind:
            return []
        place, part = self._place(), self._part()
        item = self._open_item(status, [part])
        bare = {key: value for key, value in place.items() if key != "logprobs"}
        frames = [
            self._event(f"response.{_PARTS[self._kind]}.done", {**place, "text": self._text}),
            self._event("response.content_part.done", {**bare, "part": part}),
            self._event("response.output_item.done", {"output_index": len(self._output), "item": item}),
        ]
        self._output.append(item)
        self._kind, self._text = "", ""
        return frames

    def _call(self, event: ToolCall) -> list[Frame]:
        number = self._tally.take_call()
        if number is None:
            return []
        closed, index = self._end("completed"), len(self._output)
        item = {
            "id": self._item("fc"),
            "type": "function_call",
            "call_id": f"call_{self._heading.unique}_{number}",
            "name": event.name,
            "arguments": event.arguments,
            "status": "completed",
        }
        place = {"item_id": item["id"], "output_index": index}
        begun = {**item, "arguments": "", "status": "in_progress"}
        frames = [
            self._event("response.output_item.added", {"output_index": index, "item": begun}),
            self._event("response.function_call_arguments.delta", {**place, "delta": event.arguments}),
            self._event(
                "response.function_call_arguments.done",
                {**place, "name": event.name, "arguments": event.arguments},
            ),
            self._event("response.output_item.done", {"output_index": index, "item": item}),
        ]
        self._output.append(dict(item))
        return [*closed, *frames]

    def _finish(self, event: Finished) -> list[Frame]:
        whole = event.reason != "length"
        status = "completed" if whole else "incomplete"
        closed = self._end(status)
        details = None if whole else {"reason": "max_output_tokens"}
        numbers = {"incomplete_details": details, **self._numbers(event)}
        return [*closed, self._state(f"response.{status}", status, numbers)]

    def _numbers(self, event: Finished) -> dict[str, object]:
        summary = event.summary
        usage = self._tally.usage(summary)
        named = {
            "input_tokens": usage.pop("prompt_tokens"),
            "input_tokens_details": usage.pop("prompt_tokens_details"),
            "output_tokens": usage.pop("completion_tokens"),
            "output_tokens_details": usage.pop("completion_tokens_details"),
        }
        return {"usage": {**named, **usage}, "timings": timings(summary), "dflash": self._tally.dflash(summary)}
