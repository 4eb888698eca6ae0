"""Where a later prompt will agree with this one, found by rendering a later one. Knows no template and no engine.

Only token ids count: the opened thinking tag of a prompt differs from the re-rendered block of a finished turn, and
tokenizers merge line ends, so a boundary in the text is no boundary in the tokens.
"""

from collections.abc import Callable, Sequence

from dflash2_mlx.text.messages import Message

_SHORTEST_HEAD = 16  # a shorter one is sooner run again than kept
_LEADING = ("system", "developer")
# first user turns that begin unlike each other, one with a line end that may merge with the one before it
_TURNS: tuple[Message, ...] = tuple({"role": "user", "content": text} for text in ("a", "1", "\n\nb"))


def boundaries(
    messages: Sequence[Message],
    answered: Sequence[Sequence[Message]],
    tokens: Sequence[int],
    render: Callable[[Sequence[Message]], Sequence[int] | None],
) -> tuple[int, ...]:
    """Numbers of leading `tokens`, ascending, at which prompts after `messages` are likely to branch off.

    They are: after the leading system messages and tools, where there are any; before the answer to these messages.
    answered: the messages with some answers. tokens: what `messages` render to. render: ids of other messages, None
    where the template refuses them.
    """
    leading = [message for message in messages if message.get("role") in _LEADING]
    head = min(_shared(tokens, render([*leading, turn])) for turn in _TURNS)
    found = {head} if head >= _SHORTEST_HEAD else set()
    for after in ([], [_TURNS[0]]):
        found.add(min(_shared(tokens, render([*later, *after])) for later in answered))
    return tuple(sorted({min(place, len(tokens) - 1) for place in found} - {0}))


def _shared(tokens: Sequence[int], other: Sequence[int] | None) -> int:
    """Length of the common prefix."""
    if other is None:
        return 0
    length = min(len(tokens), len(other))
    if list(tokens[:length]) == list(other[:length]):
        return length
    low, high = 0, length  # tokens[:low] are shared, tokens[:high] are not
    while high - low > 1:
        middle = (low + high) // 2
        if list(tokens[low:middle]) == list(other[low:middle]):
            low = middle
        else:
            high = middle
    return low
