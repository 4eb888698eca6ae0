"""Anthropic's system, messages and tools in OpenAI's form, which is what chat templates know. Renders nothing."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.server.anthropic.client_tools import CLIENT_TOOLS, why_not_offered
from dflash2_mlx.server.body import directly_inside
from dflash2_mlx.server.chat_messages import Message, content_text, part_text, result_text
from dflash2_mlx.server.errors import invalid, unsupported
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.text.tags import Tool

# Claude Code's line about the client, another one in every request: it would defeat the prefix cache.
_BILLING = "x-anthropic-billing-header"
_KNOWN_OF_TOOL = ("type", "name", "description", "input_schema", "cache_control")


def system_message(system: str | Sequence[Mapping[str, object]] | None, reading: Reading) -> list[Message]:
    """The system message, if anything of it is left. Raises: ApiError 400 for parts that are no text."""
    given = [system] if isinstance(system, str) else system or ()
    parts = [part_text(part, f"system[{number}]", reading) for number, part in enumerate(given)]
    kept = ["\n".join(line for line in part.splitlines() if not line.startswith(_BILLING)) for part in parts]
    text = "\n\n".join(part for part in kept if part.strip())
    return [{"role": "system", "content": text}] if text else []


def chat_turns(messages: Sequence[Mapping[str, object]], reading: Reading) -> list[Message]:
    """The turns as OpenAI messages, one or more for each. Raises: ApiError 400."""
    turns: list[Message] = []
    for number, message in enumerate(messages):
        place, role, content = f"messages[{number}]", message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            raise invalid(f"{place}.role is {str(role)[:40]!r}. Give user or assistant.", "messages")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
            raise invalid(f"{place}.content is neither text nor a list of blocks.", "messages")
        reading.ignore_unread(message, f"{place}.", ("role", "content"))
        if role == "assistant":
            turns.append(_assistant(blocks, f"{place}.content", reading))
        elif role == "system":
            turns += system_message(blocks, reading)
        else:
            turns += _user(blocks, f"{place}.content", reading)
    return turns


def chat_tools(tools: Sequence[Mapping[str, object]] | None, reading: Reading) -> list[Tool]:
    """The tools as OpenAI functions. Raises: ApiError 400 for a tool that nobody here can run."""
    return [_tool(tool, f"tools[{number}]", reading) for number, tool in enumerate(tools or ())]


def is_cached(*parts: object) -> bool:
    """Whether anything in `parts` carries `cache_control`."""
    level = list(parts)
    while level:
        if any(isinstance(node, dict) and node.get("cache_control") for node in level):
            return True
        level = directly_inside(level)
    return False


def _assistant(blocks: Sequence[Mapping[str, object]], place: str, reading: Reading) -> Message:
    texts, thoughts, calls = list[str](), list[str](), list[Message]()
    for number, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            calls.append(_call(block, place))
        elif kind == "text":
            texts.append(part_text(block, f"{place}[{number}]", reading))
        elif kind != "redacted_thinking":  # nobody here can read it
            reading.ignore(f"{place}[{number}].{str(kind)[:40]}")  # what a tool of the API's own servers did
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


def _user(blocks: Sequence[Mapping[str, object]], place: str, reading: Reading) -> list[Message]:
    """Results of tools and text in their order; neighbouring texts are one message."""
    turns: list[Message] = []
    for number, block in enumerate(blocks):
        inside = f"{place}[{number}]"
        if block.get("type") == "tool_result":
            turns.append(_result(block, inside, reading))
            continue
        text = part_text(block, inside, reading)
        if turns and turns[-1]["role"] == "user":
            turns[-1]["content"] = f"{turns[-1]['content']}\n{text}"
        else:
            turns.append({"role": "user", "content": text})
    return turns or [{"role": "user", "content": ""}]


def _result(block: Mapping[str, object], place: str, reading: Reading) -> Message:
    content = block.get("content")
    parts = content if isinstance(content, list) else [content_text(content, f"{place}.content", reading)]
    texts = [result_text(part, f"{place}.content[{number}]", reading) for number, part in enumerate(parts)]
    failed = "Error: " if block.get("is_error") is True else ""
    call = str(block.get("tool_use_id") or "")
    return {"role": "tool", "content": failed + "\n".join(texts), "tool_call_id": call}


def _tool(tool: Mapping[str, object], place: str, reading: Reading) -> Tool:
    kind, name = str(tool.get("type") or "custom"), tool.get("name")
    if not isinstance(name, str):
        raise invalid(f"{place} has no name. Give a tool with name and input_schema.", "tools")
    own = (tool.get("description") or "", tool.get("input_schema") or {})
    description, schema = own if kind == "custom" else CLIENT_TOOLS.get(kind, (None, None))
    if description is None:
        raise unsupported(f"{place}.type", why_not_offered(kind))
    if not isinstance(schema, Mapping):
        raise invalid(f"{place} has an input_schema that is no object.", "tools")
    reading.ignore_unread(tool, "tools[].", _KNOWN_OF_TOOL)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(schema)}}
