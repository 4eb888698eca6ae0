"""A last message of the assistant's that goes on: what of it is open. Knows no template."""

from collections.abc import Mapping
from dataclasses import dataclass

from dflash2_mlx.events import Channel

MARK = "the9text7goes5on3here"  # put where an answer goes on; nothing that a template would trim or escape


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


def _thinking(message: Mapping[str, object], thought: str) -> OpenTurn:
    kept = {key: value for key, value in message.items() if key != "reasoning"}  # a second name for the same text
    return OpenTurn({**kept, "content": "", "reasoning_content": thought + MARK}, thought.lstrip(), "reasoning")
