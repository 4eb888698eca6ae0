"""Where the chat happens: a terminal that can redraw, or pipes. Knows screen and views, nothing of turns."""

from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.text import Text

from dflash2_mlx.chat.layout import Flow
from dflash2_mlx.chat.remarks import wrapped
from dflash2_mlx.chat.screen import Screen
from dflash2_mlx.chat.view import PlainView, ScreenView, View, ViewOptions
from dflash2_mlx.text.printable import printable


class TerminalStage:
    """A terminal that can redraw lines.

    interactive: a person sits there. edits: a prompt may begin with text.
    """

    interactive = edits = True

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    @property
    def accepted_mark(self) -> str | None:
        """What accepted draft tokens look like; None where they look like all others."""
        return "Green" if self._screen.look.colour else "Underlined"

    def say(self, text: str) -> None:
        """Talk, as opposed to an answer."""
        self._screen.say(text)

    def describe(self, groups: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """Names and what they mean, under headings."""
        margin = min(_margin(groups), self._screen.width // 2)
        for heading, rows in groups.items():
            self._screen.show([*([Text()] if heading != next(iter(groups)) else []), Text(heading, "chat.accent")])
            for name, meaning in rows:
                flow = Flow(self._screen.width, Text(f"  {name} ".ljust(margin)), Text(" " * margin))
                self._screen.show([*flow.push(Text(meaning, "chat.note")), *flow.close()])

    def fail(self, text: str) -> None:
        """Why something was not done."""
        self._screen.say(text, "chat.error")

    def answer_line(self, parts: Sequence[str]) -> None:
        """The line about an answer."""
        separator = self._screen.look.symbol("·", "-")
        self.gap()
        self.say("\n".join(wrapped(parts, separator, self._screen.width)))

    def gap(self) -> None:
        """An empty line between turns."""
        self._screen.say("")

    def view(self, options: ViewOptions) -> View:
        """Where the next answer goes."""
        return ScreenView(self._screen, options, ticking=True)

    def control(self, codes: str) -> bool:
        """Send the terminal a control sequence; False where there is none."""
        self._screen.control(codes)
        return True


class PlainStage:
    """Answers to `out`, everything else to `talk`, no control sequences. interactive: a terminal nevertheless."""

    accepted_mark, edits = None, False

    def __init__(self, out: TextIO, talk: TextIO, *, interactive: bool) -> None:
        self._out, self._talk = out, talk
        self.interactive = interactive

    def say(self, text: str) -> None:
        print(printable(text), file=self._talk, flush=True)

    def describe(self, groups: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        margin = _margin(groups)
        for heading, rows in groups.items():
            self.say("\n".join([heading, *(f"  {name} ".ljust(margin) + meaning for name, meaning in rows)]))

    def fail(self, text: str) -> None:
        self.say(f"dflash2-mlx: {text}")

    def answer_line(self, parts: Sequence[str]) -> None:
        if self.interactive:
            self.say(f"[{', '.join(parts)}]")

    def gap(self) -> None:
        if self.interactive:
            self.say("")

    def view(self, options: ViewOptions) -> View:
        return PlainView(self._out, self._talk, thinking=options.thinking)

    def control(self, codes: str) -> bool:
        return False


Stage = TerminalStage | PlainStage


def _margin(groups: Mapping[str, Sequence[tuple[str, str]]]) -> int:
    return max(len(name) for rows in groups.values() for name, _ in rows) + 4
