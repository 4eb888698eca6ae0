"""What was said: turns, and the messages that they make. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dflash2_mlx.errors import UsageError

Message = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer, the reasoning as it was generated. stopped: the user cut it off."""

    question: str
    answer: str
    reasoning: str = ""
    stopped: bool = False


@dataclass(slots=True)
class Conversation:
    """Complete turns, oldest first, under an optional system message."""

    system: str | None = None
    turns: list[Turn] = field(default_factory=list)

    def messages(self, question: str | None = None) -> list[Message]:
        """All messages, then `question`. Past answers keep their reasoning: templates write them again as they were."""
        messages: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns:
            messages.append({"role": "user", "content": turn.question})
            messages.append({"role": "assistant", "content": turn.answer, "reasoning_content": turn.reasoning})
        return messages if question is None else [*messages, {"role": "user", "content": question}]

    def undo(self) -> Turn:
        """Take the last turn back. Raises: UsageError where there is none."""
        if not self.turns:
            raise UsageError("there is no turn to take back: the conversation is empty.")
        return self.turns.pop()

    def drop(self, count: int) -> None:
        """Forget the oldest turns. Raises: UsageError for more than there are."""
        if not 1 <= count <= len(self.turns):
            raise UsageError(f"cannot drop {count} turns: there are {len(self.turns)}. /clear forgets all of them.")
        del self.turns[:count]

    @property
    def last(self) -> Turn:
        """The last turn. Raises: UsageError where there is none."""
        if not self.turns:
            raise UsageError("nothing was said yet: type a question first.")
        return self.turns[-1]

    @property
    def length(self) -> str:
        """`1 turn`, `2 turns`."""
        return "1 turn" if len(self.turns) == 1 else f"{len(self.turns)} turns"


def excerpt(text: str) -> str:
    """The beginning of a message."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def from_messages(messages: Sequence[object]) -> Conversation:
    """The conversation that `messages` tell. Raises: UsageError unless they are system?, (user, assistant)*."""
    conversation, rest = Conversation(), list(enumerate(messages, start=1))
    if rest and _role(rest[0]) == "system":
        conversation.system = _text(rest.pop(0), "content")
    for user, assistant in zip(rest[0::2], rest[1::2], strict=False):
        if (_role(user), _role(assistant)) != ("user", "assistant"):
            raise UsageError(
                f"messages {user[0]} and {assistant[0]} are of {_role(user)} and {_role(assistant)}, not of user and "
                "assistant in turn."
            )
        reasoning = _text(assistant, "reasoning_content", "")
        conversation.turns.append(Turn(_text(user, "content"), _text(assistant, "content"), reasoning))
    if len(rest) % 2:
        raise UsageError(f"message {rest[-1][0]} has no answer: a saved chat ends with one.")
    return conversation


def _role(numbered: tuple[int, object]) -> str:
    return _text(numbered, "role")


def _text(numbered: tuple[int, object], key: str, default: str | None = None) -> str:
    number, message = numbered
    value = message.get(key, default) if isinstance(message, Mapping) else None
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"message {number} has no text under {key!r}.")
    return value
