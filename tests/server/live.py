"""A real uvicorn on a free port in a thread, and raw sockets to leave it early."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dflash2_mlx.config import LoadParams
from dflash2_mlx.server.model import open_engine
from dflash2_mlx.server.run import Server, listen, url_of
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.state import ServerState
from dflash2_mlx.server.worker import Worker
from dflash2_mlx.session.faults import leave_thread
from dflash2_mlx.store.opening import open_pair


@contextmanager
def running(state: ServerState) -> Iterator[str]:
    """The URL of a server around `state`. It stops as a signal would make it."""
    bound, server = listen(ServeSettings(port=0))[0], Server(state)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])), name="uvicorn")
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield url_of(bound)
    finally:
        server.should_exit = True
        thread.join(60)
        bound.close()
        assert not thread.is_alive(), "the server did not stop"


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def send(url: str, path: str, body: object) -> socket.socket:
    """A connection on which a whole request was sent and nothing read."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = connect(url)
    connection.sendall(head.encode() + data)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes, or says nothing for 10 s."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def demo_state(settings: ServeSettings) -> Iterator[ServerState]:
    """The state of a server with the bundled pair."""
    worker = Worker(lambda: open_engine(open_pair(LoadParams("demo")), settings), leave=leave_thread)
    worker.start()
    wait_for(lambda: worker.state == "ready", 60)
    state = ServerState(worker, settings)
    yield state
    worker.stop()
    assert worker.join(5)
    state.renderer.shutdown()


@contextmanager
def serving_demo(settings: ServeSettings) -> Iterator[str]:
    """The URL of a server with the bundled pair."""
    with demo_state(settings) as state, running(state) as url:
        yield url
