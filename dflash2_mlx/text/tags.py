"""Which tags of a tokenizer lead from which state of an answer to which. Sees no text and keeps no state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol

from dflash2_mlx.events import Channel

# opening, bare_opening: whether a think tag or a call without its opening tag stands there is open
State = Literal["opening", "header", "reasoning", "answer", "tool_call", "bare_opening", "bare_call"]
Tool = Mapping[str, object]
ToolParser = Callable[[str, list[Tool]], object]
Transitions = Mapping[str, Sequence[tuple[str, str]]]
CALL_BEGIN, CALL_END = "<function=", "</function>"
STATES: Mapping[str, State] = {  # mlx-lm's name -> ours
    "header": "header",
    "reasoning": "reasoning",
    "normal": "answer",
    "tool": "tool_call",
}


class AddedToken(Protocol):
    """A text that a tokenizer takes for one token wherever it stands."""

    @property
    def content(self) -> str: ...
    @property
    def special(self) -> bool: ...


class TaggedTokenizer(Protocol):
    """What is read of an mlx-lm TokenizerWrapper."""

    @property
    def think_start(self) -> str | None: ...
    @property
    def think_end(self) -> str | None: ...
    @property
    def tool_call_start(self) -> str | None: ...
    @property
    def tool_call_end(self) -> str | None: ...
    @property
    def tool_parser(self) -> ToolParser | None: ...
    @property
    def structural_markers(self) -> Sequence[str]: ...
    @property
    def response_transitions(self) -> Transitions: ...
    @property
    def response_initial_state(self) -> str | None: ...


@dataclass(frozen=True)
class NoTags:
    """Stands in for a tokenizer where everything is answer."""

    think_start: str | None = None
    think_end: str | None = None
    tool_call_start: str | None = None
    tool_call_end: str | None = None
    tool_parser: ToolParser | None = None
    structural_markers: Sequence[str] = ()
    response_transitions: Transitions = field(default_factory=lambda: MappingProxyType({}))
    response_initial_state: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """`tag`, met in state `source`, leads to state `target`; a `kept` tag is text all the same.

    ends_call: right behind a call, the tag is the end of one that began without its tag, and no text.
    """

    source: State
    tag: str
    target: State
    kept: bool = False
    ends_call: bool = False


@dataclass(frozen=True)
class Grammar:
    """Where an answer begins, and the edges between its states."""

    initial: State
    edges: tuple[Edge, ...]

    def leaving(self, state: State) -> dict[str, Edge]:
        """Tag -> edge, of the edges out of `state`."""
        return {edge.tag: edge for edge in self.edges if edge.source == state}


def grammar(tokenizer: TaggedTokenizer, start: Channel, *, calls: bool, bare: bool, continued: bool) -> Grammar:
    """The grammar of an answer that starts in channel `start`.

    calls: tool calls are read; bare: also those without an opening tag. continued: the answer has begun in the
    prompt, so that it has its header behind it and opens no reasoning.
    No edge leads from reasoning into a tool call, and reasoning opens only at the very beginning.
    """
    edges = [*_think_edges(tokenizer), *_format_edges(tokenizer, calls), *_call_edges(tokenizer, calls)]
    if bare:
        edges += [Edge("answer", CALL_BEGIN, "bare_opening"), Edge("bare_call", CALL_END, "answer")]
        edges += [Edge("answer", tokenizer.tool_call_end or "", "answer", kept=True, ends_call=True)]
    initial = start if continued else _initial(tokenizer, start)
    return Grammar(initial, tuple(edge for edge in edges if edge.tag))


def _initial(tokenizer: TaggedTokenizer, start: Channel) -> State:
    if start == "reasoning":
        return "reasoning"
    if tokenizer.response_initial_state:
        return STATES[tokenizer.response_initial_state]
    return "opening" if tokenizer.think_start else "answer"


def _think_edges(tokenizer: TaggedTokenizer) -> Iterator[Edge]:
    if tokenizer.think_start and tokenizer.think_end:
        yield Edge("opening", tokenizer.think_start, "reasoning")
        yield Edge("reasoning", tokenizer.think_end, "answer")


def _format_edges(tokenizer: TaggedTokenizer, calls: bool) -> Iterator[Edge]:
    """Edges of formats that wrap every message in markers of their own."""
    for marker in tokenizer.structural_markers:
        yield Edge("answer", marker, "answer")
    for source, tag, target in _transitions(tokenizer):
        if target != "tool_call":
            yield Edge(source, tag, target)
        elif source != "reasoning":
            yield Edge(source, tag, "tool_call") if calls else Edge(source, tag, "answer", kept=True)


def _call_edges(tokenizer: TaggedTokenizer, calls: bool) -> Iterator[Edge]:
    if not calls or not tokenizer.tool_call_start:
        return
    if not any(target == "tool_call" for _, _, target in _transitions(tokenizer)):
        yield Edge("answer", tokenizer.tool_call_start, "tool_call")
    yield Edge("tool_call", tokenizer.tool_call_end or "", "answer")


def _transitions(tokenizer: TaggedTokenizer) -> Iterator[tuple[State, str, State]]:
    for source, edges in tokenizer.response_transitions.items():
        for tag, target in edges:
            yield STATES[source], tag, STATES[target]
