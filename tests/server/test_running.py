"""A real uvicorn: signs of life, limits in time and number, loading, dying and stopping."""

import json
import socket
import threading
import time

import httpx
import pytest

from asking import CHAT, MESSAGES, RESPONSES, USER, events
from dflash2_mlx.errors import LoadError, ServeError
from dflash2_mlx.server.model import Engine
from dflash2_mlx.server.run import listen, serve, url_of
from dflash2_mlx.server.settings import ServeSettings
from live import connect, read_all, running, send, wait_for
from scripted import ScriptedSession, model

SAID = "</think>\n\nHello there."
STREAMED = {"messages": USER, "stream": True}


@pytest.fixture
def session(wrapper):
    return ScriptedSession(wrapper, text=SAID, round_size=100)


def slowly(session, seconds: float) -> None:
    """Prefill takes so long."""
    session.prefill_steps, session.pace_s = int(seconds / 0.01), 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "kind", "sign"),
    [
        (CHAT, "comment", b": keep-alive\n\n"),
        (CHAT, "chunk", b'"delta":{},'),
        (MESSAGES, "comment", b"event: ping\n"),
        (MESSAGES, "chunk", b"event: ping\n"),
        (RESPONSES, "comment", b"event: response.in_progress\n"),
    ],
)
def test_headers_come_at_once_and_signs_of_life_through_a_long_prefill(make_state, session, path, kind, sign):
    slowly(session, 0.25)
    state = make_state(session, ServeSettings(keep_alive=kind, keep_alive_s=0.03))
    body = {**STREAMED, "max_tokens": 99} if path != RESPONSES else {"input": "hi", "stream": True}
    with running(state) as url, send(url, path, body) as connection:
        began = time.monotonic()
        first = connection.recv(65536)
        assert first.startswith(b"HTTP/1.1 200") and time.monotonic() - began < 0.3
        text = first + read_all(connection)
    assert text.count(sign) >= 4 and b"Hello there." in text
    assert text.count(b'"role":"assistant"') == (1 if path != RESPONSES else text.count(b'"type":"message"'))


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_signs_of_life_can_be_off(make_state, session, path):
    slowly(session, 0.15)
    state = make_state(session, ServeSettings(keep_alive="off", keep_alive_s=0.03))
    with running(state) as url, send(url, path, {**STREAMED, "max_tokens": 99}) as connection:
        text = read_all(connection)
    assert b"keep-alive" not in text and b"ping" not in text and b"Hello there." in text


def test_a_full_queue_is_a_503_that_says_when_to_come_back(make_state, session):
    slowly(session, 60)
    state = make_state(session, ServeSettings(max_queue=2))
    with running(state) as url:
        waiting = [send(url, CHAT, STREAMED)]
        wait_for(lambda: state.worker.active == 1)
        waiting += [send(url, CHAT, STREAMED) for _ in range(2)]
        wait_for(lambda: state.worker.waiting == 2)
        for path in (CHAT, MESSAGES):
            reply = httpx.post(url + path, json={"messages": USER, "max_tokens": 9})
            assert reply.status_code == 503 and int(reply.headers["retry-after"]) > 0
        assert httpx.get(f"{url}/api/status").json()["waiting_requests"] == 2
        assert httpx.get(f"{url}/health").status_code == 200
        for connection in waiting:
            connection.close()
        wait_for(lambda: state.worker.active == 0)


@pytest.mark.slow
def test_a_client_that_dawdles_is_dropped(make_state, session):
    state = make_state(session, ServeSettings(receive_s=0.15))
    half_head, half_body = b"POST /v1/chat/completions HTTP/1.1\r\nHo", b"Content-Length: 9\r\n\r\n{"
    with running(state) as url:
        for sent in (b"", half_head):
            with connect(url) as connection:
                connection.sendall(sent)
                assert read_all(connection) == b""
        with connect(url) as connection:
            connection.sendall(half_head + b"st: 127.0.0.1\r\n" + half_body)
            assert read_all(connection).startswith(b"HTTP/1.1 408")
        with connect(url) as connection:  # an answer takes as long as it takes, and the connection is used again
            slowly(session, 0.4)
            body = json.dumps({"messages": USER}).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            for _ in range(2):
                connection.sendall(head + body)
                text = b""
                while b"Hello there." not in text:
                    text += connection.recv(65536)


@pytest.mark.parametrize("stream", [True, False])
def test_forty_requests_at_once_are_all_answered(make_state, session, stream):
    state = make_state(session)
    body = {"messages": USER, "stream": stream}
    with running(state) as url:
        slowly(session, 60)
        first = send(url, CHAT, body)  # so that all the others have to wait
        wait_for(lambda: state.worker.active == 1)
        session.prefill_steps, session.pace_s = 1, 0
        connections = [send(url, CHAT, body) for _ in range(40)]
        wait_for(lambda: state.worker.waiting == 40)
        if stream:
            assert connections[-1].recv(65536).startswith(b"HTTP/1.1 200"), "a stream says at once that it is alive"
        first.close()
        for connection in connections:
            with connection:
                assert b"Hello there." in read_all(connection)
    assert state.totals.failed == 0


def test_clients_in_parallel_get_what_each_would_get_alone(make_state, session):
    session.text = lambda request: (
        "</think>\n\nYou said: " + session.tokenizer.decode(list(request.prompt.tokens[4:-8]))
    )
    session.pace_s = 0.001
    state = make_state(session)

    def ask(url: str, number: int) -> str:
        body = {"messages": [{"role": "user", "content": f"word {number} " * (number + 1)}]}
        if number % 2:
            return httpx.post(url + CHAT, json=body).json()["choices"][0]["message"]["content"]
        text = httpx.post(url + CHAT, json={**body, "stream": True}).text
        return "".join(data["choices"][0]["delta"].get("content", "") for _, data in events(text))

    with running(state) as url:
        alone = [ask(url, number) for number in range(8)]
        together: dict[int, str] = {}

        def run(number: int) -> None:
            together[number] = ask(url, number)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert [together[number] for number in range(8)] == alone and len(set(alone)) == 8


def test_a_dead_engine_is_told_by_health_and_by_every_request(make_state, session):
    state = make_state(session)
    session.text, session.error, session.fail_after = SAID, SystemExit("gone"), 0
    with running(state) as url:
        reply = httpx.post(url + CHAT, json={"messages": USER})
        assert reply.status_code == 503 and reply.json()["error"]["code"] == "engine_dead"
        wait_for(lambda: state.worker.state == "dead")
        health = httpx.get(f"{url}/health")
        assert health.status_code == 503 and health.json()["status"] == "engine_dead"
        assert httpx.get(f"{url}/livez").status_code == 200
        assert httpx.post(url + CHAT, json={"messages": USER}).json()["error"]["code"] == "engine_dead"


@pytest.mark.slow
def test_a_client_that_reads_nothing_loses_its_place(make_state, session):
    state = make_state(session, ServeSettings(receive_s=0.3), context=10**6)
    session.text = "</think>\n\n" + "word " * 15_000  # some megabytes, more than sockets buffer
    with running(state) as url, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        body = json.dumps({**STREAMED, "logprobs": True, "top_logprobs": 2}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        wait_for(lambda: state.totals.requests == 1)
        wait_for(lambda: state.totals.cancelled == 1 and state.open == 0)


def test_a_stalled_engine_is_told_by_health(state, session, monkeypatch):
    slowly(session, 60)
    monkeypatch.setattr("dflash2_mlx.server.worker.STALLED_S", -1.0)
    with running(state) as url, send(url, CHAT, STREAMED):
        wait_for(lambda: state.worker.active == 1)
        assert httpx.get(f"{url}/health").json()["status"] == "stalled"


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_stopping_ends_streams_with_a_reason_and_quickly(make_state, session, path):
    slowly(session, 60)
    state = make_state(session)
    with running(state) as url:
        connection = send(url, path, {**STREAMED, "max_tokens": 99})
        wait_for(lambda: state.worker.active == 1)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    with connection:
        assert b"shutting down" in read_all(connection)
    assert state.worker.join(1)


def test_a_taken_port_fails_at_once_with_a_hint():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"serve --port {port + 1}"):
            listen(ServeSettings(port=port))


def test_every_address_of_the_host_is_listened_on_at_one_port(monkeypatch):
    """As `localhost` is 127.0.0.1 and ::1. An address that this machine does not have is left out."""
    hosts = [(socket.AF_INET6, "2001:db8::1"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2")]

    def found(_: str, port: int, **options: object) -> list[tuple]:
        addresses = [(family, (host, port) if "." in host else (host, port, 0, 0)) for family, host in hosts]
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    bound = listen(ServeSettings(host="localhost", port=0))
    try:
        assert [one.getsockname()[0] for one in bound] == ["127.0.0.1", "127.0.0.2"]
        assert len({one.getsockname()[1] for one in bound}) == 1 and url_of(bound[0]).startswith("http://127.0.0.1:")
        with pytest.raises(ServeError, match="is taken"):
            listen(ServeSettings(host="localhost", port=bound[1].getsockname()[1]))
    finally:
        for one in bound:
            one.close()


def test_localhost_is_found_by_either_family():
    for bound in (sockets := listen(ServeSettings(host="localhost", port=0))):
        with bound, socket.create_connection(bound.getsockname()[:2], timeout=5):
            pass
    families = {family for family, *_ in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    assert len(sockets) == 1 or {bound.family for bound in sockets} <= families


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(ServeError, match="--host"):
        listen(ServeSettings(host="192.0.2.1", api_key="k"))


class Background(threading.Thread):
    """`serve` in a thread, with an engine that loads when told to."""

    def __init__(self, session: ScriptedSession, error: Exception | None = None) -> None:
        super().__init__(name="serve")
        self.may_load, self.ready = threading.Event(), threading.Event()
        self.session, self.error, self.raised = session, error, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def run(self) -> None:
        try:
            serve(self._open, ServeSettings(port=self.port), lambda listening: self.ready.set())
        except Exception as error:
            self.raised = error

    def _open(self) -> Engine:
        assert self.may_load.wait(5)
        if self.error:
            raise self.error
        return Engine(self.session, model(self.session.tokenizer))


def test_it_listens_while_it_loads_and_raises_what_loading_raised(session):
    background = Background(session, LoadError("no weights"))
    background.start()
    url = f"http://127.0.0.1:{background.port}"
    wait_for(lambda: answers(url))
    health = httpx.get(f"{url}/health")
    assert health.status_code == 503 and health.json()["status"] == "loading"
    for path in (CHAT, MESSAGES, RESPONSES):
        reply = httpx.post(url + path, json={"messages": USER})
        assert reply.status_code == 503 and reply.headers["retry-after"]
    assert httpx.get(f"{url}/v1/models").status_code == 503 and httpx.get(f"{url}/api/status").status_code == 200
    background.may_load.set()
    background.join(60)
    assert not background.is_alive() and str(background.raised) == "no weights" and not background.ready.is_set()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez").status_code == 200
    except httpx.TransportError:
        return False
