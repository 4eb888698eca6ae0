"""Long pastes as short marks in the line being edited, so that editing stays quick. Pure."""

import re

_LONGEST, _MOST_LINES = 2000, 20  # what is pasted as it is
_MARK = re.compile(r"\[pasted #(\d+): (\d+) characters\]")
_MARK_AT_END = re.compile(_MARK.pattern + r"\Z")


class Pastes:
    """The texts behind the marks of this chat."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._plain = ""  # what was pasted last, as long as it is short enough to be seen

    def insert(self, before: str, text: str) -> tuple[int, str]:
        """How many characters to remove in front of the cursor, and what to insert for `text` pasted behind `before`.

        A paste right behind a mark belongs to it: terminals without bracketed paste hand a paste over in pieces.
        """
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        mark = self.mark_before(before)
        if mark:
            number = int(mark[1])
            self._texts[number] += text
            return len(mark[0]), self._mark(number)
        seen = self._plain if before.endswith(self._plain) else ""
        if _is_short(seen + text):
            self._plain = seen + text
            return 0, text
        self._plain = ""
        return len(seen), self.keep(seen + text)

    def keep(self, text: str) -> str:
        """The mark of a new text."""
        number = len(self._texts) + 1
        self._texts[number] = text
        return self._mark(number)

    def shorten(self, text: str) -> str:
        """`text` itself, or its mark if it is long."""
        return text if _is_short(text) else self.keep(text)

    def mark_before(self, before: str) -> re.Match[str] | None:
        """The mark that ends right at the cursor."""
        mark = _MARK_AT_END.search(before)
        return mark if mark and self._known(mark) else None

    def expand(self, line: str) -> str:
        """The line with the texts in place of their marks."""
        return _MARK.sub(lambda mark: self._texts[int(mark[1])] if self._known(mark) else mark[0], line)

    def _known(self, mark: re.Match[str]) -> bool:
        text = self._texts.get(int(mark[1]))
        return text is not None and len(text) == int(mark[2])

    def _mark(self, number: int) -> str:
        return f"[pasted #{number}: {len(self._texts[number])} characters]"


def _is_short(text: str) -> bool:
    return len(text) <= _LONGEST and text.count("\n") < _MOST_LINES
