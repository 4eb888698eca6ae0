"""Targets and their plain texts, made once and shared: every test resets the cache before it uses one."""

from collections.abc import Callable
from functools import cache

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from dflash2_mlx.engine.protocols import Drafter
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.families import build_target
from fakes import TAPS, ScriptedDrafter, tiny_drafter, tiny_model


@pytest.fixture(scope="session")
def target_of() -> Callable[[str], LayeredTarget]:
    """The tiny target of a model type."""
    return cache(lambda model_type: build_target(tiny_model(model_type), model_type, TAPS))


@pytest.fixture(scope="session")
def mlx_lm_text() -> Callable[[str, tuple[int, ...], int], list[int]]:
    """What plain mlx-lm generates for (model type, prompt, count): the oracle of greedy text."""

    texts: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    def generated(model_type: str, prompt: tuple[int, ...], count: int) -> list[int]:
        known = texts.get((model_type, prompt), [])
        if len(known) < count:
            steps = generate_step(mx.array(prompt), tiny_model(model_type), max_tokens=count)
            known = texts[model_type, prompt] = [int(token) for token, _ in steps]
        return known[:count]

    return generated


@pytest.fixture(scope="session")
def drafter_for() -> Callable[..., Drafter]:
    """A drafter by its short name: `real`, `random`, or how many slots it gets right."""

    def made(kind: str, target: LayeredTarget, truth: list[int]) -> Drafter:
        if kind == "real":
            return tiny_drafter(target)
        return ScriptedDrafter(truth, None if kind == "random" else int(kind))

    return made
