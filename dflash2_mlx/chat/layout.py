"""Breaks styled text into lines of a given width, each of them final as soon as the next one begins. Knows cells."""

from itertools import accumulate

from rich.cells import chop_cells, get_character_cell_size
from rich.text import Text

_JOINER = "\u200d"
_NEVER_FIRST = frozenset("、。，．：；！？）」』】》〉”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ")
_NEVER_LAST = frozenset("（「『【《〈“‘")
_NARROWEST = 8


class Flow:
    """One paragraph, laid out while it grows. Every line comes out once, and no later text changes it.

    first, rest: what the first and all other lines begin with; only their ends where the line is too narrow for both.
    """

    def __init__(self, width: int, first: Text | None = None, rest: Text | None = None) -> None:
        self._width = width
        self._prefix, self._rest = first or Text(), rest or Text()
        self._kept = Text()  # settled text whose line may still grow

    def add(self, text: Text) -> list[Text]:
        """The lines that `text` completes."""
        self._kept.append_text(text)
        starts = line_starts(self._kept.plain, self._room(self._prefix), self._room(self._rest))
        lines = self._cut(self._kept, starts)
        if starts:
            self._kept, self._prefix = self._kept[starts[-1] :], self._rest
        return lines[:-1]

    def open(self, tail: Text) -> list[Text]:
        """The unfinished lines with `tail`, which is not settled, behind them."""
        whole = self._kept.copy().append_text(tail)
        return self._cut(whole, line_starts(whole.plain, self._room(self._prefix), self._room(self._rest)))

    def close(self) -> list[Text]:
        """What `add` has not returned."""
        return self.open(Text())

    def leave(self, width: int) -> None:
        """Go on with later text only, on a new line of another width: what is there was shown."""
        self._width, self._kept, self._prefix = width, Text(), self._rest

    def _room(self, prefix: Text) -> int:
        return max(_NARROWEST, self._width - prefix.cell_len)

    def _begun(self, prefix: Text) -> Text:
        """The start of a line: the end of `prefix` for which there is room beside some text."""
        surplus = prefix.cell_len - max(0, self._width - _NARROWEST)
        return prefix[surplus:] if surplus > 0 else prefix.copy()

    def _cut(self, text: Text, starts: list[int]) -> list[Text]:
        lines, begin = [], 0
        for end in (*starts, len(text)):
            piece = text[begin:end]
            piece.rstrip()
            lines.append(self._begun(self._rest if begin else self._prefix).append_text(piece))
            begin = end
        return lines


def line_starts(text: str, first: int, rest: int) -> list[int]:
    """Where new lines begin when the first line has room for `first` cells and every other one for `rest`."""
    starts: list[int] = []
    begin = chance = used = 0
    room = first
    for index, character in enumerate(text):
        size = get_character_cell_size(character)
        if index > begin and _may_begin(text, index):
            chance = index
        if used + size > room and character != " " and index > begin:
            begin = chance if chance > begin else _cluster_start(text, index, begin)
            starts.append(begin)
            room, used = rest, sum(map(get_character_cell_size, text[begin:index]))
        used += size
    return starts


def fold(text: Text, width: int) -> list[Text]:
    """`text` cut after every `width` cells, words or not: for code. At least one line."""
    lengths = map(len, chop_cells(text.plain, max(_NARROWEST, width)))
    return list(text.divide([*accumulate(lengths)][:-1]))


def _may_begin(text: str, index: int) -> bool:
    """Whether a line may begin with the character at `index`: after a space, or beside a wide character."""
    before, character = text[index - 1], text[index]
    if character == " " or _joined(before, character):
        return False
    if before == " ":
        return True
    wide = get_character_cell_size(before) == 2 or get_character_cell_size(character) == 2
    return wide and character not in _NEVER_FIRST and before not in _NEVER_LAST


def _joined(before: str, character: str) -> bool:
    return before == _JOINER or get_character_cell_size(character) == 0


def _cluster_start(text: str, index: int, begin: int) -> int:
    """Where the character at `index` begins, with what it is joined to; later than `begin`."""
    while index > begin + 1 and _joined(text[index - 1], text[index]):
        index -= 1
    return index
