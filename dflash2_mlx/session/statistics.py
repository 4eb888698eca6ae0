"""Counts rounds and times an answer, outside the loop. Knows events and the clock."""

import time
from dataclasses import dataclass, field, fields

from dflash2_mlx.events import Round, Setting, Summary

__all__ = ["Setting", "Stats"]


@dataclass(slots=True)
class Stats:
    """Collects one answer's rounds; `summary` turns them into numbers."""

    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    round_tokens: int = 0
    drafted_at: list[int] = field(default_factory=list)  # drafts that had a token at position i
    accepted_at: list[int] = field(default_factory=list)
    by_width: list[int] = field(default_factory=list)  # rounds of i + 1 rows
    started: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    last_token: float | None = None

    def add(self, done: Round) -> None:
        """Count one round, cut already. The first token and other rounds without a draft are no drafted rounds."""
        self.last_token = time.perf_counter()
        self.first_token = self.first_token or self.last_token
        self.completion_tokens += len(done.tokens)
        self.by_width += [0] * (done.drafted + 1 - len(self.by_width))
        self.by_width[done.drafted] += 1
        if not done.drafted:
            return
        self.rounds += 1
        self.round_tokens += len(done.tokens)
        while len(self.drafted_at) < done.drafted:
            self.drafted_at.append(0)
            self.accepted_at.append(0)
        for position in range(done.drafted):
            self.drafted_at[position] += 1
            self.accepted_at[position] += position < done.accepted

    def summary(self, setting: Setting, peak_bytes: int) -> Summary:
        """All numbers, for an answer generated under `setting`."""
        now = time.perf_counter()
        first = self.first_token or now
        drafted, accepted = sum(self.drafted_at), sum(self.accepted_at)
        decode_s = (self.last_token or now) - first
        run = self.prompt_tokens - self.cached_tokens if self.first_token else 0  # without an answer nothing is read
        return Summary(
            **{part.name: getattr(setting, part.name) for part in fields(Setting)},
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            rounds=self.rounds,
            drafted=drafted,
            accepted=accepted,
            tokens_per_round=self.round_tokens / self.rounds if self.rounds else 0.0,
            acceptance=accepted / drafted if drafted else 0.0,
            acceptance_by_position=tuple(a / d for a, d in zip(self.accepted_at, self.drafted_at, strict=True)),
            rounds_by_width=tuple(self.by_width),
            first_token_s=first - self.started,
            total_s=now - self.started,
            prefill_rate=_rate(run, first - self.started),
            decode_rate=_rate(self.completion_tokens - 1, decode_s),
            peak_bytes=peak_bytes,
        )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count > 0 and seconds > 0 else 0.0
