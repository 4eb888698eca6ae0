"""The input items and tools of OpenAI's responses in the form of chat messages and functions. Renders nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from dflash2_mlx.server.chat_messages import ROLES, Message, content_text, result_text
from dflash2_mlx.server.errors import invalid, unsupported
from dflash2_mlx.server.openai.remembered import Item
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.server.sse import to_json
from dflash2_mlx.text.tags import Tool

_CALLS = {  # what a client ran -> where its arguments stand
    **dict.fromkeys(("function_call", "tool_search_call"), "arguments"),
    **dict.fromkeys(("local_shell_call", "shell_call"), "action"),
    "custom_tool_call": "input",
    "apply_patch_call": "operation",
}
_OF_FUNCTION = ("name", "description", "parameters", "strict")
_OF_MESSAGE = ("id", "type", "status", "role", "content")


@dataclass(slots=True)
class Offer:
    """The functions that a request offers, flat. namespaces: name in a call -> the client's two names."""

    functions: dict[str, Tool] = field(default_factory=dict)
    namespaces: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, tools: object, place: str, reading: Reading, namespace: str | None = None) -> None:
        """Offer the functions among `tools`; name those that are not offered.

        Tools of other types run on OpenAI's servers or have a grammar of their own: a model that is not offered one
        does not call it. Raises: ApiError 400.
        """
        if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
            raise invalid(f"{place} is no list of tools. Give a list of objects.", place.partition("[")[0])
        for number, tool in enumerate(tools):
            kind, name, inside = tool.get("type"), tool.get("name"), f"{place}[{number}]"
            if kind in ("namespace", "function") and not isinstance(name, str):
                raise invalid(f"{inside} has no name. Give functions as they are called.", place.partition("[")[0])
            if kind == "namespace":
                self.add(tool.get("tools") or [], f"{inside}.tools", reading, str(name))
                reading.ignore_unread(tool, "tools[].", ("type", "name", "tools"))
            elif kind == "function":
                function = {key: tool[key] for key in _OF_FUNCTION if tool.get(key)}
                if namespace is not None:
                    function["name"] = f"{namespace}__{name}"
                    self.namespaces[function["name"]] = (namespace, str(name))
                self.functions[str(function["name"])] = {"type": "function", "function": function}
                reading.ignore_unread(tool, "tools[].", ("type", *_OF_FUNCTION))
            else:
                reading.ignore(f"{inside}.{str(kind)[:40]}")

    def read_by(self, offered: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """The tools that calls are read by: those `offered`, and functions of a namespace by their own names alone.

        Small models leave the namespace out; that counts where nothing else is called so.
        """
        owners = Counter(name for _, name in self.namespaces.values())
        alone: list[Tool] = []
        for joined, (namespace, name) in list(self.namespaces.items()) if offered else ():
            if owners[name] == 1 and name not in self.functions:
                function = cast(Mapping[str, object], self.functions[joined]["function"])
                alone.append({"type": "function", "function": {**function, "name": name}})
                self.namespaces[name] = (namespace, name)
        return (*offered, *alone)

    def identity(self, name: str) -> dict[str, str]:
        """What the client calls the function of that name in a call."""
        namespace, own = self.namespaces.get(name, (None, name))
        return {"name": own} if namespace is None else {"namespace": namespace, "name": own}


def items_of(given: str | Sequence[Item], reading: Reading) -> list[Item]:
    """The input as items, those that are referred to in their place. Raises: ApiError 404 for a forgotten one."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [reading.remembered.item(reading.owner, str(item.get("id"))) if _refers(item) else item for item in given]


def chat_messages(items: Sequence[Item], offer: Offer, reading: Reading) -> list[Message]:
    """The items as OpenAI chat messages; tools that some of them bring are offered.

    Raises: ApiError 400 for an item that cannot be read.
    """
    turns: list[Message] = []
    for number, item in enumerate(items):
        _add(item, f"input[{number}]", turns, offer, reading)
    return turns


def _refers(item: Item) -> bool:
    return item.get("type", "item_reference") == "item_reference" and "role" not in item and "id" in item


def _add(item: Item, place: str, turns: list[Message], offer: Offer, reading: Reading) -> None:
    """Append what `item` says; reasoning, text and calls of one answer become one assistant message."""
    kind = str(item.get("type") or "message")
    if kind == "message":
        _add_message(item, place, turns, reading)
    elif kind == "reasoning":
        answer = _answer(turns)
        answer["reasoning_content"] = f"{answer.get('reasoning_content', '')}{_thoughts(item, place)}"
        reading.ignore_unread(item, f"{place}.", ("id", "type", "status", "content"))
    elif kind in _CALLS:
        calls = _answer(turns).setdefault("tool_calls", [])
        assert isinstance(calls, list)
        calls.append(_call(item, kind, place))
    elif kind.endswith("_output"):
        text = _found(item, place, offer, reading) if kind == "tool_search_output" else _output(item, place, reading)
        turns.append({"role": "tool", "content": text, "tool_call_id": str(item.get("call_id") or "")})
    elif kind == "additional_tools":
        offer.add(item.get("tools") or [], f"{place}.tools", reading)
    elif kind.endswith("_call") or kind.startswith(("mcp_", "compaction")):
        reading.ignore(f"{place}.{kind[:40]}")  # what other servers did
    else:
        raise unsupported(f"{place}.type", f"{kind[:40]!r} is not known. Send messages, calls and their outputs.")


def _add_message(item: Item, place: str, turns: list[Message], reading: Reading) -> None:
    role = item.get("role")
    if role not in ROLES:
        raise invalid(f"{place}.role is {str(role)[:40]!r}. Give user, assistant, system or developer.", "input")
    text = content_text(item.get("content"), f"{place}.content", reading)
    if role == "assistant":
        answer = _answer(turns)
        answer["content"] = f"{answer['content']}{text}"
    else:
        turns.append({"role": role, "content": text})
    reading.ignore_unread(item, f"{place}.", _OF_MESSAGE)


def _answer(turns: list[Message]) -> Message:
    """The assistant message that further parts of the same answer belong to."""
    if not turns or turns[-1]["role"] != "assistant":
        turns.append({"role": "assistant", "content": ""})
    return turns[-1]


def _call(item: Item, kind: str, place: str) -> Message:
    """A call that a client ran, as a function call."""
    name = item.get("name", None if kind.startswith(("function", "custom")) else kind.removesuffix("_call"))
    if not isinstance(name, str):
        raise invalid(f"{place} is a call without a name. Send calls as they were made.", "input")
    namespace, arguments = item.get("namespace"), item.get(_CALLS[kind]) or ""
    if isinstance(namespace, str):
        name = f"{namespace}__{name}"
    if kind == "custom_tool_call":
        arguments = {"input": arguments}
    function = {"name": name, "arguments": arguments}
    return {"id": str(item.get("call_id") or ""), "type": "function", "function": function}


def _output(item: Item, place: str, reading: Reading) -> str:
    """What came of a call: text or parts as they are, anything else as JSON."""
    given = item.get("output")
    parts = [given] if isinstance(given, Mapping) else given
    if isinstance(parts, list) and not all(isinstance(part, str) or _is_typed(part) for part in parts):
        return to_json(given)
    return content_text(parts, f"{place}.output", reading, result_text)


def _is_typed(part: object) -> bool:
    return isinstance(part, Mapping) and "type" in part


def _found(item: Item, place: str, offer: Offer, reading: Reading) -> str:
    """What a search for tools found: they are offered from here on."""
    known = set(offer.functions)
    offer.add(item.get("tools") or [], f"{place}.tools", reading)
    return f"Tools found: {', '.join(name for name in offer.functions if name not in known) or 'none that is new'}."


def _thoughts(item: Item, place: str) -> str:
    """The reasoning's own text. Summaries and encrypted content of other servers say nothing to this model."""
    parts = item.get("content") or []
    if not isinstance(parts, list):
        raise invalid(f"{place}.content is no list of parts.", "input")
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))
