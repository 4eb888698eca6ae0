"""The tools of a request in OpenAI's form, and the choice among them. Reads no calls: the text layer does."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.server.errors import invalid, unsupported

Tool = Mapping[str, object]


def offered_tools(
    tools: Sequence[Tool] | None, choice: str | Mapping[str, object] | None
) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools to offer, and the names of fields of theirs that nobody reads.

    Raises: ApiError 400 for a tool that is no function, or a choice that would have to be forced on the model.
    """
    for number, tool in enumerate(tools or ()):
        check_tool(tool, f"tools[{number}]")
    if choice == "none":
        return (), ()
    if choice not in (None, "auto"):
        shown = choice if isinstance(choice, str) else choice.get("type")
        raise unsupported(
            "tool_choice",
            f"{str(shown)[:40]!r} cannot be enforced yet. Give auto or none, and ask for it in the prompt.",
        )
    strict = any(isinstance(f := tool.get("function"), Mapping) and f.get("strict") for tool in tools or ())
    return tuple(tools or ()), ("tools[].function.strict",) if strict else ()


def check_tool(tool: Tool, place: str) -> None:
    """Raise ApiError 400 unless the tool is a function with a name."""
    kind, function = tool.get("type", "function"), tool.get("function")
    if kind != "function":
        raise unsupported(f"{place}.type", f"{str(kind)[:40]!r} is not known. Offer functions.")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise invalid(f"{place} has no function.name. Give a function with name and parameters.", "tools")
    if not isinstance(function.get("parameters", {}), Mapping | None):
        raise invalid(f"{place}.function.parameters is no JSON schema. Give an object.", "tools")
