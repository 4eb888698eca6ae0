"""Clients that leave, over a real socket: their job ends, wherever it was, and nothing of them stays."""

import threading

import pytest

from asking import CHAT, COMPLETIONS, MESSAGES, RESPONSES, USER
from live import connect, read_all, running, send, wait_for
from scripted import ScriptedSession

LONG = "</think>\n\n" + "word " * 2000
BODIES = {
    CHAT: {"messages": USER},
    COMPLETIONS: {"prompt": "Once"},
    MESSAGES: {"messages": USER, "max_tokens": 4000},
    RESPONSES: {"input": "Who are you?"},
}
TIMES = 17  # of each of 3 stages, streamed and not: 102 disconnects


def idle(state) -> bool:
    worker = state.worker
    return (worker.active, worker.waiting, state.open, state.worker.opened.session.running) == (0, 0, 0, 0)


@pytest.fixture
def session(wrapper):
    return ScriptedSession(wrapper, text=LONG, pace_s=0.002, round_size=2)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("stage", ["prefill", "decode", "queued"])
def test_a_client_that_leaves_takes_its_job_with_it(state, session, stage, stream):
    rounds: list[int] = []
    session.on_round = rounds.append
    session.prefill_steps = 10**6 if stage == "prefill" else 1
    with running(state) as url:
        send(url, CHAT, {"messages": USER, "max_tokens": 1}).close()  # so that every thread is there
        wait_for(lambda: state.totals.requests == 1 and idle(state))
        threads = threading.active_count()
        first = send(url, CHAT, {"messages": USER}) if stage == "queued" else None
        wait_for(lambda: session.running == (first is not None))
        begun = len(session.requests)
        for number in range(TIMES):
            path, body = list(BODIES.items())[number % 4]
            before = len(session.requests), state.totals.cancelled
            rounds.clear()
            connection = send(url, path, {**body, "stream": stream})
            if stage == "queued":
                wait_for(lambda: state.worker.active == 1 and state.worker.waiting == 1)
            else:
                wait_for(lambda before=before: len(session.requests) > before[0])
                wait_for(lambda: stage == "prefill" or len(rounds) > 1)
            connection.close()
            left_at = len(rounds)
            wait_for(lambda before=before: state.totals.cancelled == before[1] + 1)
            wait_for(lambda: state.worker.waiting == 0)
            if stage != "queued":
                wait_for(lambda: idle(state))
                assert len(rounds) - left_at <= 10, "it went on generating"
        if first:
            assert len(session.requests) == begun, "no queued job was begun"
            first.close()
        wait_for(lambda: idle(state))
        assert threading.active_count() <= threads
        session.text, session.pace_s, session.prefill_steps = "</think>\n\nStill here.", 0, 1
        with send(url, CHAT, {"messages": USER}) as connection:
            assert b"Still here." in read_all(connection)
        assert state.totals.failed == 0


def test_a_client_that_leaves_before_its_body_is_complete_leaves_nothing(state):
    with running(state) as url:
        for _ in range(20):
            connection = connect(url)
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{")
            connection.close()
        wait_for(lambda: idle(state))
        assert state.worker.opened.session.requests == []
