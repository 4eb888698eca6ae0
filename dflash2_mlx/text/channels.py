"""Splits text into reasoning, answer and tool calls. Knows tags and strings, nothing of tokens."""

from collections.abc import Iterable, Sequence

from dflash2_mlx.events import Channel, Delta, ToolCall
from dflash2_mlx.text.matching import first_match, held_back
from dflash2_mlx.text.tags import Edge, NoTags, State, TaggedTokenizer, Tool, grammar
from dflash2_mlx.text.tools import read_calls

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
    Without `tools`, tool tags are plain answer text.
    continued: the answer began in the prompt; what comes first is the middle of it.
    """

    def __init__(
        self,
        tokenizer: TaggedTokenizer,
        *,
        start: Channel,
        tools: Sequence[Tool] | None = None,
        continued: bool = False,
    ) -> None:
        self._parser = tokenizer.tool_parser
        self._tools = tuple(tools or ())
        self._grammar = grammar(tokenizer, start, calls=bool(self._tools and self._parser), continued=continued)
        self._state: State = self._grammar.initial
        self._endless_call = not tokenizer.tool_call_end  # such a call runs to the end of the output
        self._buffer = ""  # may be the beginning of a tag
        self._call: list[str] = []  # the raw text of an unfinished call, opening tag first
        self._header = ""
        self._newlines = ""  # held until it is known whether text or a tag follows
        self._fresh = self._state == "reasoning" and not continued  # newlines met now are dropped
        self._after_call = False
        self._spoken = continued

    @classmethod
    def plain(cls) -> "Channels":
        """Everything is answer: for raw prompts."""
        return cls(NoTags(), start="answer")

    @property
    def tags(self) -> frozenset[str]:
        """The tags that are read; the decoder must let them through."""
        return frozenset(edge.tag for edge in self._grammar.edges)

    def push(self, text: str) -> list[TextEvent]:
        """What `text` completes; text that may be the beginning of a tag waits."""
        self._buffer += text
        events: list[TextEvent] = []
        while self._advance(events):
            pass
        return events

    def flush(self) -> list[TextEvent]:
        """Everything still held, whatever ended the output."""
        events: list[TextEvent] = []
        text, self._buffer = self._buffer, ""
        if self._state == "tool_call":
            self._state = "answer"
            self._call.append(text)
            self._close_call(events) if self._endless_call else self._give_back(events)
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
        if self._state == "opening":
            return self._open()
        edges = self._grammar.leaving(self._state)
        match = first_match(self._buffer, edges)
        if match is None:
            safe = len(self._buffer) - held_back(self._buffer, edges)
            text, self._buffer = self._buffer[:safe], self._buffer[safe:]
            self._take(text, events)
            return False
        start, tag = match
        text, self._buffer = self._buffer[:start], self._buffer[start + len(tag) :]
        self._take(text, events)
        self._cross(edges[tag], events)
        return True

    def _open(self) -> bool:
        """Decide whether the output begins with a think tag; False while that is open."""
        visible = self._buffer.lstrip()
        for tag, edge in self._grammar.leaving("opening").items():
            if visible.startswith(tag):
                self._buffer, self._state, self._fresh = visible[len(tag) :], edge.target, True
                return True
            if tag.startswith(visible):
                return False
        self._state = "answer"
        return True

    def _take(self, text: str, events: list[TextEvent]) -> None:
        if self._state == "tool_call":
            self._call.append(text)
        elif self._state == "header":
            self._header += text
        else:
            self._show(text, events)

    def _cross(self, edge: Edge, events: list[TextEvent]) -> None:
        self._state = edge.target
        if edge.source == "tool_call":
            self._call.append(edge.tag)
            self._close_call(events)
        elif edge.target == "tool_call":
            self._call = [edge.tag]
        elif edge.kept:
            self._show(edge.tag, events)
        elif "reasoning" in (edge.source, edge.target):
            self._newlines, self._fresh = "", True

    def _show(self, text: str, events: list[TextEvent]) -> None:
        if self._fresh:
            text = text.lstrip("\n")
        if not text:
            return
        self._fresh = False
        text = self._newlines + text
        visible = text.rstrip("\n")
        if self._state != "reasoning" and (visible or not self._after_call):
            visible = text
        self._newlines = text[len(visible) :]
        if visible:
            self._spoken, self._after_call = True, False
            append_merged(events, [Delta(self._channel, visible)])

    def _close_call(self, events: list[TextEvent]) -> None:
        opening, *pieces = self._call
        closing = "" if self._endless_call else pieces.pop()
        inside = "".join(pieces)
        assert self._parser is not None
        calls = read_calls(inside, opening + inside + closing, self._parser, self._tools)
        if not calls:
            self._give_back(events)
            return
        events.extend(calls)
        self._call, self._newlines = [], ""
        self._spoken = self._after_call = True

    def _give_back(self, events: list[TextEvent]) -> None:
        raw, self._call = "".join(self._call), []
        self._show(raw, events)
