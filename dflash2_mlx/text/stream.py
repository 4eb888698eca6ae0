"""Token ids to text, piece by piece, and on to readable events. Knows a tokenizer, nothing of the engine."""

import codecs
import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Protocol

from dflash2_mlx.config import TextParams
from dflash2_mlx.text.channels import Channels, TextEvent, append_merged
from dflash2_mlx.text.prompt import Prompt
from dflash2_mlx.text.tags import AddedToken, TaggedTokenizer

REPLACEMENT = "\ufffd"
BYTE_PIECE = re.compile("<0x[0-9A-Fa-f]{2}>")
CONTEXT = 4  # tokens; more than the three bytes that an unfinished character can have


class DecodingTokenizer(Protocol):
    """What decoding needs of an mlx-lm or transformers tokenizer."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...

    def convert_ids_to_tokens(self, ids: int, /) -> str | None: ...

    def decode(
        self, token_ids: list[int], /, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str: ...


class ReadingTokenizer(DecodingTokenizer, TaggedTokenizer, Protocol):
    """What is read of a tokenizer to tell its answers apart."""


class TokenDecoder:
    """Ids to text, never half a character: what all pushes and the flush return is the text of all ids.

    Special tokens and ids outside the vocabulary have no text. A special token that is part of one of `tags`
    keeps its text, because whoever reads the tags needs to see it. Byte-level vocabularies are read as one
    stream of UTF-8, with U+FFFD where bytes are invalid; any other tokenizer gives what its `decode` gives.
    """

    def __init__(self, tokenizer: DecodingTokenizer, *, tags: Collection[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._added = dict(tokenizer.added_tokens_decoder)
        self._hidden = {
            token for token, added in self._added.items() if added.special and not any(added.content in t for t in tags)
        }
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = utf8 if _steps(tokenizer) == ["ByteLevel"] else None
        self._window = _Window(tokenizer)

    def push(self, token: int) -> str:
        """Text that `token` completes; empty while a character is unfinished."""
        piece = self._tokenizer.convert_ids_to_tokens(token) if token >= 0 else None
        if piece is None or token in self._hidden:
            return ""
        if self._bytes is None:
            return self._window.push(token, piece)
        added = self._added.get(token)
        return self._bytes.decode(added.content.encode() if added else _piece_bytes(piece))

    def flush(self) -> str:
        """What is left at the end; an unfinished character becomes U+FFFD."""
        return self._window.flush() if self._bytes is None else self._bytes.decode(b"", True)


class TokenBytes:
    """The bytes that a token stands for on its own, special tokens included; they may be half a character."""

    def __init__(self, tokenizer: DecodingTokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = dict(tokenizer.added_tokens_decoder)
        self._byte_level = _steps(tokenizer) == ["ByteLevel"]

    def __call__(self, token: int) -> bytes:
        """Empty for an id outside the vocabulary."""
        piece = self._tokenizer.convert_ids_to_tokens(token) if token >= 0 else None
        if piece is None:
            return b""
        if token in self._added:
            return self._added[token].content.encode()
        if self._byte_level:
            return _piece_bytes(piece)
        if BYTE_PIECE.fullmatch(piece):
            return bytes([int(piece[3:-1], 16)])
        return self._tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False).encode()


class TextPipeline:
    """Turns the tokens of one answer into deltas and tool calls. End tokens count as tokens and never become text."""

    def __init__(self, tokenizer: DecodingTokenizer, channels: Channels, end_tokens: frozenset[int]) -> None:
        self._decoder = TokenDecoder(tokenizer, tags=channels.tags)
        self._channels = channels
        self._end_tokens = end_tokens

    @classmethod
    def answering(
        cls, tokenizer: ReadingTokenizer, prompt: Prompt, text: TextParams, end_tokens: frozenset[int]
    ) -> "TextPipeline":
        """A pipeline for what is generated behind `prompt`."""
        if text.raw:
            return cls(tokenizer, Channels.plain(text.stop), end_tokens)
        channels = Channels(
            tokenizer, start=prompt.channel, tools=text.tools, stop=text.stop, continued=prompt.continued
        )
        return cls(tokenizer, channels, end_tokens)

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text. Read it after `finish` too: the last characters may complete one."""
        return self._channels.stopped

    def push(self, tokens: Sequence[int]) -> tuple[list[TextEvent], int | None]:
        """The events, and how many of `tokens` count if a stop string was met, else None.

        The count runs through the token that completes the stop string.
        """
        events: list[TextEvent] = []
        if self.stopped is not None:
            return events, 0
        for count, token in enumerate(tokens, start=1):
            if token in self._end_tokens:
                continue
            append_merged(events, self._channels.push(self._decoder.push(token)))
            if self.stopped is not None:
                return events, count
        return events, None

    def finish(self) -> list[TextEvent]:
        """What decoder and channels still hold, in this order."""
        events = self._channels.push(self._decoder.flush())
        append_merged(events, self._channels.flush())
        return events


class _Window:
    """`tokenizer.decode` of a growing list, at the cost of a few tokens a push.

    Only the tokens since the last settled character are decoded, behind settled ones as context: decoders treat
    the first token of a list differently (they drop its space), so a token is never decoded without the one
    before it.
    """

    def __init__(self, tokenizer: DecodingTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._shown = 0  # characters of the decoded window that were returned

    def push(self, token: int, piece: str) -> str:
        self._ids.append(token)
        if BYTE_PIECE.fullmatch(piece):
            return ""  # one invalid byte turns its whole run of byte tokens into U+FFFD, so the run is awaited
        text = self._decode(self._ids)
        unfinished = text.endswith(REPLACEMENT)
        new = text[self._shown : len(text) - unfinished]
        self._shown += len(new)
        if piece:  # an empty entry is no context
            self._forget(unfinished)
        return new

    def flush(self) -> str:
        text = self._decode(self._ids)[self._shown :]
        self._shown += len(text)
        return text

    def _forget(self, unfinished: bool) -> None:
        """Shorten the window to the fewest tokens that can serve as context for the next one."""
        if unfinished and len(self._ids) <= 2 * CONTEXT:
            return
        self._ids = self._ids[-CONTEXT:] if unfinished else self._ids[-1:]
        self._shown = len(self._decode(self._ids)) - unfinished

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _steps(tokenizer: DecodingTokenizer) -> list[str]:
    """The steps of a fast tokenizer's decoder by type; empty for any other tokenizer."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None:
        return []
    state = json.loads(decoder.__getstate__())
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    return [str(step["type"]) for step in steps]


def _piece_bytes(piece: str) -> bytes:
    """Bytes of a vocabulary entry written in the byte alphabet; one written in plain text is its UTF-8."""
    alphabet = _byte_alphabet()
    try:
        return bytes([alphabet[character] for character in piece])
    except KeyError:
        return piece.encode()


@cache
def _byte_alphabet() -> Mapping[str, int]:
    """Character -> byte. Visible Latin-1 characters stand for themselves, the other bytes for U+0100 onwards.

    Source: the byte-level vocabulary of GPT-2 (Radford et al. 2019).
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in visible)
    return {chr(byte): byte for byte in visible} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
