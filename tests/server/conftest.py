"""Scripted servers in this process, and the means to talk to them."""

from collections.abc import Callable, Iterator

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

import scripted
from asking import Client
from dflash2_mlx.server.exchange import Desk


@pytest.fixture(scope="session")
def wrapper() -> TokenizerWrapper:
    return scripted.tokenizer()


@pytest.fixture
def session(wrapper: TokenizerWrapper) -> scripted.ScriptedSession:
    return scripted.ScriptedSession(wrapper)


@pytest.fixture
def make_desk() -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(*args: object, **options: object) -> Desk:
        desks.append(scripted.desk(*args, **options))
        return desks[-1]

    yield make
    for desk in desks:
        desk.worker.stop()
        desk.kitchen.shutdown()
        assert desk.worker.join(5)


@pytest.fixture
def desk(make_desk: Callable[..., Desk], session: scripted.ScriptedSession) -> Desk:
    return make_desk(session)


@pytest.fixture
def client(desk: Desk) -> Client:
    return Client(desk)
