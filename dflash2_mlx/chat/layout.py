"""Breaks styled text into lines of a given width, each of them final as soon as the next one begins. Knows cells."""

from copy import copy
from itertools import accumulate

from rich.cells import chop_cells, get_character_cell_size
from rich.text import Text

_JOINER = "\u200d"
_NEVER_FIRST = frozenset("、。，．：；！？）」』】》〉”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ")
_NEVER_LAST = frozenset("（「『【《〈“‘")
_NARROWEST = 8


class Flow:
    """Text laid out while it grows. Every line comes out once, and no later text changes it.

    first, rest: what the first and all other lines begin with; only their ends where the line is too narrow for both.
    """

    def __init__(self, width: int, first: Text | None = None, rest: Text | None = None) -> None:
        self._width = width
        self._prefix, self._rest = first or Text(), rest or Text()
        self._kept = Text()  # settled text whose line may still grow
        self._begun = False  # whether the line has anything on it

    def push(self, text: Text) -> list[Text]:
        """The lines that `text` completes."""
        lines: list[Text] = []
        for number, piece in enumerate(text.split("\n", allow_blank=True)):
            if number:
                lines += self.close()
            self._kept.append_text(piece)
            self._begun |= bool(piece)
            starts = self._starts(self._kept)
            lines += self._cut(self._kept, starts)[:-1]
            if starts:
                self._kept, self._prefix = self._kept[starts[-1] :], self._rest
        return lines

    def close(self) -> list[Text]:
        """The lines that `push` has not returned; a new line begins behind them."""
        lines = self._cut(self._kept, self._starts(self._kept))
        self._kept, self._prefix, self._begun = Text(), self._rest, False
        return lines

    def open(self) -> list[Text]:
        """The line that has begun, if any."""
        return self.copy().close() if self._begun else []

    finish = open

    @property
    def current(self) -> str:
        """The text of the line that has begun."""
        return self._kept.plain

    def leave(self, width: int) -> None:
        """Go on with later text only, on a new line of another width: what is there was shown."""
        self._width, self._kept, self._prefix = width, Text(), self._rest

    def copy(self) -> "Flow":
        """Another flow that goes on from here."""
        other = copy(self)
        other._kept = self._kept.copy()
        return other

    def _starts(self, text: Text) -> list[int]:
        first, rest = (max(_NARROWEST, self._width - prefix.cell_len) for prefix in (self._prefix, self._rest))
        return line_starts(text.plain, first, rest)

    def _cut(self, text: Text, starts: list[int]) -> list[Text]:
        lines, begin = [], 0
        for end in (*starts, len(text)):
            piece = text[begin:end]
            piece.rstrip()
            lines.append(fitting(self._rest if begin else self._prefix, self._width).append_text(piece))
            begin = end
        return lines


def fitting(prefix: Text, width: int) -> Text:
    """The end of `prefix` for which there is room beside some text on a line of `width` cells."""
    surplus = prefix.cell_len - max(0, width - _NARROWEST)
    return prefix[surplus:] if surplus > 0 else prefix.copy()


def line_starts(text: str, first: int, rest: int) -> list[int]:
    """Where new lines begin when the first line has room for `first` cells and every other one for `rest`."""
    starts: list[int] = []
    begin = chance = used = 0
    free = first
    for index, character in enumerate(text):
        size = get_character_cell_size(character)
        if index > begin and may_begin(text, index):
            chance = index
        if used + size > free and character != " " and index > begin:
            begin = chance if chance > begin else _cluster_start(text, index, begin)
            starts.append(begin)
            free, used = rest, sum(map(get_character_cell_size, text[begin:index]))
        used += size
    return starts


def fold(text: Text, width: int) -> list[Text]:
    """`text` cut after every `width` cells, words or not: for code. At least one line."""
    lengths = map(len, chop_cells(text.plain, max(_NARROWEST, width)))
    return list(text.divide([*accumulate(lengths)][:-1]))


def may_begin(text: str, index: int) -> bool:
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
