"""Which pieces of an answer's text were drafted. Knows rounds and the bytes of tokens, nothing of channels."""

import codecs
from collections.abc import Callable
from itertools import groupby

from dflash2_mlx.events import Round


class DraftedText:
    """Rounds in; what was drafted of the text that comes of them out.

    The text is looked for in what the tokens say, so tags and newlines that were dropped from it do no harm. A
    character that several tokens make up belongs to the last of them.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._said, self._drafted = "", list[bool]()  # characters whose text has not come yet, and of each: drafted?
        self._counts = {"tokens": 0, "drafted": 0, "accepted": 0}

    def see(self, done: Round) -> None:
        """Note a round: `accepted` of its tokens were drafted, the one behind them is the target's own."""
        counts = {"tokens": len(done.tokens), "drafted": done.drafted, "accepted": done.accepted}
        self._counts = {name: count + self._counts[name] for name, count in counts.items()}
        for number, token in enumerate(done.tokens):
            text = self._decoder.decode(self._token_bytes(token))
            self._said += text
            self._drafted += [number < done.accepted] * len(text)

    def take(self, text: str) -> dict[str, object]:
        """The rounds since the last call, and `text` in pieces: [text, whether it was drafted]."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        marked = zip(text, self._found(text), strict=True)
        pieces = [["".join(c for c, _ in run), mark] for mark, run in groupby(marked, key=lambda pair: pair[1])]
        return {**counts, "pieces": pieces}

    def _found(self, text: str) -> list[bool]:
        """Of each character of `text`: drafted? What is found is used up; what is not counts as its neighbour does."""
        whole, at, marks = self._said.find(text), 0, list[bool]()
        if whole >= 0:
            at, marks = whole + len(text), self._drafted[whole : whole + len(text)]
        for character in text[len(marks) :]:
            place = self._said.find(character, at)
            marks.append(self._drafted[place] if place >= 0 else bool(marks and marks[-1]))
            at = place + 1 if place >= 0 else at
        self._said, self._drafted = self._said[at:], self._drafted[at:]
        return marks
