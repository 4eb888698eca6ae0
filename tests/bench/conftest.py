"""A clock that is told the time, and `dflash2-mlx bench` run in this process."""

from collections.abc import Callable
from functools import partial

import pytest
from bench_fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cli(cli: Callable[..., object]) -> Callable[..., object]:
    """Runs `dflash2-mlx bench ARGS`."""
    return partial(cli, "bench")
