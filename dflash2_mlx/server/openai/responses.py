"""`POST /v1/responses`: OpenAI's responses, for Codex and what follows it. Knows the text layer's events, no HTTP."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dflash2_mlx.config import TextParams
from dflash2_mlx.events import Delta, Finished, ToolCall
from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.chat_messages import Message, template_messages
from dflash2_mlx.server.dialect import Heading, Prepared, Writer, answering
from dflash2_mlx.server.errors import ApiError, invalid, unsupported
from dflash2_mlx.server.fields import engine_params, read_fields, reasoning_word, sampling_params
from dflash2_mlx.server.openai.bodies import ResponsesBody
from dflash2_mlx.server.openai.remembered import Entry, Item, with_id
from dflash2_mlx.server.openai.responses_input import Offer, chat_messages, items_of
from dflash2_mlx.server.openai.tool_choice import offered_tools
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.server.usage import Tally, timings

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event

_PARTS = {"reasoning": "reasoning_text", "message": "output_text"}  # item -> its content part and its events
_REFUSED = ("prompt", "max_tool_calls")
Keep = Callable[[JsonObject], None]


def read_response(document: JsonObject, reading: Reading) -> Prepared:
    """A responses request, rendered and checked. Raises: as `Dialect` says; ApiError 404 for what is forgotten."""
    from dflash2_mlx.session.session import Request

    body, model = read_fields(ResponsesBody, document, reading, *_REFUSED), reading.model
    _refuse(body)
    goes_on = body.previous_response_id or body.conversation_id
    before = reading.remembered.entry(reading.owner, goes_on) if goes_on else None
    given, offer = items_of(body.input, reading), Offer()
    offer.add(body.tools or [], "tools", reading)
    leading: list[Message] = [{"role": "system", "content": body.instructions}] if body.instructions else []
    turns = chat_messages([*(before.items if before else ()), *given], offer, reading)
    tools = offered_tools(list(offer.functions.values()), body.tool_choice, reading)
    word = reasoning_word(body.reasoning.effort if body.reasoning else None, reading, "reasoning.effort")
    prompt = model.render(template_messages([*leading, *turns], reading), tools, word)
    sampling = sampling_params(body, model)
    engine = engine_params(len(prompt.tokens), body.max_output_tokens, reading, "max_output_tokens")
    tally = Tally.of(prompt, model, "parallel_tool_calls is false" if body.parallel_tool_calls is False else None)
    echo, keep = _echo(body), _keeper(body, reading, before, given)
    writer = ResponsesWriter(Heading(model.name, "resp_"), tally, echo, offer, keep)
    request = Request(prompt, sampling, engine, TextParams(tools=offer.read_by(tools)))
    return Prepared(answering(request), writer, bool(body.stream))


def _refuse(body: ResponsesBody) -> None:
    if body.background:
        raise unsupported("background", "an answer is given in its own request. Drop it.")
    if body.truncation not in (None, "disabled", "auto"):
        raise invalid(f"truncation is {body.truncation[:40]!r}. Give auto or disabled.", "truncation")
    if body.top_logprobs:
        raise unsupported("top_logprobs", "use /v1/chat/completions for log probabilities.")
    if body.previous_response_id and body.conversation:
        raise invalid("previous_response_id and conversation exclude each other. Drop one.", "conversation")
    form = body.text.format if body.text else None
    kind = form.get("type", "text") if isinstance(form, Mapping) else "text" if form is None else form
    if kind != "text":
        raise unsupported("text.format", f"{str(kind)[:40]!r} cannot be enforced yet. Ask for it in the prompt.")


def _keeper(body: ResponsesBody, reading: Reading, before: Entry | None, given: Sequence[Item]) -> Keep:
    """What is done with the finished response."""

    def keep(response: JsonObject) -> None:
        said = [*map(with_id, given), *cast(list[Item], response["output"])]
        if body.store is not False:
            reading.remembered.keep(reading.owner, response, before, said)
        if body.conversation_id is not None:
            with contextlib.suppress(ApiError):  # it was forgotten meanwhile
                reading.remembered.extend(reading.owner, body.conversation_id, said)

    return keep


def _echo(body: ResponsesBody) -> dict[str, object]:
    """The request's fields that a response repeats."""
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "conversation": {"id": body.conversation_id} if body.conversation_id else None,
        "reasoning": {"summary": None, "effort": body.reasoning.effort if body.reasoning else None},
        "store": body.store is not False,
        "temperature": body.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": [tool for tool in body.tools or [] if tool.get("type") in ("function", "namespace")],
        "top_p": body.top_p,
        "truncation": body.truncation or "disabled",
    }


class ResponsesWriter(Writer):
    """Events of one response: its items one after the other, and at the end the whole response."""

    def __init__(self, heading: Heading, tally: Tally, echo: Mapping[str, object], offer: Offer, keep: Keep) -> None:
        self._heading, self._tally, self._echo, self._offer, self._keep = heading, tally, echo, offer, keep
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
            return [*begun, self._event(f"response.{_PARTS[kind]}.delta", self._text_place("delta", event.text))]
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
        return {"item_id": self._item(prefix), "output_index": len(self._output), "content_index": 0}

    def _text_place(self, key: str, text: str) -> dict[str, object]:
        """Where `text` belongs, for the events that carry it."""
        return {**self._place(), key: text, **({"logprobs": []} if self._kind == "message" else {})}

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
        return [
            *closed,
            self._event("response.output_item.added", item),
            self._event("response.content_part.added", {**self._place(), "part": self._part()}),
        ]

    def _end(self, status: str) -> list[Frame]:
        """Close the open item."""
        if not self._kind:
            return []
        part = self._part()
        item = self._open_item(status, [part])
        frames = [
            self._event(f"response.{_PARTS[self._kind]}.done", self._text_place("text", self._text)),
            self._event("response.content_part.done", {**self._place(), "part": part}),
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
            **self._offer.identity(event.name),
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
                {**place, "name": item["name"], "arguments": event.arguments},
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
        last = self._state(f"response.{status}", status, numbers)
        self._keep(self.fold([last]))
        return [*closed, last]

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
