"""Which characters of an answer came from accepted draft tokens. Knows a token decoder and events.

The text of a round's first `accepted` tokens was drafted, that of its last token is the target's own. A character
made of several tokens belongs to the one that completes it.
"""

from collections import deque
from typing import Protocol

from dflash2_mlx.events import Channel, Delta, Round


class Decoder(Protocol):
    """What is used of TokenDecoder."""

    def push(self, token: int) -> str: ...


class Attribution:
    """Matches the deltas of an answer, in order, with the text of its tokens.

    Deltas lack the tags and some newlines next to them, which are skipped. think_end: the tag between reasoning and
    answer, if the model has one.
    """

    def __init__(self, decoder: Decoder, think_end: str | None) -> None:
        self._decoder, self._think_end = decoder, think_end
        self._text: deque[tuple[str, bool]] = deque()  # characters not matched yet; whether they were drafted
        self._channel: Channel | None = None

    def add(self, done: Round) -> None:
        """The tokens of the round whose deltas come next."""
        for number, token in enumerate(done.tokens):
            self._text.extend((character, number < done.accepted) for character in self._decoder.push(token))

    def pieces(self, delta: Delta) -> list[tuple[str, bool]]:
        """The delta's text in runs, each with whether it was drafted."""
        self._skip_to(delta)
        runs: list[tuple[str, bool]] = []
        for character in delta.text:
            drafted = self._take(character)
            if runs and runs[-1][1] == drafted:
                runs[-1] = (runs[-1][0] + character, drafted)
            else:
                runs.append((character, drafted))
        return runs

    def _skip_to(self, delta: Delta) -> None:
        left = self._channel == "reasoning" and delta.channel != "reasoning"
        self._channel = delta.channel
        text = "".join(character for character, _ in self._text)
        start = 0
        if left and self._think_end and self._think_end in text:
            start = text.index(self._think_end) + len(self._think_end)
        found = text.find(delta.text, start)
        for _ in range(max(start, found)):
            self._text.popleft()

    def _take(self, character: str) -> bool:
        """Whether this character was drafted; what lies before it has no text. False if it is nowhere."""
        while self._text:
            candidate, drafted = self._text.popleft()
            if candidate == character:
                return drafted
        return False
