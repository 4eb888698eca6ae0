"""Tokens in, readable events out: decoder, stop strings and channels in a row. Knows nothing of the engine."""

from collections.abc import Sequence
from typing import Protocol

from dflash2_mlx.config import TextParams
from dflash2_mlx.text.channels import Channels, TextEvent, append_merged
from dflash2_mlx.text.prompt import Prompt
from dflash2_mlx.text.stream import DecodingTokenizer, StopMatcher, TokenDecoder
from dflash2_mlx.text.tags import TaggedTokenizer


class ReadingTokenizer(DecodingTokenizer, TaggedTokenizer, Protocol):
    """What is read of a tokenizer to tell its answers apart."""


class TextPipeline:
    """Turns the tokens of one answer into deltas and tool calls.

    Stop strings apply to the whole generated text: reasoning, tags and tool calls included. End tokens count as
    tokens and never become text.
    """

    def __init__(
        self, decoder: TokenDecoder, stops: StopMatcher, channels: Channels, end_tokens: frozenset[int] = frozenset()
    ) -> None:
        self._decoder = decoder
        self._stops = stops
        self._channels = channels
        self._end_tokens = end_tokens

    @classmethod
    def reading(
        cls, tokenizer: DecodingTokenizer, channels: Channels, *, stop: Sequence[str] = (), end_tokens: frozenset[int]
    ) -> "TextPipeline":
        """A pipeline whose decoder lets through the tags that `channels` reads."""
        return cls(TokenDecoder(tokenizer, tags=channels.tags), StopMatcher(stop), channels, end_tokens)

    @classmethod
    def answering(
        cls, tokenizer: ReadingTokenizer, prompt: Prompt, text: TextParams, end_tokens: frozenset[int]
    ) -> "TextPipeline":
        """A pipeline for what is generated behind `prompt`."""
        channels = Channels.plain()
        if not text.raw:
            channels = Channels(tokenizer, start=prompt.channel, tools=text.tools, continued=prompt.continued)
        return cls.reading(tokenizer, channels, stop=text.stop, end_tokens=end_tokens)

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text. Read it after `finish` too: the last characters may complete one."""
        return self._stops.matched

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
            self._read(self._decoder.push(token), events)
            if self.stopped is not None:
                return events, count
        return events, None

    def finish(self) -> list[TextEvent]:
        """What decoder, stop strings and channels still hold, in this order."""
        events: list[TextEvent] = []
        self._read(self._decoder.flush(), events)
        append_merged(events, self._channels.push(self._stops.flush()))
        append_merged(events, self._channels.flush())
        return events

    def _read(self, text: str, events: list[TextEvent]) -> None:
        append_merged(events, self._channels.push(self._stops.push(text)))
