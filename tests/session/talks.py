"""Made-up conversations as token ids, and sessions that answer them."""

import random
from dataclasses import dataclass, field

from dflash2_mlx.api import Answer, gather, load
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.events import Prefilling, Round
from dflash2_mlx.session.session import Request, Session
from dflash2_mlx.text.prompt import Prompt
from folders import write_drafter, write_target

ENGINE = EngineParams(max_tokens=9, block_size=8)
GREEDY = SamplingParams(logit_bias={256: -1000.0, 258: -1000.0})
PLENTY = 2**30
OPENING, TURN_END = [257, 260, 261], [258, 10]  # the glue of a made-up template


def tiny_pair(family, tmp_path_factory):
    root = tmp_path_factory.mktemp(family)
    return load(str(write_target(root / "target", family)), str(write_drafter(root / "drafter")))


def words(seed: int, count: int) -> list[int]:
    return [random.Random(seed).randrange(250) for _ in range(count)]


@dataclass
class Talk:
    """A conversation as token ids."""

    tokens: list[int] = field(default_factory=list)

    def ask(self, turn: list[int]) -> Prompt:
        self.tokens += [*turn, *TURN_END]
        return Prompt((*self.tokens, *OPENING), "answer", (len(self.tokens),))

    def hear(self, answer: Answer) -> None:
        self.tokens += [*OPENING, *answer.tokens, *TURN_END]


def run(session: Session, prompt: Prompt, engine: EngineParams = ENGINE, sampling: SamplingParams = GREEDY) -> Answer:
    return gather(session.stream(Request(prompt, sampling, engine, TextParams())))


def interrupt(session: Session, prompt: Prompt, rounds: int, engine: EngineParams = ENGINE) -> list[int]:
    """Close the answer after so many rounds; the tokens it had shown."""
    events = session.stream(Request(prompt, GREEDY, engine, TextParams()))
    seen: list[int] = []
    for event in events:
        if isinstance(event, Round):
            seen += event.tokens
            rounds -= 1
        if rounds <= 0 and not isinstance(event, Prefilling):
            break
    events.close()
    return seen
