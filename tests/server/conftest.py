"""Scripted servers in this process, and the means to talk to them."""

from collections.abc import Callable, Iterator

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

import scripted
from asking import Client
from dflash2_mlx.server.state import ServerState


@pytest.fixture(scope="session")
def wrapper() -> TokenizerWrapper:
    return scripted.tokenizer()


@pytest.fixture
def session(wrapper: TokenizerWrapper) -> scripted.ScriptedSession:
    return scripted.ScriptedSession(wrapper)


@pytest.fixture
def make_state() -> Iterator[Callable[..., ServerState]]:
    states: list[ServerState] = []

    def make(*args: object, **options: object) -> ServerState:
        states.append(scripted.state(*args, **options))
        return states[-1]

    yield make
    for state in states:
        state.worker.stop()
        state.renderer.shutdown()
        assert state.worker.join(5)


@pytest.fixture
def state(make_state: Callable[..., ServerState], session: scripted.ScriptedSession) -> ServerState:
    return make_state(session)


@pytest.fixture
def client(state: ServerState) -> Client:
    return Client(state)
