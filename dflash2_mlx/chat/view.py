"""Shows one answer while it comes. Knows events, Markdown and the screen; a plain view for pipes."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from rich.text import Text

from dflash2_mlx.chat.accepted import Attribution
from dflash2_mlx.chat.blocks import Marks
from dflash2_mlx.chat.layout import Flow
from dflash2_mlx.chat.markdown import WIDEST_PROSE, MarkdownStream
from dflash2_mlx.chat.screen import Screen
from dflash2_mlx.events import Channel, Delta, Prefilling, Round
from dflash2_mlx.text.printable import printable

_REDRAW_S = 1 / 30
_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """thinking: show it, or only that it happens. attribution: colour accepted tokens instead of reading Markdown."""

    thinking: bool = True
    attribution: Attribution | None = None


class ScreenView:
    """An answer on a terminal: thinking dimmed, Markdown rendered, redrawn at most 30 times a second.

    Until the first token a line tells how long it takes. ticking: also while nothing happens.
    """

    def __init__(
        self, screen: Screen, options: ViewOptions, clock: Callable[[], float] = time.monotonic, ticking: bool = False
    ) -> None:
        self._screen, self._options, self._clock = screen, options, clock
        self._channel: Channel | None = None
        self._stream: MarkdownStream | Flow | None = None
        self._waiting: list[tuple[str, str]] = []  # text that is not drawn yet, and its style
        self._drawn = float("-inf")
        self._thought = 0  # tokens
        self._began: float | None = None  # the first round
        screen.resized()
        self._asked, self._prefilled = clock(), ""
        self._waiting_over, self._drawing = threading.Event(), threading.Lock()
        if ticking:
            threading.Thread(target=self._tick, daemon=True).start()

    def prefilling(self, event: Prefilling) -> None:
        """So much of the prompt is read."""
        if event.done < event.total - 1:
            self._prefilled = f"reading {event.done} of {event.total} tokens, "
        self._show_waiting()

    def round(self, event: Round) -> None:
        """The tokens whose text comes next."""
        with self._drawing:
            self._waiting_over.set()
        if self._options.attribution:
            self._options.attribution.add(event)
        self._began = self._clock() if self._began is None else self._began
        if self._channel in (None, "reasoning"):
            self._thought += len(event.tokens)

    def delta(self, event: Delta) -> None:
        """A piece of text."""
        lines: list[Text] = []
        if event.channel != self._channel:
            lines = self._leave_channel()
            self._enter(event.channel, lines)
        attribution = self._options.attribution
        if attribution:
            runs = [(text, "chat.accepted" if drafted else "") for text, drafted in attribution.pieces(event)]
            self._waiting += [(printable(text), style) for text, style in runs]
        else:
            self._waiting.append((printable(event.text), "dim" if event.channel == "reasoning" else ""))
        if lines or self._clock() - self._drawn >= _REDRAW_S:
            self._draw(lines)

    def finish(self) -> None:
        """Nothing more is coming."""
        with self._drawing:
            self._waiting_over.set()
        self._draw(self._leave_channel())

    def _tick(self) -> None:
        while not self._waiting_over.wait(_TICK_S):
            self._show_waiting()

    def _show_waiting(self) -> None:
        """The line in front of the first token."""
        with self._drawing:
            if self._waiting_over.is_set():
                return
            elapsed, frames = self._clock() - self._asked, self._screen.look.symbol("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\")
            line = Text(frames[int(elapsed / _TICK_S) % len(frames)], "chat.accent")
            line.append(f" {self._prefilled}{elapsed:.0f} s", "chat.note")
            self._screen.show([], [line[: self._screen.width]])

    def _enter(self, channel: Channel, lines: list[Text]) -> None:
        if self._channel is not None and lines:
            lines.append(Text())
        self._channel = channel
        look, width = self._screen.look, self._screen.width
        if channel == "reasoning":
            bar = Text().append(look.symbol("│ ", "| "), "dim")
            self._stream = Flow(min(width, WIDEST_PROSE), bar, bar) if self._options.thinking else None
        elif self._options.attribution:
            self._stream = Flow(min(width, WIDEST_PROSE))
        else:
            marks = Marks() if look.unicode else Marks("*", "|", "-", "[ ]", "[x]")
            self._stream = MarkdownStream(width, replace(marks, hyperlinks=look.hyperlinks))

    def _leave_channel(self) -> list[Text]:
        """The last lines of the current channel."""
        lines = self._push()
        if self._stream:
            return lines + self._stream.finish()
        if self._channel == "reasoning":
            return self._note(f"thought for {self._elapsed} (/think show)")
        return lines

    @property
    def _elapsed(self) -> str:
        return f"{self._clock() - (self._began or 0):.1f} s, {self._thought} tokens"

    def _note(self, text: str) -> list[Text]:
        flow = Flow(self._screen.width)
        return [*flow.push(Text(text, "chat.note")), *flow.close()]

    def _push(self) -> list[Text]:
        """The lines that the waiting text completes, after the screen's width was looked at."""
        if self._screen.resized() and self._stream:
            self._stream.leave(self._screen.width)
        waiting, self._waiting = self._waiting, []
        lines: list[Text] = []
        for text, style in waiting:
            if isinstance(self._stream, MarkdownStream):
                lines += self._stream.push(text)
            elif self._stream:
                lines += self._stream.push(Text(text.expandtabs(4), style))
        return lines

    def _draw(self, lines: Sequence[Text]) -> None:
        final = [*lines, *self._push()]
        if self._stream:
            live = self._stream.open()
        else:
            live = self._note(f"thinking, {self._elapsed}") if self._channel == "reasoning" else []
        self._screen.show(final, live)
        self._drawn = self._clock()


class PlainView:
    """An answer in a pipe, or on a terminal that cannot redraw: thinking to stderr, the answer to stdout."""

    def __init__(self, out: TextIO, talk: TextIO, *, thinking: bool) -> None:
        self._out, self._talk, self._thinking = out, talk, thinking
        self._open: TextIO | None = None

    def prefilling(self, event: Prefilling) -> None:
        pass

    def round(self, event: Round) -> None:
        pass

    def delta(self, event: Delta) -> None:
        stream = self._talk if event.channel == "reasoning" else self._out
        if stream is self._talk and not self._thinking:
            return
        if self._open not in (None, stream):
            self.finish()
        stream.write(printable(event.text) if stream.isatty() else event.text)
        stream.flush()
        self._open = None if event.text.endswith("\n") else stream

    def finish(self) -> None:
        if self._open:
            self._open.write("\n")
            self._open.flush()
        self._open = None


View = ScreenView | PlainView
