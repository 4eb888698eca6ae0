"""OpenAI chat messages made into what every template takes: one leading system message, text only. Renders nothing."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.server.errors import ApiError, invalid

Message = dict[str, object]
ROLES = ("system", "developer", "user", "assistant", "tool")
_KEPT = ("tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning")
_TEXT_PARTS = ("text", "input_text", "output_text")


def conversation(messages: Sequence[Mapping[str, object]]) -> list[Message]:
    """The messages with leading system messages merged, and later ones told in place by the user.

    Raises: ApiError 400 for a role or a content that no template takes.
    """
    if not messages:
        raise invalid("messages is empty. Give at least one user message.", "messages")
    read = [_message(message, number) for number, message in enumerate(messages)]
    leading = next((n for n, message in enumerate(read) if message["role"] != "system"), len(read))
    for message in read[leading:]:
        if message["role"] == "system":
            message["role"] = "user"
    if leading < 2:
        return read
    merged = "\n\n".join(text for message in read[:leading] if (text := str(message["content"])))
    return [{"role": "system", "content": merged}, *read[leading:]]


def part_text(part: object, place: str) -> str:
    """The text of one content part. Raises: ApiError 400 `unsupported_content` for any other kind."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise invalid(f"{place} is no content part. Give an object with type and text.", "messages")
    kind, text = part.get("type"), part.get("text")
    if kind not in _TEXT_PARTS:
        raise ApiError(
            400,
            "unsupported_content",
            f"{place} is of type {str(kind)[:40]}, and this server reads text only. Send text parts.",
            "messages",
        )
    if not isinstance(text, str):
        raise invalid(f"{place} has no text. Give it the key text.", "messages")
    return text


def content_text(content: object, place: str) -> str:
    """A message's content as text, null being empty. Raises: ApiError 400."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise invalid(f"{place} is of type {type(content).__name__}. Give text or a list of parts.", "messages")
    return "".join(part_text(part, f"{place}[{number}]") for number, part in enumerate(content))


def _message(message: Mapping[str, object], number: int) -> Message:
    role = message.get("role")
    if role not in ROLES:
        raise invalid(f"messages[{number}].role is {str(role)[:40]!r}. Give one of: {', '.join(ROLES)}.", "messages")
    role = "system" if role == "developer" else role
    content = content_text(message.get("content"), f"messages[{number}].content")
    read: Message = {"role": role, "content": content}
    for key in _KEPT:
        if message.get(key) is not None:
            read[key] = message[key]
    if "tool_calls" in read:
        _check_calls(read["tool_calls"], f"messages[{number}].tool_calls")
    for key in ("reasoning_content", "reasoning"):
        if key in read and not isinstance(read[key], str):
            raise invalid(f"messages[{number}].{key} is no text.", "messages")
    return read


def _check_calls(calls: object, place: str) -> None:
    if not isinstance(calls, list):
        raise invalid(f"{place} is no list. Give a list of calls.", "messages")
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise invalid(f"{place} holds a call without function.name. Send calls as they were made.", "messages")
