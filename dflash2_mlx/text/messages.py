"""Chat messages as clients send them, made into the shape that chat templates expect. Knows no tokenizer."""

from collections.abc import Mapping, Sequence

from dflash2_mlx.errors import PromptError
from dflash2_mlx.parsing import parse_json

Message = Mapping[str, object]
EMPTY_PROMPT = "the prompt is empty, so there is nothing to answer. Give some text."


def user_message(text: str, system: str | None = None) -> list[Message]:
    """A conversation of one user turn, after a system message if one is given.

    Raises: PromptError if `text` is blank.
    """
    if not text.strip():
        raise PromptError(EMPTY_PROMPT)
    user: Message = {"role": "user", "content": text}
    return [user] if system is None else [{"role": "system", "content": system}, user]


def plain_messages(messages: Sequence[Message]) -> list[dict[str, object]]:
    """Copies with text as content, tool arguments as mappings, and reasoning under its usual name.

    Raises: PromptError for no messages at all, a content that is not text, or arguments that are no JSON object.
    """
    if isinstance(messages, bytes | Mapping) or not isinstance(messages, Sequence | None):
        raise PromptError(f"the conversation is of type {type(messages).__name__}. Give a text or a list of messages.")
    if not messages:
        raise PromptError("the conversation has no messages. Give at least one user message.")
    return [_plain(message, number) for number, message in enumerate(messages, start=1)]


def _plain(message: object, number: int) -> dict[str, object]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise PromptError(f"message {number} has no role. Give an object with role and content.")
    plain = dict(message)
    plain["content"] = _text(message.get("content"), number)
    if plain.get("reasoning_content") is None and isinstance(message.get("reasoning"), str):
        plain["reasoning_content"] = message["reasoning"]
    if message.get("tool_calls"):
        plain["tool_calls"] = _calls(message["tool_calls"], number)
    return plain


def _text(content: object, number: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(_part_text(part, number) for part in content)
    raise PromptError(f"the content of message {number} is of type {type(content).__name__}. Give text.")


def _part_text(part: object, number: int) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(text, str):
        return text
    if kind == "text":
        raise PromptError(f"a text part of message {number} has no text. Give it the key text.")
    raise PromptError(f"message {number} has a content part of type {kind}, and only text is read. Send text parts.")


def _calls(calls: object, number: int) -> list[dict[str, object]]:
    if not isinstance(calls, Sequence) or not all(isinstance(call, Mapping) for call in calls):
        raise PromptError(f"tool_calls of message {number} is not a list of objects. Give a list.")
    return [_call(call, number) for call in calls]


def _call(call: Mapping[str, object], number: int) -> dict[str, object]:
    function = call.get("function")
    if isinstance(function, Mapping):
        return {**call, "function": _call(function, number)}
    return {**call, "arguments": _arguments(call.get("arguments"), call.get("name"), number)}


def _arguments(arguments: object, name: object, number: int) -> Mapping[str, object]:
    if arguments is None or arguments == "":
        return {}
    try:
        value = parse_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise PromptError(
            f"the arguments of tool call {name} in message {number} are not valid JSON ({error}): "
            f"{str(arguments)[:80]!r}. Send the arguments as the model wrote them."
        ) from error
    if not isinstance(value, Mapping):
        raise PromptError(f"the arguments of tool call {name} in message {number} are {value!r}. Give a JSON object.")
    return value
