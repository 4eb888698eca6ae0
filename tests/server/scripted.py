"""A session that says given texts through the real text layer, and a server around it. No weights, no engine."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tokenizer_utils import load as load_wrapper

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.events import Finished, Prefilling, Round, TokenLogprob
from dflash2_mlx.server.model import Engine, ServedModel
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.state import ServerState
from dflash2_mlx.server.worker import Worker
from dflash2_mlx.session.session import Event, Request
from dflash2_mlx.session.statistics import Setting, Stats
from dflash2_mlx.text.prompt import ChatFormat
from dflash2_mlx.text.stream import TextPipeline, TokenBytes

END = 2  # <|im_end|> of the bundled tokenizer
VOCAB = 1536
_DEMO = Path(str(files("dflash2_mlx"))) / "demo" / "target"


def tokenizer() -> TokenizerWrapper:
    """The bundled pair's."""
    return load_wrapper(_DEMO)


@dataclass
class ScriptedSession:
    """Answers with `text`, `round_size` tokens a round; `pace_s` is slept before each prefill step and round."""

    tokenizer: TokenizerWrapper
    text: str | Callable[[Request], str] = "Hello."
    round_size: int = 3
    pace_s: float = 0.0
    prefill_steps: int = 1
    fail_after: int | None = None  # rounds
    error: Exception = field(default_factory=lambda: RuntimeError("a fault"))
    requests: list[Request] = field(default_factory=list)
    running: int = 0
    closed: int = 0
    on_round: Callable[[int], None] = lambda number: None

    def stream(self, request: Request) -> Iterator[Event]:
        self.requests.append(request)
        self.running += 1
        assert self.running == 1, "two answers at once"
        try:
            yield from self._answer(request)
        finally:
            self.running -= 1
            self.closed += 1

    def _answer(self, request: Request) -> Iterator[Event]:
        prompt, text = request.prompt, request.text
        pipeline = TextPipeline.answering(self.tokenizer, prompt, text, frozenset({END}))
        stats = Stats(prompt_tokens=len(prompt.tokens))
        for step in range(self.prefill_steps):
            time.sleep(self.pace_s)
            yield Prefilling(len(prompt.tokens) * step // self.prefill_steps, len(prompt.tokens))
        said = self.text(request) if callable(self.text) else self.text
        tokens = [*self.tokenizer.encode(said, add_special_tokens=False), END]
        most = request.engine.max_tokens
        reason = "stop" if most is None or len(tokens) <= most else "length"
        tokens = tokens[:most]
        for number, start in enumerate(range(0, len(tokens), self.round_size)):
            time.sleep(self.pace_s)
            self.on_round(number)
            if number == self.fail_after:
                raise self.error
            texts, done = self._round(request, pipeline, tokens[start : start + self.round_size])
            stats.add(done)
            yield done
            yield from texts
            if pipeline.stopped is not None:
                break
        yield from pipeline.finish()
        if pipeline.stopped is not None:
            reason = "stop"
        yield Finished(reason, pipeline.stopped, stats.summary(SETTING, 0))

    def _round(self, request: Request, pipeline: TextPipeline, tokens: Sequence[int]) -> tuple[list[Event], Round]:
        top = request.sampling.logprobs
        entries = () if top is None else tuple(TokenLogprob(t, -0.5, ((t, -0.5), (5, -2.0))[:top]) for t in tokens)
        done = Round(tuple(tokens), len(tokens) - 1, len(tokens) - 1, entries)
        texts, count = pipeline.push(tokens)
        return texts, done if count is None else done.cut(count)


SETTING = Setting("drafted", 8, "scripted", None, "greedy", None)


def model(wrapper: TokenizerWrapper, context: int = 4096) -> ServedModel:
    return ServedModel(
        names=("scripted", "also-scripted"),
        draft_name="drafter",
        chat=ChatFormat(wrapper),
        tokenizer=wrapper,
        token_bytes=TokenBytes(wrapper),
        context=context,
        vocab_size=VOCAB,
        end_tokens=frozenset({END}),
        sampling=SamplingParams(),
        block_size=8,
        block_size_reason="scripted",
        speculation_off=None,
        weight_bytes=1000,
        cache_bytes=1000,
    )


def state(session: ScriptedSession, settings: ServeSettings | None = None, context: int = 4096) -> ServerState:
    """A server state whose engine is ready."""
    settings = settings or ServeSettings()
    worker = Worker(
        lambda: Engine(session, model(session.tokenizer, context)),
        max_queue=settings.max_queue,
    )
    worker.start()
    deadline = time.monotonic() + 10
    while worker.state == "loading":
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert worker.state == "ready", worker.error
    return ServerState(worker, settings)
