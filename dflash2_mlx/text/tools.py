"""The text of tool calls to ToolCall events, checked against the tools on offer. Keeps no state."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from dflash2_mlx.events import ToolCall
from dflash2_mlx.parsing import parse_json
from dflash2_mlx.text.arguments import argument
from dflash2_mlx.text.tags import CALL_BEGIN, CALL_END, Tool, ToolParser

PARTS = ("<parameter=", CALL_END)  # what may follow the name of a function
# What begins a call, a parameter and its value, and the end of a call. A parameter ends where another one or the end
# of the call follows, so that values may hold tags.
_WRITTEN = tuple(
    tuple(re.compile(pattern, re.DOTALL) for pattern in patterns)
    for patterns in (
        (
            rf"\s*{CALL_BEGIN}\s*([^<>\s]+)>?",
            r"\s*<parameter=\s*([^<>\s]+)>?\n?(.*?)\n?</parameter>(?=\s*<parameter=|\s*</function>)",
            rf"\s*{CALL_END}\s*",
        ),
        (
            r'\s*<atem:invoke\b[^>]*?\bname="([^"]+)"[^>]*>',
            r'\s*<atem:parameter\b[^>]*?\bname="([^"]+)"[^>]*>\n?(.*?)\n?</atem:parameter>'
            r"(?=\s*<atem:parameter\b|\s*</atem:invoke>|\s*$)",
            r"\s*(?:</atem:invoke>\s*|$)",
        ),
    )
)


def tool_names(tools: Sequence[Tool]) -> frozenset[str]:
    """Names of the functions on offer, in either of the two shapes that clients send."""
    return frozenset(name for tool in tools if isinstance(name := _function(tool).get("name"), str))


def names_functions(parser: ToolParser | None) -> bool:
    """Whether the calls that `parser` reads are written `<function=name><parameter=...>`."""
    try:
        parsed = parser(f"{CALL_BEGIN}f>{CALL_END}", []) if parser else None
        return isinstance(parsed, Mapping) and parsed.get("name") == "f"
    except Exception:  # parsers fail in many ways
        return False


def read_calls(inside: str, raw: str, parser: ToolParser, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """The calls written in `inside`, the text between the tags of `raw`; each carries the whole `raw`.

    Empty if the text is malformed or names a function that is not on offer: then `raw` is to be shown as text.
    """
    try:
        written = next((patterns for patterns in _WRITTEN if patterns[0].match(inside)), None)
        parsed = list(_written_out(inside, tools, written)) if written else parser(inside, list(tools))
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
    return ToolCall(str(call["name"]), _as_json(arguments), raw)


def _as_json(arguments: Mapping[str, object]) -> str:
    text = json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which the model wrote as an escape
        return json.dumps(dict(arguments))
    return text


def _written_out(text: str, tools: Sequence[Tool], written: Sequence[re.Pattern[str]]) -> Iterator[dict[str, object]]:
    """Calls whose parameters are written out, one call behind the other. Raises: ValueError for anything else."""
    begin, part, end = written
    place = 0
    while place < len(text):
        name = begin.match(text, place)
        if name is None:
            raise ValueError("no function")
        schema, place = _schema(name[1], tools), name.end()
        arguments: dict[str, object] = {}
        while parameter := part.match(text, place):
            key, value, place = parameter[1], parameter[2], parameter.end()
            arguments.update((key, read) for read in argument(value, key, schema))
        closing = end.match(text, place)
        if closing is None:
            raise ValueError("no end")
        place = closing.end()
        yield {"name": name[1], "arguments": arguments}


def _function(tool: Tool) -> Mapping[str, object]:
    function = tool.get("function", tool)
    return function if isinstance(function, Mapping) else {}


def _schema(name: str, tools: Sequence[Tool]) -> Mapping[str, object]:
    found = (function.get("parameters") for function in map(_function, tools) if function.get("name") == name)
    schema = next(found, None)
    return schema if isinstance(schema, Mapping) else {}
