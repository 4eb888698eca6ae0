"""Scripted servers in this process, and the means to talk to them."""

from collections.abc import Callable, Iterator

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

import scripted
from asking import Client
from browser import NAMES, Page, browsing, chromium
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.state import ServerState
from live import running


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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One tab for all tests; each server has an address of its own, so nothing that the page keeps is shared."""
    if chromium() is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with browsing(tmp_path_factory.mktemp("profile")) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source="var $ = (id) => document.getElementById(id)")
        yield page


@pytest.fixture
def visit(browser, make_state, session) -> Iterator[Callable[..., Page]]:
    """Opens the page of a new server; nothing may have failed in it at the end."""
    servers = []

    def open_page(settings: ServeSettings | None = None) -> Page:
        servers.append(running(make_state(session, settings or ServeSettings())))
        browser.size(1200, 800)
        browser.errors.clear()
        browser.open(servers[-1].__enter__())
        return browser

    yield open_page
    browser.open("about:blank?done")
    for server in servers:
        server.__exit__(None, None, None)
    assert browser.errors == []
