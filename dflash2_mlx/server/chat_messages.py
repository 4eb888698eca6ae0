"""OpenAI chat messages made into what every template takes: one leading system message, text only. Renders nothing."""

from collections.abc import Callable, Mapping, Sequence

from dflash2_mlx.server.errors import ApiError, invalid
from dflash2_mlx.server.reading import Reading

Message = dict[str, object]
PartReader = Callable[[object, str, Reading], str]
ROLES = ("system", "developer", "user", "assistant", "tool")
_KEPT = ("tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning")
_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
# Beside the text: what our own replies carry, and what is named once for the whole request.
_KNOWN_OF_PART = ("type", "text", "refusal", "annotations", "citations", "logprobs", "cache_control")


def template_messages(messages: Sequence[Mapping[str, object]], reading: Reading) -> list[Message]:
    """The messages with leading system messages merged, and later ones told in place by the user.

    Raises: ApiError 400 for a role or a content that no template takes.
    """
    if not messages:
        raise invalid("messages is empty. Give at least one user message.", "messages")
    read = [_message(message, f"messages[{number}]", reading) for number, message in enumerate(messages)]
    leading = next((n for n, message in enumerate(read) if message["role"] != "system"), len(read))
    for message in read[leading:]:
        if message["role"] == "system":
            message["role"] = "user"
    if leading < 2:
        return read
    merged = "\n\n".join(text for message in read[:leading] if (text := str(message["content"])))
    return [{"role": "system", "content": merged}, *read[leading:]]


def part_text(part: object, place: str, reading: Reading) -> str:
    """The text of one content part; of an image, where the settings allow it, that it was left out.

    Raises: ApiError 400 `unsupported_content` for any other kind.
    """
    text = _text(part, place, reading)
    if text is not None:
        return text
    kind = _kind(part)
    if kind == "image" and reading.settings.images == "placeholder":
        return _left_out(kind, place, reading)
    more = " Send text parts" + (", or start the server with --images placeholder." if kind == "image" else ".")
    message = f"{place} is of type {kind}, and this server reads text only.{more}"
    raise ApiError(400, "unsupported_content", message, "messages")


def result_text(part: object, place: str, reading: Reading) -> str:
    """The text of one part of a tool's result; of any other kind, that it was left out. Raises: ApiError 400."""
    text = _text(part, place, reading)
    return _left_out(_kind(part), place, reading) if text is None else text


def content_text(content: object, place: str, reading: Reading, read: PartReader = part_text) -> str:
    """A message's content as text, each part as `read` reads it, null being empty. Raises: ApiError 400."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise invalid(f"{place} is of type {type(content).__name__}. Give text or a list of parts.", "messages")
    return "".join(read(part, f"{place}[{number}]", reading) for number, part in enumerate(content))


def _text(part: object, place: str, reading: Reading) -> str | None:
    """The part's text; None for a part of another kind. Raises: ApiError 400 for no part at all."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise invalid(f"{place} is no content part. Give an object with type and text.", "messages")
    key = _TEXT_KEYS.get(str(part.get("type")))
    if key is None:
        return None
    text = part.get(key)
    if not isinstance(text, str):
        raise invalid(f"{place} has no text. Give it the key {key}.", "messages")
    reading.ignore_unread(part, f"{place}.", _KNOWN_OF_PART)
    return text


def _kind(part: object) -> str:
    """What a part is, in one word for all dialects."""
    assert isinstance(part, Mapping)
    return str(part.get("type"))[:40].removeprefix("input_").removesuffix("_url")


def _left_out(kind: str, place: str, reading: Reading) -> str:
    reading.ignore(f"{place}.{kind}")
    return f"[{kind} left out: this model reads text only]"


def _message(message: Mapping[str, object], place: str, reading: Reading) -> Message:
    role = message.get("role")
    if role not in ROLES:
        raise invalid(f"{place}.role is {str(role)[:40]!r}. Give one of: {', '.join(ROLES)}.", "messages")
    role = "system" if role == "developer" else role
    read_part = result_text if role == "tool" else part_text
    content = content_text(message.get("content"), f"{place}.content", reading, read_part)
    if isinstance(refusal := message.get("refusal"), str):
        content = content or refusal
    read: Message = {"role": role, "content": content}
    for key in _KEPT:
        if message.get(key) is not None:
            read[key] = message[key]
    if "tool_calls" in read:
        _check_calls(read["tool_calls"], f"{place}.tool_calls", reading)
    for key in ("reasoning_content", "reasoning"):
        if key in read and not isinstance(read[key], str):
            raise invalid(f"{place}.{key} is no text.", "messages")
    reading.ignore_unread(message, f"{place}.", ("role", "content", "refusal", *_KEPT))
    return read


def _check_calls(calls: object, place: str, reading: Reading) -> None:
    if not isinstance(calls, list):
        raise invalid(f"{place} is no list. Give a list of calls.", "messages")
    for number, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise invalid(f"{place} holds a call without function.name. Send calls as they were made.", "messages")
        reading.ignore_unread(call, f"{place}[{number}].", ("id", "type", "index", "function"))
        reading.ignore_unread(function, f"{place}[{number}].function.", ("name", "arguments"))
