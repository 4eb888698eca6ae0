"""What the engine and the text layer say while they work: ints, floats and strings only, never an array."""

from dataclasses import dataclass, field
from typing import Literal

Channel = Literal["reasoning", "answer"]
_FEW_ROUNDS = 16
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Prefilling:
    """`done` of `total` prompt tokens are in the target's cache."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Raw log-softmax of the target for one committed token, before bias, penalties and temperature."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token, logprob), most likely first


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens committed by one round: `accepted` of `drafted` draft tokens, then one of the target's own.

    The first token of an answer needs no draft: it is a round with `drafted` 0.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    logprobs: tuple[TokenLogprob, ...] = ()

    def cut(self, count: int) -> "Round":
        """The same round ending after its first `count` tokens (an end token or a stop string fell there)."""
        return Round(self.tokens[:count], self.drafted, min(self.accepted, count), self.logprobs[:count])


@dataclass(frozen=True, slots=True)
class Ended:
    """The engine's last event: why no further token comes. `stop` here always means an end token."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of readable text; never half a character, never a part of a stop string or of a tag."""

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One complete tool call as the model wrote it; `arguments` is a JSON object as text."""

    name: str
    arguments: str
    raw: str


@dataclass(frozen=True, slots=True)
class Setting:
    """Under which choices an answer was generated.

    mode: `drafted` or `plain`. speculation_off: why an answer that could have been drafted was not, else None.
    block_size is the widest block. plain_rate, drafted_rate: what an automatic block size has measured on the pair so
    far, tokens a second of plain steps and of the best width; None where it has not.
    """

    mode: str
    block_size: int
    block_size_reason: str
    speculation_off: str | None
    acceptance_rule: str
    seed: int | None
    plain_rate: float | None = field(default=None, kw_only=True)
    drafted_rate: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Summary(Setting):
    """The numbers of one answer. Times in seconds, rates in tokens a second, memory in bytes.

    rounds, drafted, accepted, tokens_per_round and acceptance count rounds with a draft only, after any cut.
    rounds_by_width[i]: rounds of i + 1 rows, plain steps and the first token at 0.
    acceptance_by_position[i]: share of drafts whose token i was kept, among those that had a token i.
    prefill_rate: prompt tokens that were not cached, over the time to the first token, which their last pass gives.
    decode_rate: the tokens after the first over the time they took.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    rounds: int
    drafted: int
    accepted: int
    tokens_per_round: float
    acceptance: float
    acceptance_by_position: tuple[float, ...]
    rounds_by_width: tuple[int, ...]
    first_token_s: float
    total_s: float
    prefill_rate: float
    decode_rate: float
    peak_bytes: int

    @property
    def plain_steps(self) -> int:
        """Tokens behind the first that came without a draft."""
        return max(0, sum(self.rounds_by_width[:1]) - 1)

    @property
    def mostly_plain(self) -> bool:
        """Whether a long enough answer was mostly not drafted because plain steps were measured to be faster."""
        if self.mode != "drafted" or self.plain_rate is None or self.drafted_rate is None:
            return False
        many = self.plain_steps + self.rounds >= _FEW_ROUNDS
        return many and self.plain_steps > self.rounds and self.plain_rate > self.drafted_rate


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of an answer; `stop` is the stop string that ended it, if one did."""

    reason: FinishReason
    stop: str | None
    summary: Summary


Event = Prefilling | Round | Delta | ToolCall | Finished  # what a session says
