"""Splits text into reasoning, answer and tool calls, and ends it at a stop string. Knows strings, nothing of tokens."""

from collections.abc import Iterable, Sequence
from typing import get_args

from dflash2_mlx.config import stop_strings
from dflash2_mlx.events import Channel, Delta, ToolCall
from dflash2_mlx.text.tags import Edge, NoTags, State, TaggedTokenizer, Tool, grammar
from dflash2_mlx.text.tools import PARTS, names_functions, read_calls, tool_names

TextEvent = Delta | ToolCall


def append_merged(events: list[TextEvent], new: Iterable[TextEvent]) -> None:
    """Append `new` to `events`; neighbouring deltas of one channel become one."""
    for event in new:
        last = events[-1] if events else None
        if isinstance(last, Delta) and isinstance(event, Delta) and last.channel == event.channel:
            events[-1] = Delta(event.channel, last.text + event.text)
        else:
            events.append(event)


class Channels:
    """Text in, deltas and complete tool calls out, the same however the text is cut into pushes.

    Tags are not text. Reasoning opens only before any visible answer, and a tool call never opens inside it.
    Newlines next to the think tags belong to the tags, and so do newlines between two tool calls. A call that
    cannot be read, names a function that is not among `tools` or is cut off comes back as answer, tags included.
    Without `tools`, tool tags are plain answer text. A call that begins with its function and lacks the opening tag
    is one all the same, but for code that the answer quotes in backticks: from the name of a function on offer on,
    text is held back while it can become a call.

    stop: the text ends right before one of these. They are looked for outside the reasoning only, in the answer and
    in what tool calls are written as. The match that is complete first counts, and of two completed by the same
    character the longer. Only a proper prefix of a stop string is ever held back.
    continued: the answer began in the prompt; what comes first is the middle of it.

    Raises: UsageError for an empty stop string.
    """

    def __init__(
        self,
        tokenizer: TaggedTokenizer,
        *,
        start: Channel,
        tools: Sequence[Tool] | None = None,
        stop: Sequence[str] = (),
        continued: bool = False,
    ) -> None:
        self._parser = tokenizer.tool_parser
        self._tools = tuple(tools or ())
        calls = bool(self._tools and self._parser)
        self._bare = tool_names(self._tools) if calls and names_functions(self._parser) else frozenset[str]()
        self._grammar = grammar(tokenizer, start, calls=calls, bare=bool(self._bare), continued=continued)
        self._state: State = self._grammar.initial
        stops, states = stop_strings(stop), get_args(State)
        self._edges = {state: self._grammar.leaving(state) for state in states}
        self._stops = {state: () if state in ("reasoning", "header") else stops for state in states}
        self._strings = {state: (*{*self._edges[state], *self._stops[state]},) for state in states}
        self.stopped: str | None = None  # the stop string that ended the text
        self._endless_call = not tokenizer.tool_call_end  # such a call runs to the end of the output
        self._buffer = ""  # may be the beginning of a tag
        self._call: list[str] = []  # the raw text of an unfinished call, opening tag first
        self._header = ""
        self._newlines = ""  # held until it is known whether text or a tag follows
        self._fresh = self._state == "reasoning" and not continued  # newlines met now are dropped
        self._after_call = False
        self._spoken = continued
        self._backticks = 0  # in the answer; an odd number of them has code open

    @classmethod
    def plain(cls, stop: Sequence[str] = ()) -> "Channels":
        """Everything is answer: for raw prompts."""
        return cls(NoTags(), start="answer", stop=stop)

    @property
    def tags(self) -> frozenset[str]:
        """The tags that are read; the decoder must let them through."""
        return frozenset(edge.tag for edge in self._grammar.edges)

    def push(self, text: str) -> list[TextEvent]:
        """What `text` completes; the possible beginning of a tag or a stop string waits. Nothing once stopped."""
        events: list[TextEvent] = []
        if self.stopped is None:
            self._buffer += text
            while self._advance(events):
                pass
        return events

    def flush(self) -> list[TextEvent]:
        """Everything still held, whatever ended the output."""
        events: list[TextEvent] = []
        if self._state in ("opening", "bare_opening"):
            self._decide_for_text(events)
            while self._advance(events):
                pass
        text, self._buffer = self._buffer, ""
        if self._state in ("tool_call", "bare_call"):
            endless = self._state == "tool_call" and self._endless_call
            self._call.append(text)
            self._state = "answer"
            if not (endless and self._read_call("", False, events)):
                self._give_back(events)
        elif self._state == "header":
            self._show("" if self._spoken else self._header.strip(), events)  # an answer that has no header
        else:
            self._show(text, events)
        if self._newlines and not self._after_call:
            append_merged(events, [Delta(self._channel, self._newlines)])
        self._newlines = self._header = ""
        return events

    @property
    def _channel(self) -> Channel:
        return "reasoning" if self._state == "reasoning" else "answer"

    def _advance(self, events: list[TextEvent]) -> bool:
        """Handle the buffer up to and including its first tag; False if it has none."""
        if self._fresh and self._state in ("reasoning", "answer"):
            self._buffer = self._buffer.lstrip("\n")
        if self._state == "opening":
            return self._open()
        if self._state == "bare_opening":
            return self._open_bare_call(events)
        state, strings = self._state, self._strings[self._state]
        match = _first_match(self._buffer, strings)
        start, tag = match or (len(self._buffer) - _held_back(self._buffer, strings), "")
        text, self._buffer = self._buffer[:start], self._buffer[start + len(tag) :]
        self._take(text, events)
        if tag in self._stops[state]:
            self.stopped, self._buffer = tag, ""
        elif tag:
            self._cross(self._edges[state][tag], events)
        return bool(tag) and self.stopped is None

    def _open(self) -> bool:
        """Decide whether the output begins with a think tag; False while that is open."""
        visible = self._buffer.lstrip()
        for tag, edge in self._edges["opening"].items():
            if visible.startswith(tag):
                self._buffer, self._state, self._fresh = visible[len(tag) :], edge.target, True
                return True
            if tag.startswith(visible):
                return False
        self._decide_for_text([])
        return True

    def _open_bare_call(self, events: list[TextEvent]) -> bool:
        """Decide whether a call of a function on offer follows its tag; False while that is open."""
        for name in self._bare:
            heading, begun = f"{name}>", self._buffer
            if begun.startswith(heading):
                begun, heading = begun[len(heading) :].lstrip(), ""
            if not heading and begun.startswith(PARTS):
                self._state = "bare_call"
                return True
            if any(expected.startswith(begun) for expected in ([heading] if heading else PARTS)):
                return False
        self._decide_for_text(events)
        return True

    def _decide_for_text(self, events: list[TextEvent]) -> None:
        """What has been open is no tag."""
        opened, self._state = self._state, "answer"
        if opened == "bare_opening":
            self._give_back(events)

    def _take(self, text: str, events: list[TextEvent]) -> None:
        if self._state in ("tool_call", "bare_call"):
            self._call.append(text)
        elif self._state == "header":
            self._header += text
        else:
            self._show(text, events)

    def _cross(self, edge: Edge, events: list[TextEvent]) -> None:
        self._state = edge.target
        if edge.source in ("tool_call", "bare_call"):
            self._close_call(edge, events)
        elif edge.target == "bare_opening" and self._backticks % 2:
            self._state = "answer"
            self._show(edge.tag, events)
        elif edge.target in ("tool_call", "bare_opening"):
            self._call = [edge.tag]
        elif edge.ends_call and self._after_call:  # of a call that began without its tag
            self._newlines = ""
        elif edge.kept:
            self._show(edge.tag, events)
        elif "reasoning" in (edge.source, edge.target):
            self._newlines, self._fresh = "", True

    def _show(self, text: str, events: list[TextEvent]) -> None:
        if not text:
            return
        self._fresh = False
        self._backticks += text.count("`") if self._state == "answer" else 0
        text = self._newlines + text
        visible = text.rstrip("\n")
        if self._state != "reasoning" and (visible or not self._after_call):
            visible = text
        self._newlines = text[len(visible) :]
        if visible:
            self._spoken, self._after_call = True, False
            append_merged(events, [Delta(self._channel, visible)])

    def _close_call(self, edge: Edge, events: list[TextEvent]) -> None:
        self._call.append(edge.tag)
        bare = edge.source == "bare_call"
        if self._read_call(edge.tag, bare, events):
            return
        if bare:  # the tag may have been a part of a value
            self._state = "bare_call"
        else:
            self._give_back(events)

    def _read_call(self, closing: str, bare: bool, events: list[TextEvent]) -> bool:
        """Whether what was collected is a call; then it is one."""
        raw = "".join(self._call)
        inside = raw if bare else raw[len(self._call[0]) : len(raw) - len(closing)]
        assert self._parser is not None
        calls = read_calls(inside, raw, self._parser, self._tools)
        if calls:
            events.extend(calls)
            self._call, self._newlines = [], ""
            self._spoken = self._after_call = True
        return bool(calls)

    def _give_back(self, events: list[TextEvent]) -> None:
        raw, self._call = "".join(self._call), []
        self._show(raw, events)


def _first_match(text: str, strings: Sequence[str]) -> tuple[int, str] | None:
    """Where a match starts, and its string: the match that ends first; of two that end together, the longer."""
    found = [(at + len(string), at, string) for string in strings if (at := text.find(string)) >= 0]
    return min(found)[1:] if found else None


def _held_back(text: str, strings: Sequence[str]) -> int:
    """Length of the longest end of `text`, which holds no match, that more text could turn into one."""
    longest = max(map(len, strings), default=0)
    tails = (text[-length:] for length in range(min(longest - 1, len(text)), 0, -1))
    return next((len(tail) for tail in tails for string in strings if string.startswith(tail)), 0)
