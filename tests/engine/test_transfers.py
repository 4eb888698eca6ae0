"""What a round costs the host: one blocking transfer, and a draft that is launched before the verify graph is built."""

from collections.abc import Iterator
from typing import cast

import mlx.core as mx
import pytest

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.accept import Verdict
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.events import Round
from dflash2_mlx.targets.families import build_target
from fakes import TAPS, TARGET_CONFIGS, tiny_drafter, tiny_model

BLOCKING = ["item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__array__"]
LAYERS = cast(int, TARGET_CONFIGS["qwen3_5"]["num_hidden_layers"])
DRAFTED = ["propose", *["async_eval"] * 3]  # the context's rows, the logits, the chosen tokens
LAUNCHES = ["async_eval"] * (LAYERS + 1)  # of a block: each layer as soon as it is built, then the verdict
STEP = ["async_eval"]  # of one row: launching each layer costs more than it gains
SETTINGS = {
    "greedy": SamplingParams(),
    "penalties": SamplingParams(
        repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, logit_bias={3: 2.0}
    ),
    "sampled": SamplingParams(temperature=1.0, seed=1, top_k=20, top_p=0.9, min_p=0.02),
    "sampled with penalties": SamplingParams(temperature=1.0, seed=1, repetition_penalty=1.3),
    "logprobs": SamplingParams(logprobs=5),
}


@pytest.fixture
def log(monkeypatch) -> Iterator[list[str]]:
    """The names of all calls, in order, that wait for the device or launch work on it."""
    calls: list[str] = []

    def recorded(owner: object, name: str, label: str) -> None:
        original = getattr(owner, name)

        def call(*args: object, **options: object) -> object:
            calls.append(label)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, call)

    for name in BLOCKING:
        if hasattr(mx.array, name):
            recorded(mx.array, name, name)
    for name in ("eval", "synchronize", "async_eval"):
        recorded(mx, name, name)
    recorded(Verdict, "read", "read")
    yield calls


def rounds_with_calls(
    log: list[str], sampling: SamplingParams, acceptance: str = "coupled", block_size: int = 5
) -> list[list[str]]:
    """The calls from yield to yield, but the first two and the last two."""
    target = build_target(tiny_model("qwen3_5"), "qwen3_5", TAPS)
    drafter = tiny_drafter(target)
    for owner, name in ((drafter, "propose"), (target, "verify"), (target, "commit"), (drafter, "observe")):
        logged(owner, name, log)
    params = EngineParams(max_tokens=14, block_size=block_size, acceptance=acceptance)
    rounds = []
    for event in decode(target, drafter, Task([5, 6, 7], sampling, params)):
        if isinstance(event, Round):
            rounds.append(list(log))
            log.clear()
    return rounds[2:-2]


def logged(owner: object, name: str, log: list[str]) -> None:
    original = getattr(owner, name)

    def call(*args: object) -> object:
        log.append(name)
        return original(*args)

    setattr(owner, name, call)


@pytest.mark.parametrize(("name", "acceptance"), [*((n, "coupled") for n in SETTINGS), ("sampled", "rejection")])
def test_a_round_waits_for_the_device_once_to_read_its_verdict(log, name, acceptance):
    rounds = rounds_with_calls(log, SETTINGS[name], acceptance)
    assert len(rounds) >= 3
    for calls in rounds:
        waits = [call for call in calls if call in (*BLOCKING, "eval", "synchronize")]
        assert waits == ["tolist"]
        assert calls[calls.index("read") + 1] == "tolist"


@pytest.mark.parametrize("name", ["greedy", "sampled"])
def test_a_round_is_yielded_once_the_next_draft_is_launched_and_before_the_verify_graph_is_built(log, name):
    for calls in rounds_with_calls(log, SETTINGS[name]):
        # what was rejected is cut while the device works on the next draft
        expected = ["verify", *LAUNCHES, "read", "tolist", "observe", *DRAFTED, "commit"]
        assert calls == expected


@pytest.mark.parametrize("name", ["greedy", "sampled"])
def test_a_step_without_a_draft_is_launched_before_the_one_before_it_is_read(log, name):
    for calls in rounds_with_calls(log, SETTINGS[name], block_size=1):
        assert calls == ["commit", "observe", "verify", *STEP, "read", "tolist"]


def test_the_counter_sees_every_way_to_read_an_array(log):
    array = mx.array([1.5])
    array.item(), array.tolist(), int(array), float(array), bool(array), mx.eval(array), mx.synchronize()
    assert log == ["item", "tolist", "__int__", "__float__", "__bool__", "eval", "synchronize"]
