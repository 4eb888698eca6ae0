"""Whether a tool call fits its function's JSON schema: the part of JSON Schema that tools use. Pure functions."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.parsing import parse_json

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def call_problem(name: str, arguments: str, tools: Sequence[Mapping[str, object]]) -> str | None:
    """Why the call with `arguments`, JSON text, does not fit any of the tools (OpenAI's form); None where it does."""
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            try:
                value = parse_json(arguments)
            except ValueError as error:
                return f"the arguments are no JSON: {error}"
            parameters = function.get("parameters")
            return problem(value, parameters if isinstance(parameters, Mapping) else {}, "arguments")
    return f"there is no function {name!r}"


def problem(value: object, schema: Mapping[str, object], where: str) -> str | None:
    """Why `value` does not fit the schema: type, enum, required, properties, additionalProperties, items."""
    kind, allowed = schema.get("type"), schema.get("enum")
    if isinstance(kind, str) and not _is(value, kind):
        return f"{where} is {value!r}, not of type {kind}"
    if isinstance(allowed, list) and value not in allowed:
        return f"{where} is {value!r}, not one of {allowed}"
    if isinstance(value, dict):
        return _object_problem(value, schema, where)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        found = (problem(item, items, f"{where}[{index}]") for index, item in enumerate(value))
        return next((line for line in found if line), None)
    return None


def _object_problem(value: Mapping[str, object], schema: Mapping[str, object], where: str) -> str | None:
    required, properties = schema.get("required"), schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    for key in required if isinstance(required, list) else ():
        if key not in value:
            return f"{where} lacks {key}"
    for key, item in value.items():
        if key in properties:
            found = problem(item, properties[key], f"{where}.{key}")
            if found:
                return found
        elif schema.get("additionalProperties") is False:
            return f"{where} has an unknown {key}"
    return None


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _TYPES.get(kind, (object,)))
