"""Finding strings in text that arrives in pieces. Knows nothing of tokens, stops or channels."""

from collections.abc import Collection


def first_match(text: str, strings: Collection[str]) -> tuple[int, str] | None:
    """Where a match starts, and its string: the match that ends first; of two that end together, the longer."""
    found = [(at + len(string), at, string) for string in strings if (at := text.find(string)) >= 0]
    if not found:
        return None
    _, start, string = min(found)
    return start, string


def held_back(text: str, strings: Collection[str]) -> int:
    """Length of the longest end of `text`, which holds no match, that more text could turn into one."""
    longest = max((len(string) for string in strings), default=0)
    for length in range(min(longest - 1, len(text)), 0, -1):
        tail = text[-length:]
        if any(string.startswith(tail) for string in strings):
            return length
    return 0
