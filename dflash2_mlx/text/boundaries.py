"""Where a later prompt will agree with this one, found by rendering later ones. Knows no template and no tokens."""

from collections.abc import Callable, Sequence

from dflash2_mlx.text.messages import Message

_SHORTEST_HEAD = 16  # a shorter one is sooner run again than kept
_LONGEST_WORD = 32  # characters
_LEADING = ("system", "developer")
# first user turns that begin unlike each other, one with a line end that may merge with the one before it
_TURNS: tuple[Message, ...] = tuple({"role": "user", "content": text} for text in ("a", "1", "\n\nb"))


def boundaries(messages: Sequence[Message], *, continued: bool, shared: Callable[[Sequence[Message]], int]) -> set[int]:
    """Numbers of leading tokens, at which prompts after `messages` are likely to branch off.

    They are: after the leading system messages and tools, where there are any; before the answer to these messages.
    continued: the last message goes on. shared: how many tokens the prompts of `messages` and of others share.
    """
    leading = [message for message in messages if message.get("role") in _LEADING]
    head = min(shared([*leading, turn]) for turn in _TURNS)
    later = _grown(messages) if continued else [[*messages, {"role": "assistant", "content": "a"}]]
    found = {min(shared([*answered, *after]) for answered in later) for after in ((), _TURNS[:1])}
    return found | ({head} if head >= _SHORTEST_HEAD else set())


def _grown(messages: Sequence[Message]) -> list[list[Message]]:
    """`messages` with more text in the last one. Its last word is left out: the tokens depend on what follows it."""
    last = messages[-1]
    key = "content" if str(last["content"]).strip() else "reasoning_content"
    text = str(last[key]).rstrip()
    words = text[-_LONGEST_WORD:].rsplit(None, 1)
    kept = text[:-_LONGEST_WORD] + (words[0] if len(words) == 2 else "")
    return [[*messages[:-1], {**last, key: kept + more}] for more in (" a", "\n\nb")]
