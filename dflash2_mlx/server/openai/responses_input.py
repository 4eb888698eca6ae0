"""The input items and flat tools of OpenAI's responses in the form of chat messages. Renders nothing."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.server.chat_messages import Message, content_text
from dflash2_mlx.server.errors import invalid, unsupported
from dflash2_mlx.server.openai.tool_choice import Tool

_RESULTS = ("function_call_output", "custom_tool_call_output")


def chat_messages(given: str | Sequence[Mapping[str, object]], instructions: str | None) -> list[Message]:
    """The conversation as OpenAI chat messages. Raises: ApiError 400 for an item that cannot be read."""
    leading: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*leading, {"role": "user", "content": given}]
    turns: list[Message] = []
    for number, item in enumerate(given):
        _add(item, f"input[{number}]", turns)
    return [*leading, *turns]


def flat_tools(tools: Sequence[Mapping[str, object]] | None) -> tuple[list[Tool], tuple[str, ...]]:
    """Functions in chat form, and the places of tools that are not offered to the model.

    Tools of other types run on OpenAI's servers or have a grammar of their own: a model that is not offered one does
    not call it, so they are left out and named.
    """
    functions: list[Tool] = []
    left_out: list[str] = []
    for number, tool in enumerate(tools or ()):
        if tool.get("type") == "function":
            function = {key: tool[key] for key in ("name", "description", "parameters", "strict") if tool.get(key)}
            functions.append({"type": "function", "function": function})
        else:
            left_out.append(f"tools[{number}].{str(tool.get('type'))[:40]}")
    return functions, tuple(left_out)


def _add(item: Mapping[str, object], place: str, turns: list[Message]) -> None:
    """Append what `item` says; reasoning, text and calls of one answer become one assistant message."""
    kind = item.get("type") or "message"
    if kind == "message":
        role, text = item.get("role"), content_text(item.get("content"), f"{place}.content")
        if role == "assistant":
            answer = _answer(turns)
            answer["content"] = f"{answer['content']}{text}"
        else:
            turns.append({"role": role, "content": text})
    elif kind == "reasoning":
        answer = _answer(turns)
        answer["reasoning_content"] = f"{answer.get('reasoning_content', '')}{_thoughts(item, place)}"
    elif kind == "function_call":
        if not isinstance(item.get("name"), str):
            raise invalid(f"{place} is a call without a name. Send calls as they were made.", "input")
        call = {"name": item["name"], "arguments": item.get("arguments") or ""}
        answer = _answer(turns)
        calls = answer.setdefault("tool_calls", [])
        assert isinstance(calls, list)
        calls.append({"id": str(item.get("call_id") or ""), "type": "function", "function": call})
    elif kind in _RESULTS:
        text = content_text(item.get("output"), f"{place}.output")
        turns.append({"role": "tool", "content": text, "tool_call_id": str(item.get("call_id") or "")})
    else:
        raise unsupported(f"{place}.type", f"{str(kind)[:40]!r} is not known. Send messages, calls and their outputs.")


def _answer(turns: list[Message]) -> Message:
    """The assistant message that further parts of the same answer belong to."""
    if not turns or turns[-1]["role"] != "assistant":
        turns.append({"role": "assistant", "content": ""})
    return turns[-1]


def _thoughts(item: Mapping[str, object], place: str) -> str:
    """The reasoning's own text. Summaries and encrypted content of other servers say nothing to this model."""
    parts = item.get("content") or []
    if not isinstance(parts, list):
        raise invalid(f"{place}.content is no list of parts.", "input")
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))
