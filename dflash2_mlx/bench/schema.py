"""Whether a tool call fits its function's JSON schema. Knows jsonschema."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.parsing import parse_json


def call_problem(name: str, arguments: str, tools: Sequence[Mapping[str, object]]) -> str | None:
    """Why the call with `arguments`, JSON text, does not fit any of the tools (OpenAI's form); None where it does."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            try:
                value = parse_json(arguments)
            except ValueError as error:
                return f"the arguments are no JSON: {error}"
            found = best_match(Draft202012Validator(function.get("parameters") or {}).iter_errors(value))
            return f"{found.json_path}: {found.message}" if found else None
    return f"there is no function {name!r}"
