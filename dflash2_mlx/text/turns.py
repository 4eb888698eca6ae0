"""The end of a conversation: a last turn that goes on, and what may follow it. Knows no template and no tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dflash2_mlx.events import Channel
from dflash2_mlx.text.messages import Message

MARK = "the9text7goes5on3here"  # put where an answer goes on; nothing that a template would trim or escape
_SHORTEST_HEAD = 16  # a shorter one is sooner run again than kept
_LONGEST_WORD = 32  # characters
_LEADING = ("system", "developer")
# first user turns that begin unlike each other, one with a line end that may merge with the one before it
_TURNS: tuple[Message, ...] = tuple({"role": "user", "content": text} for text in ("a", "1", "\n\nb"))


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A message with MARK behind its text. `ending`: what a template that changes nothing writes before the mark."""

    message: dict[str, object]
    ending: str
    channel: Channel


def open_turns(message: Mapping[str, object], think_start: str | None, think_end: str | None) -> list[OpenTurn]:
    """The ways to write `message` with an open end, best first; none where it is no text of the assistant's to go on.

    Text behind a think tag that is still open is reasoning, and so is the reasoning of a message without other text.
    """
    content, thought = str(message["content"]), message.get("reasoning_content") or ""
    if message["role"] != "assistant" or message.get("tool_calls") or not f"{content}{thought}".strip():
        return []
    if not content.strip():
        return [_thinking(message, str(thought))]
    last = content.rpartition(think_end)[2] if think_end else content
    turn = OpenTurn({**message, "content": content + MARK}, last.lstrip(), "answer")
    before, opening, thinking = content.partition(think_start) if think_start else (content, "", "")
    if thought or not opening or before.strip() or last != content:
        return [turn]
    return [_thinking(message, thinking), OpenTurn(turn.message, turn.ending, "reasoning")]


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


def _thinking(message: Mapping[str, object], thought: str) -> OpenTurn:
    kept = {key: value for key, value in message.items() if key != "reasoning"}  # a second name for the same text
    return OpenTurn({**kept, "content": "", "reasoning_content": thought + MARK}, thought.lstrip(), "reasoning")


def _grown(messages: Sequence[Message]) -> list[list[Message]]:
    """`messages` with more text in the last one. Its last word is left out: the tokens depend on what follows it."""
    last = messages[-1]
    key = "content" if str(last["content"]).strip() else "reasoning_content"
    text = str(last[key]).rstrip()
    words = text[-_LONGEST_WORD:].rsplit(None, 1)
    kept = text[:-_LONGEST_WORD] + (words[0] if len(words) == 2 else "")
    return [[*messages[:-1], {**last, key: kept + more}] for more in (" a", "\n\nb")]
