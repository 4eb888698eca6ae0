"""The tokens that a chat template marks turns and blocks with, and the same texts where somebody only wrote them.

Knows a tokenizer and the shape of messages, no template. While a template is at work, a placeholder stands for each
marker that is a message's own text, so that what reads like a marker afterwards is one of the template's.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, cast

from dflash2_mlx.text.messages import Message
from dflash2_mlx.text.tags import AddedToken, Tool

_STAND_IN = "_5309181774_"  # nothing that a template would change the case of, or escape
_HIDDEN = re.compile(f"{_STAND_IN}([0-9]+)_")


class EncodingTokenizer(Protocol):
    """What is used of an mlx-lm TokenizerWrapper."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]: ...


class Markers:
    """Hides markers in messages, and tokenises what a template made of them.

    Markers are the special tokens, and the added ones that the template names or that are `tags`: of thinking and of
    tool calls. What a user, a tool's result or a tool's description says is free of them. A system message and the
    assistant write no special tokens but tags, and other added ones: that is how clients give back what a model said,
    and how they describe it.
    What cannot be kept apart: anything, where the tokenizer is not one of the Rust library's; a special token whose
    id the library's model makes out of plain text, as Unigram may; raw prompts, in which markers are meant.
    """

    def __init__(self, tokenizer: EncodingTokenizer, source: str, tags: Collection[str]) -> None:
        self._tokenizer = tokenizer
        self._added = dict(tokenizer.added_tokens_decoder)
        marks = {
            token: added.content
            for token, added in self._added.items()
            if added.content.strip() and (added.special or added.content in source or added.content in tags)
        }
        self._ids = frozenset(marks)
        self._texts = [*sorted(marks.values(), key=len, reverse=True), _STAND_IN]  # so that it never stands for more
        turns = [added.content for added in self._added.values() if added.special and added.content not in tags]
        self._markers, self._any = _finder(self._texts[:-1]), _finder(self._texts)
        self._turns = _finder(text for text in self._texts if text in (*turns, _STAND_IN))

    def hide(
        self, messages: Sequence[Message], tools: Sequence[Tool] | None
    ) -> tuple[list[Message], list[Tool] | None]:
        """Copies, with placeholders for the markers in them."""
        hidden = [cast(Message, self._hide(message, self._finder_for(message["role"]))) for message in messages]
        return hidden, [cast(Tool, self._hide(tool, self._any)) for tool in tools] if tools else None

    def show(self, text: str) -> str:
        """`text` with the markers back in the placeholders' places."""
        return _HIDDEN.sub(lambda found: self._texts[int(found[1])], text)

    def encode(self, text: str) -> list[int]:
        """The ids of what a template wrote; a hidden marker is spelled out, like any other text."""
        if not _HIDDEN.search(text):
            return self._tokenizer.encode(text, add_special_tokens=False)
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return self._tokenizer.encode(self.show(text), add_special_tokens=False)
        whole = backend.encode(text, add_special_tokens=False)
        added = [(number, *whole.offsets[number]) for number, token in enumerate(whole.ids) if token in self._added]
        ids, first, start = list[int](), 0, 0
        for number, end, behind in (*added, (len(whole.ids), len(text), 0)):
            stretch = text[start:end]
            ids += _spelled(backend, self.show(stretch)) if _HIDDEN.search(stretch) else whole.ids[first:number]
            ids += whole.ids[number : number + 1]
            first, start = number + 1, behind
        return ids

    def seams(self, text: str, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Places in `text` and in its `tokens` right behind a marker: up to there, no token depends on what follows."""
        ends = [found.end() for found in self._markers.finditer(text)]
        places = [number + 1 for number, token in enumerate(tokens) if token in self._ids]
        return [(0, 0), *zip(ends, places, strict=True)] if len(ends) == len(places) else [(0, 0)]

    def _finder_for(self, role: object) -> re.Pattern[str]:
        return self._turns if role in ("system", "developer", "assistant") else self._any

    def _hide(self, value: object, finder: re.Pattern[str]) -> object:
        if isinstance(value, str):
            return finder.sub(lambda found: f"{_STAND_IN}{self._texts.index(found[0])}_", value)
        if isinstance(value, Mapping):
            return {self._hide(key, finder): self._hide(item, finder) for key, item in value.items()}
        return [self._hide(item, finder) for item in value] if isinstance(value, list | tuple) else value


class Written:
    """A prompt as a template wrote it, and its tokens. Says how many of these another prompt begins with."""

    def __init__(self, markers: Markers, text: str, tokens: Sequence[int]) -> None:
        self._markers, self._text, self._tokens = markers, text, tuple(tokens)
        self._seams = markers.seams(text, tokens)

    def shared(self, other: str) -> int:
        """The number of leading tokens that `other` has too. Only what follows its last shared marker is tokenised."""
        same = _common(self._text, other)
        text, token = self._seams[bisect_right(self._seams, same, key=lambda seam: seam[0]) - 1]
        rest = tuple(self._markers.encode(other[text:]))
        return token + _common(self._tokens[token : token + len(rest)], rest)


def _finder(texts: Iterable[str]) -> re.Pattern[str]:
    """Finds the leftmost of `texts`, which come longest first; nothing where there are none."""
    return re.compile("|".join(map(re.escape, texts)) or "(?!)")


def _spelled(backend: object, text: str) -> list[int]:
    """The ids of `text` without any added token in it: the library's own steps, one by one."""
    normalizer, splitter, model = (getattr(backend, name) for name in ("normalizer", "pre_tokenizer", "model"))
    text = normalizer.normalize_str(text) if normalizer else text
    pieces = [piece for piece, _ in splitter.pre_tokenize_str(text)] if splitter else [text]
    return [token.id for piece in pieces for token in model.tokenize(piece)]


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(one), len(other)) + 1  # one[:low] is shared, one[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
