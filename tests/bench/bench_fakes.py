"""A clock that is told the time and sessions that answer as scripted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dflash2_mlx.bench.methods import Method
from dflash2_mlx.bench.timing import Parts
from dflash2_mlx.events import Delta, Finished, Prefilling, Round, Summary, ToolCall
from dflash2_mlx.session.session import Event, Request


class FakeClock:
    """Tells the time that `sleep` made it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def summary(**changes) -> Summary:
    """A summary with the fields that measurements read."""
    known = {
        "mode": "drafted", "block_size": 4, "block_size_reason": "", "speculation_off": None,
        "acceptance_rule": "greedy", "seed": None, "prompt_tokens": 11, "cached_tokens": 0, "completion_tokens": 0,
        "rounds": 0, "drafted": 0, "accepted": 0, "tokens_per_round": 1.0, "acceptance": 0.0,
        "acceptance_by_position": (),
        "rounds_by_width": (), "first_token_s": 0.6, "total_s": 0.0, "prefill_rate": 0.0,
        "decode_rate": 0.0, "peak_bytes": 1000,
    }  # fmt: skip
    return Summary(**{**known, **changes})


@dataclass
class FakeSession:
    """Answers with `rounds` at `step_s` seconds each after `prefill_s` of prefill; remembers the requests."""

    clock: FakeClock
    rounds: Sequence[Round]
    step_s: float = 0.1
    prefill_s: float = 0.5
    channels: Sequence[str] = ()
    calls: Sequence[ToolCall] = ()
    seen: list[Request] = field(default_factory=list)
    closed: int = 0

    def stream(self, request: Request) -> Iterator[Event]:
        self.seen.append(request)
        try:
            self.clock.sleep(self.prefill_s)
            yield Prefilling(10, 11)
            for number, done in enumerate(self.rounds):
                self.clock.sleep(self.step_s)
                yield done
                channel = self.channels[number] if number < len(self.channels) else "answer"
                yield Delta(channel, f" {done.tokens[0]}")
            yield from self.calls
            yield Finished("stop", None, summary(first_token_s=self.prefill_s + self.step_s))
        finally:
            self.closed += 1


def plain_rounds(tokens: Sequence[int]) -> list[Round]:
    return [Round((token,), 0, 0) for token in tokens]


def drafted_rounds(*groups: Sequence[int], width: int = 4) -> list[Round]:
    """The first token, then a round a group with a draft of width - 1 tokens."""
    first, *rest = groups
    return [Round(tuple(first), 0, 0), *(Round(tuple(g), width - 1, len(g) - 1) for g in rest)]


NO_PARTS = Parts(0.0, 0.0, 0.0, 0.0, (), (), (), ())


def fake_method(name: str, session: FakeSession, parts: Parts = NO_PARTS) -> Method:
    return Method(name, lambda: session, lambda: session, lambda request: parts)
