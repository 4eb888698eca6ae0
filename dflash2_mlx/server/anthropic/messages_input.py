"""Anthropic's system, messages and tools in OpenAI's form, which is what chat templates know. Renders nothing."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.server.body import directly_inside
from dflash2_mlx.server.chat_messages import Message, part_text
from dflash2_mlx.server.errors import invalid, unsupported
from dflash2_mlx.server.openai.tool_choice import Tool

# Claude Code's line about the client, another one in every request: it would defeat the prefix cache.
_BILLING = "x-anthropic-billing-header"


def system_message(system: str | Sequence[Mapping[str, object]] | None) -> list[Message]:
    """The system message, if anything of it is left. Raises: ApiError 400 for parts that are no text."""
    if system is None:
        return []
    parts = [system] if isinstance(system, str) else [part_text(part, "system") for part in system]
    kept = ["\n".join(line for line in part.splitlines() if not line.startswith(_BILLING)) for part in parts]
    text = "\n\n".join(part for part in kept if part.strip())
    return [{"role": "system", "content": text}] if text else []


def chat_turns(messages: Sequence[Mapping[str, object]]) -> list[Message]:
    """The turns as OpenAI messages, one or more for each. Raises: ApiError 400."""
    turns: list[Message] = []
    for number, message in enumerate(messages):
        place, role, content = f"messages[{number}]", message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            raise invalid(f"{place}.role is {str(role)[:40]!r}. Give user or assistant.", "messages")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
            raise invalid(f"{place}.content is neither text nor a list of blocks.", "messages")
        if role == "assistant":
            turns.append(_assistant(blocks, place))
        elif role == "system":
            turns += system_message(blocks)
        else:
            turns += _user(blocks, place)
    return turns


def chat_tools(tools: Sequence[Mapping[str, object]] | None) -> list[Tool]:
    """The tools as OpenAI functions. Raises: ApiError 400 for a tool of the API's own servers."""
    return [_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools or ())]


def cached_places(*parts: object) -> tuple[str, ...]:
    """`cache_control`, if anything in `parts` carries it: prefixes are reused here without being asked for."""
    level = list(parts)
    while level:
        if any(isinstance(node, dict) and node.get("cache_control") for node in level):
            return ("cache_control",)
        level = directly_inside(level)
    return ()


def _assistant(blocks: Sequence[Mapping[str, object]], place: str) -> Message:
    texts, thoughts, calls = list[str](), list[str](), list[Message]()
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            calls.append(_call(block, place))
        elif kind != "redacted_thinking":  # nobody here can read it
            texts.append(part_text(block, f"{place}.content"))
    turn: Message = {"role": "assistant", "content": "".join(texts)}
    turn.update({"reasoning_content": "\n".join(thoughts)} if thoughts else {})
    turn.update({"tool_calls": calls} if calls else {})
    return turn


def _call(block: Mapping[str, object], place: str) -> Message:
    name, given = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(given, Mapping | None):
        raise invalid(f"{place} has a tool_use block without a name, or whose input is no object.", "messages")
    function = {"name": name, "arguments": dict(given or {})}
    return {"id": str(block.get("id") or ""), "type": "function", "function": function}


def _user(blocks: Sequence[Mapping[str, object]], place: str) -> list[Message]:
    """Results of tools and text in their order; neighbouring texts are one message."""
    turns: list[Message] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            turns.append(_result(block, place))
            continue
        text = part_text(block, f"{place}.content")
        if turns and turns[-1]["role"] == "user":
            turns[-1]["content"] = f"{turns[-1]['content']}\n{text}"
        else:
            turns.append({"role": "user", "content": text})
    return turns or [{"role": "user", "content": ""}]


def _result(block: Mapping[str, object], place: str) -> Message:
    content = block.get("content")
    if isinstance(content, list):
        text = "\n".join(part_text(part, f"{place}.tool_result") for part in content)
    elif content is None or isinstance(content, str):
        text = content or ""
    else:
        raise invalid(f"{place} has a tool_result whose content is neither text nor blocks.", "messages")
    failed = "Error: " if block.get("is_error") is True else ""
    return {"role": "tool", "content": failed + text, "tool_call_id": str(block.get("tool_use_id") or "")}


def _tool(tool: Mapping[str, object], place: str) -> Tool:
    kind, name = tool.get("type") or "custom", tool.get("name")
    if kind != "custom":
        raise unsupported(f"{place}.type", f"{str(kind)[:40]!r} runs on Anthropic's servers. Offer tools of your own.")
    schema = tool.get("input_schema")
    if not isinstance(name, str) or not isinstance(schema, Mapping | None):
        raise invalid(f"{place} has no name, or an input_schema that is no object.", "tools")
    function = {"name": name, "description": tool.get("description") or "", "parameters": dict(schema or {})}
    return {"type": "function", "function": function}
