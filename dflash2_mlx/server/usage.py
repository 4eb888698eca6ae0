"""The numbers of one reply: OpenAI's usage, llama.cpp's timings, ours. Knows events and a clock."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dflash2_mlx.events import Finished, Round, Summary, ToolCall
from dflash2_mlx.server.model import ServedModel, Tokens
from dflash2_mlx.text.prompt import Prompt

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event


@dataclass(slots=True)
class Tally:
    """Counts one answer while it comes. reasons: whether the prompt opened the reasoning already.

    one_call: the request's words for no more than one tool call; None = as many as there are.
    """

    tokenizer: Tokens
    reasons: bool
    one_call: str | None = None
    warnings: tuple[str, ...] = ()
    calls: int = 0
    arrived: float = field(default_factory=time.perf_counter)
    tokens: list[int] = field(default_factory=list)
    first_token: float | None = None
    _dropped: int = 0  # tool calls
    _before: int = 0  # tokens before the last round
    _thought: int | None = None  # tokens before the round that the answer began in

    @classmethod
    def of(cls, prompt: Prompt, model: ServedModel, one_call: str | None = None) -> "Tally":
        """The count of what the model answers to `prompt`."""
        return cls(model.tokenizer, prompt.channel == "reasoning", one_call, model.warnings)

    def see(self, event: "Event") -> None:
        """Count a round's tokens, and notice where the answer proper begins."""
        if isinstance(event, Round):
            self.first_token = self.first_token or time.perf_counter()
            self._before = len(self.tokens)
            self.tokens += event.tokens
        elif self._thought is None and (isinstance(event, ToolCall) or getattr(event, "channel", "") == "answer"):
            self._thought = self._before

    def take_call(self) -> int | None:
        """The number of one more tool call; None where it is one too many, which the warnings say."""
        if self.one_call and self.calls:
            self._dropped += 1
            return None
        self.calls += 1
        return self.calls - 1

    @property
    def reasoning_tokens(self) -> int:
        """Tokens up to and with the closing think tag; where the model wrote none, those before the answer."""
        if not self.reasons:
            return 0
        end = self.tokenizer.encode(self.tokenizer.think_end or "", add_special_tokens=False)
        closed = end_of(end, self.tokens) if end else None
        return closed or (len(self.tokens) if self._thought is None else self._thought)

    def usage(self, summary: Summary) -> dict[str, object]:
        """OpenAI's usage with seconds and rates. The first token and the total count from the request's arrival."""
        now = time.perf_counter()
        return {
            "prompt_tokens": summary.prompt_tokens,
            "completion_tokens": summary.completion_tokens,
            "total_tokens": summary.prompt_tokens + summary.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": summary.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            **self.durations(summary, now),
        }

    def durations(self, summary: Summary, now: float) -> dict[str, object]:
        """Seconds and tokens a second."""
        return {
            "time_to_first_token": (self.first_token or now) - self.arrived,
            "total_time": now - self.arrived,
            "prompt_eval_duration": summary.first_token_s,
            "generation_duration": summary.total_s - summary.first_token_s,
            "prompt_tokens_per_second": summary.prefill_rate,
            "generation_tokens_per_second": summary.decode_rate,
        }

    def dflash(self, summary: Summary) -> dict[str, object]:
        """What drafting did for this answer."""
        dropped = [f"{self.one_call}: {self._dropped} further tool calls were dropped"] if self._dropped else []
        return {
            "mode": summary.mode,
            "block_size": summary.block_size,
            "block_size_reason": summary.block_size_reason,
            "rounds_by_width": list(summary.rounds_by_width),
            "rounds": summary.rounds,
            "tokens_per_round": summary.tokens_per_round,
            "draft_acceptance": summary.acceptance,
            "fallback_reason": summary.speculation_off,
            "warnings": [*self.warnings, *dropped],
        }


def end_of(part: Sequence[int], tokens: Sequence[int]) -> int | None:
    """Where the first `part` among `tokens` ends; None where there is none."""
    ends = range(len(part), len(tokens) + 1)
    return next((end for end in ends if list(tokens[end - len(part) : end]) == list(part)), None)


def timings(summary: Summary) -> dict[str, object]:
    """llama.cpp's timings. Source: llama.cpp's server, `result_timings`."""
    prompt, count = summary.prompt_tokens - summary.cached_tokens, summary.completion_tokens
    prompt_ms, predicted_ms = summary.first_token_s * 1000, (summary.total_s - summary.first_token_s) * 1000
    return {
        "cache_n": summary.cached_tokens,
        "prompt_n": prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / prompt if prompt else 0.0,
        "prompt_per_second": summary.prefill_rate,
        "predicted_n": count,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / count if count else 0.0,
        "predicted_per_second": summary.decode_rate,
        "draft_n": summary.drafted,
        "draft_n_accepted": summary.accepted,
    }


@dataclass(slots=True)
class Totals:
    """What the server has done since it started. Only the event loop writes it."""

    started: float = field(default_factory=time.time)
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0

    def add(self, done: Finished) -> None:
        """One finished answer."""
        summary = done.summary
        self.prompt_tokens += summary.prompt_tokens
        self.completion_tokens += summary.completion_tokens
        self.cached_tokens += summary.cached_tokens
        self.prefill_s += summary.first_token_s
        self.decode_s += summary.total_s - summary.first_token_s
        self.drafted += summary.drafted
        self.accepted += summary.accepted
        self.rounds += summary.rounds
