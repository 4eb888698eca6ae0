"""`POST /v1/messages` and its count of tokens: Anthropic's dialect. Knows the text layer's events, no HTTP."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dflash2_mlx.config import TextParams
from dflash2_mlx.events import Delta, Finished, Summary, ToolCall
from dflash2_mlx.server.anthropic.bodies import CountBody, MessagesBody
from dflash2_mlx.server.anthropic.budget import Budget, answering_within, budget_for
from dflash2_mlx.server.anthropic.messages_input import chat_tools, chat_turns, is_cached, system_message
from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.chat_messages import template_messages
from dflash2_mlx.server.dialect import Heading, Prepared, Writer, answering
from dflash2_mlx.server.errors import ApiError, invalid, unsupported
from dflash2_mlx.server.fields import (
    engine_params,
    read_fields,
    reasoning_word,
    sampling_params,
    stops,
    thinking_word,
)
from dflash2_mlx.server.model import ServedModel
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.server.sse import Frame
from dflash2_mlx.server.usage import Tally, timings
from dflash2_mlx.text.prompt import Prompt
from dflash2_mlx.text.tags import Tool

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event

_REFUSED = ("mcp_servers", "container", "output_format")
_SIGNATURE = "dflash2-mlx"  # thinking is sent back as it was, nothing has to be proved
_STOP_REASONS: Mapping[str, str] = {"stop": "end_turn", "length": "max_tokens"}


def read_messages(document: JsonObject, reading: Reading) -> Prepared:
    """A messages request, rendered and checked. Raises: as `Dialect` says."""
    from dflash2_mlx.session.session import Request

    body, model = read_fields(MessagesBody, document, reading, *_REFUSED), reading.model
    prompt, tools = _render(body, reading)
    engine = engine_params(len(prompt.tokens), body.max_tokens, reading)
    text = TextParams(stop=stops(body.stop_sequences, "stop_sequences"), tools=tools)
    request = Request(prompt, sampling_params(body, model), engine, text)
    budget = _budget(body, prompt, model)
    one = body.tool_choice is not None and body.tool_choice.disable_parallel_tool_use is True
    tally = Tally.of(prompt, model, "disable_parallel_tool_use" if one else None)
    writer = MessagesWriter(Heading(model.name, "msg_"), tally, len(prompt.tokens))
    work = answering_within(request, budget) if budget else answering(request)
    return Prepared(work, writer, bool(body.stream))


def count_tokens(document: JsonObject, reading: Reading) -> dict[str, object]:
    """How many tokens the prompt has. Raises: as `Dialect` says."""
    prompt, _ = _render(read_fields(CountBody, document, reading, *_REFUSED), reading)
    return {"input_tokens": len(prompt.tokens)}


def _render(body: CountBody, reading: Reading) -> tuple[Prompt, tuple[Tool, ...]]:
    if body.thread is not None:
        message = "thread is not supported: nothing is kept from request to request. Send the whole conversation."
        raise ApiError(400, "unsupported_parameter", message, details={"error_code": "thread_unsupported_request"})
    if body.output_config and body.output_config.format:
        raise unsupported("output_config.format", "a form cannot be enforced yet. Ask for it in the prompt.")
    tools, choice = chat_tools(body.tools, reading), body.tool_choice.type if body.tool_choice else "auto"
    if choice not in ("auto", "none"):
        raise unsupported("tool_choice", f"{choice[:40]!r} cannot be enforced yet. Give auto or none.")
    offered = tuple(tools) if choice == "auto" else ()
    turns = [*system_message(body.system, reading), *chat_turns(body.messages, reading)]
    prompt = reading.model.render(template_messages(turns, reading), offered, _reasoning(body, reading))
    if is_cached(body.system, body.messages, body.tools):  # prefixes are reused here without being asked for
        reading.ignore("cache_control")
    return prompt, offered


def _reasoning(body: CountBody, reading: Reading) -> str | None:
    """Our reasoning word. As in Anthropic's API, no thinking is given unasked, where that is possible."""
    effort = body.output_config.effort if body.output_config else None
    word = reasoning_word(effort, reading, "output_config.effort")
    if body.thinking is None:
        return word if effort is not None or "off" not in reading.model.chat.levels else "off"
    kind = body.thinking.type
    if kind not in ("enabled", "disabled", "adaptive"):
        raise invalid(f"thinking.type is {kind[:40]!r}. Give enabled, adaptive or disabled.", "thinking")
    return thinking_word(kind != "disabled", None if kind == "disabled" else word, reading, "thinking")


def _budget(body: MessagesBody, prompt: Prompt, model: ServedModel) -> Budget | None:
    """What limits the thinking, if anything has to. Raises: ApiError 400 where the limit could not be kept."""
    thinking = body.thinking
    if thinking is None or thinking.type != "enabled" or thinking.budget_tokens is None:
        return None
    if thinking.budget_tokens < 1:
        raise invalid(f"thinking.budget_tokens is {thinking.budget_tokens}. Give a whole number from 1.", "thinking")
    if prompt.channel != "reasoning" or thinking.budget_tokens >= body.max_tokens:
        return None  # nothing to limit, or max_tokens does it
    budget = budget_for(thinking.budget_tokens, model)
    if budget is None:
        raise unsupported("thinking.budget_tokens", "this model has no closing tag to limit its thinking by.")
    return budget


class MessagesWriter(Writer):
    """Events of one message: blocks one after the other, each opened and closed once."""

    def __init__(self, heading: Heading, tally: Tally, prompt_tokens: int) -> None:
        self._heading, self._tally, self._prompt_tokens = heading, tally, prompt_tokens
        self._index, self._kind = 0, ""  # of the open block, "" = none is open

    def opening(self) -> list[Frame]:
        message: dict[str, object] = {
            "id": self._heading.id,
            "type": "message",
            "role": "assistant",
            "model": self._heading.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(self._prompt_tokens, 0, 0),
        }
        return [_frame("message_start", {"message": message})]

    def sign_of_life(self) -> list[Frame]:
        return [_frame("ping", {})]

    def read(self, event: "Event") -> list[Frame]:
        self._tally.see(event)
        if isinstance(event, Delta):
            kind = "thinking" if event.channel == "reasoning" else "text"
            return [*self._begin(kind), self._delta({"type": f"{kind}_delta", kind: event.text})]
        if isinstance(event, ToolCall):
            return self._call(event)
        return self._finish(event) if isinstance(event, Finished) else []

    def failed(self, error: ApiError) -> list[Frame]:
        return [Frame(error.envelope("/v1/messages"), "error")]

    def fold(self, frames: Sequence[Frame]) -> dict[str, object]:
        return fold_message(frames)

    def _begin(self, kind: str) -> list[Frame]:
        """Open a block of `kind`, unless one is open."""
        if self._kind == kind:
            return []
        closed, self._kind = self._end(), kind
        signature = {"signature": ""} if kind == "thinking" else {}
        return [*closed, self._start({"type": kind, kind: "", **signature})]

    def _start(self, block: Mapping[str, object]) -> Frame:
        return _frame("content_block_start", {"index": self._index, "content_block": block})

    def _delta(self, delta: Mapping[str, object]) -> Frame:
        return _frame("content_block_delta", {"index": self._index, "delta": delta})

    def _end(self) -> list[Frame]:
        """Close the open block."""
        if not self._kind:
            return []
        signed = [self._delta({"type": "signature_delta", "signature": _SIGNATURE})] if self._kind == "thinking" else []
        frames = [*signed, _frame("content_block_stop", {"index": self._index})]
        self._kind, self._index = "", self._index + 1
        return frames

    def _call(self, event: ToolCall) -> list[Frame]:
        number = self._tally.take_call()
        if number is None:
            return []
        closed, self._kind = self._end(), "tool_use"
        identity = f"toolu_{self._heading.unique}_{number}"
        start = self._start({"type": "tool_use", "id": identity, "name": event.name, "input": {}})
        arguments = self._delta({"type": "input_json_delta", "partial_json": event.arguments})
        return [*closed, start, arguments, *self._end()]

    def _finish(self, event: Finished) -> list[Frame]:
        reason = _STOP_REASONS[event.reason]
        if event.stop is not None:
            reason = "stop_sequence"
        elif event.reason == "stop" and self._tally.calls:
            reason = "tool_use"
        delta = {"stop_reason": reason, "stop_sequence": event.stop}
        return [
            *self._end(),
            _frame("message_delta", {"delta": delta, **_numbers(event.summary, self._tally)}),
            _frame("message_stop", {}),
        ]


def fold_message(frames: Sequence[Frame]) -> dict[str, object]:
    """The message that the events add up to."""
    message = dict(cast(Mapping[str, object], frames[0].data["message"]))
    blocks: list[dict[str, object]] = []
    for frame in frames:
        data = frame.data
        if frame.name == "content_block_start":
            blocks.append(dict(cast(Mapping[str, object], data["content_block"])))
        elif frame.name == "content_block_delta":
            _extend(blocks[-1], cast(Mapping[str, str], data["delta"]))
        elif frame.name == "message_delta":
            message.update(cast(Mapping[str, object], data["delta"]))
            message.update({key: value for key, value in data.items() if key not in ("type", "delta")})
    return {**message, "content": blocks}


def _extend(block: dict[str, object], delta: Mapping[str, str]) -> None:
    if delta["type"] == "input_json_delta":
        block["input"] = json.loads(delta["partial_json"])  # one delta holds them all
    else:
        key = delta["type"].removesuffix("_delta")
        block[key] = f"{block[key]}{delta[key]}"


def _frame(kind: str, fields: Mapping[str, object]) -> Frame:
    return Frame({"type": kind, **fields}, kind)


def _usage(prompt: int, cached: int, output: int) -> dict[str, object]:
    """Anthropic's usage: cached tokens are not counted among the input tokens."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }


def _numbers(summary: Summary, tally: Tally) -> dict[str, object]:
    usage = _usage(summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens)
    usage["output_tokens_details"] = {"thinking_tokens": tally.reasoning_tokens}
    usage.update(tally.durations(summary, time.perf_counter()))
    return {"usage": usage, "timings": timings(summary), "dflash": tally.dflash(summary)}
