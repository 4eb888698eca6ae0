"""The text of one tool call to ToolCall events, checked against the tools on offer. Keeps no state."""

import json
from collections.abc import Mapping, Sequence

from dflash2_mlx.events import ToolCall
from dflash2_mlx.parsing import parse_json
from dflash2_mlx.text.tags import Tool, ToolParser


def tool_names(tools: Sequence[Tool]) -> frozenset[str]:
    """Names of the functions on offer, in either of the two shapes that clients send."""
    functions = (tool.get("function", tool) for tool in tools)
    names = (function.get("name") for function in functions if isinstance(function, Mapping))
    return frozenset(name for name in names if isinstance(name, str))


def read_calls(inside: str, raw: str, parser: ToolParser, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """The calls written in `inside`, the text between the tags of `raw`; each carries the whole `raw`.

    Empty if the text is malformed or names a function that is not on offer: then `raw` is to be shown as text.
    """
    try:
        parsed = parser(inside, list(tools))
        calls = parsed if isinstance(parsed, list) else [parsed]
        return tuple(_call(call, raw, tool_names(tools)) for call in calls)
    except Exception:  # a model can write anything, and parsers fail on it in many ways
        return ()


def _call(call: object, raw: str, names: frozenset[str]) -> ToolCall:
    if not isinstance(call, Mapping) or call.get("name") not in names:
        raise ValueError("not a call of a function on offer")
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        arguments = parse_json(arguments)
    if not isinstance(arguments, Mapping):
        raise ValueError("the arguments are not a JSON object")
    return ToolCall(str(call["name"]), json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False), raw)
