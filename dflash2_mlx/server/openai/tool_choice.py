"""The tools of a request in OpenAI's form, and the choice among them. Reads no calls: the text layer does."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.server.errors import invalid, unsupported
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.text.tags import Tool


def offered_tools(
    tools: Sequence[Tool] | None, choice: str | Mapping[str, object] | None, reading: Reading
) -> tuple[Tool, ...]:
    """The tools to offer.

    Raises: ApiError 400 for a tool that is no function, or a choice that would have to be forced on the model.
    """
    for number, tool in enumerate(tools or ()):
        _check(tool, f"tools[{number}]", reading)
    if choice not in (None, "auto", "none"):
        shown = choice if isinstance(choice, str) else choice.get("type")
        raise unsupported(
            "tool_choice",
            f"{str(shown)[:40]!r} cannot be enforced yet. Give auto or none, and ask for it in the prompt.",
        )
    return () if choice == "none" else tuple(tools or ())


def _check(tool: Tool, place: str, reading: Reading) -> None:
    """Raise ApiError 400 unless the tool is a function with a name."""
    kind, function = tool.get("type", "function"), tool.get("function")
    if kind != "function":
        raise unsupported(f"{place}.type", f"{str(kind)[:40]!r} is not known. Offer functions.")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise invalid(f"{place} has no function.name. Give a function with name and parameters.", "tools")
    if not isinstance(function.get("parameters", {}), Mapping | None):
        raise invalid(f"{place}.function.parameters is no JSON schema. Give an object.", "tools")
    if function.get("strict"):
        reading.ignore("tools[].function.strict")
