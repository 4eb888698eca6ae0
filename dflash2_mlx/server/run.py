"""Runs the server until a signal: socket first, then uvicorn and the engine side by side. Knows no dialect."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dflash2_mlx.errors import ServeError
from dflash2_mlx.server.app import build_app
from dflash2_mlx.server.model import Engine, ServedModel
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.state import ServerState
from dflash2_mlx.server.worker import EngineGoneError, Worker

_GRACE_S = 2.0  # for streams to say why they end, and again for the engine to finish its step
_POLL_S = 0.05
_INTERRUPTED = 130
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_logger = logging.getLogger("dflash2_mlx.server")


@dataclass(frozen=True, slots=True)
class Listening:
    """The server as its banner needs it."""

    url: str
    settings: ServeSettings
    model: ServedModel


def listen(settings: ServeSettings) -> list[socket.socket]:
    """Bound sockets, one for each address of the host, before anything slow happens.

    Raises: ServeError where an address is taken, or none can be had.
    """
    bound: list[socket.socket] = []
    unusable: OSError | None = None
    try:
        for family, address in _addresses(settings):
            port = bound[0].getsockname()[1] if bound else address[1]  # port 0: the one that the first socket got
            try:
                bound.append(_bound(family, (address[0], port, *address[2:]), beside=bool(bound)))
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                unusable = error  # localhost often has an IPv6 address on a machine without IPv6
        if unusable is not None and not bound:
            raise unusable
    except OSError as error:
        for one in bound:
            one.close()
        raise ServeError(_why_not(settings, error)) from None
    return bound


def _addresses(settings: ServeSettings) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
    """What the host's name means, IPv4 first: some programs try no other."""
    found = socket.getaddrinfo(settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
    return sorted(addresses, key=lambda one: one[0] != socket.AF_INET)


def _bound(family: socket.AddressFamily, address: tuple[object, ...], *, beside: bool) -> socket.socket:
    """A listening socket; `beside` another one, which IPv4 is left to."""
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and beside:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen()
    except OSError:
        one.close()
        raise
    return one


def url_of(bound: socket.socket) -> str:
    """Where clients on this machine find it."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(open_engine: Callable[[], Engine], settings: ServeSettings, ready: Callable[[Listening], None]) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. `ready` is called once requests are answered.

    Raises: ServeError; whatever `open_engine` raised.
    """
    from dflash2_mlx.session.faults import leave_thread

    with contextlib.ExitStack() as open_sockets:
        bound = [open_sockets.enter_context(contextlib.closing(one)) for one in listen(settings)]
        state = ServerState(Worker(open_engine, max_queue=settings.max_queue, leave=leave_thread), settings)
        code = asyncio.run(_serve(state, bound, ready))
    if not state.worker.join(_GRACE_S):
        _logger.warning("the engine did not stop in time")
        os._exit(code)  # its thread is inside a long step; the process must not wait for it
    error = state.worker.error
    if error is not None and state.worker.opened is None:
        raise error
    return code


async def _serve(state: ServerState, bound: list[socket.socket], ready: Callable[[Listening], None]) -> int:
    """uvicorn beside the engine."""
    server = Server(state)
    codes: list[int] = []
    loop = asyncio.get_running_loop()

    def stop(code: int) -> None:
        if codes:  # asked twice
            os._exit(code)
        codes.append(code)
        server.should_exit = True

    if threading.current_thread() is threading.main_thread():
        loop.add_signal_handler(signal.SIGINT, stop, _INTERRUPTED)
        loop.add_signal_handler(signal.SIGTERM, stop, 0)
    state.worker.start()
    watcher = asyncio.create_task(
        _watch(state, server, lambda model: ready(Listening(url_of(bound[0]), state.settings, model)))
    )
    await server.serve(sockets=bound)
    watcher.cancel()
    return codes[0] if codes else 0


async def _watch(state: ServerState, server: uvicorn.Server, ready: Callable[[ServedModel], None]) -> None:
    """Call `ready` once the model is loaded; end the server where it cannot be."""
    while state.worker.state == "loading":
        await asyncio.sleep(_POLL_S)
    if state.worker.state == "ready":
        ready(state.model())
    else:
        server.should_exit = True


class Server(uvicorn.Server):
    """uvicorn over one state. It leaves signals alone, and stops the engine before it waits for clients."""

    def __init__(self, state: ServerState) -> None:
        super().__init__(
            uvicorn.Config(
                build_app(state),
                http=_protocol(state.settings.receive_s),
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=int(_GRACE_S),
            )
        )
        self._state = state

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, tell every stream that it is over, then wait for the connections a little."""
        self._state.worker.stop(EngineGoneError("the server is shutting down. Try again once it is back."))
        await super().shutdown(sockets)
        self._state.renderer.shutdown(wait=False, cancel_futures=True)


def _protocol(receive_s: float) -> type[H11Protocol]:
    """HTTP/1.1 that closes a connection whose request head does not come within `receive_s`."""

    class Patient(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(receive_s, transport.close)

        def data_received(self, data: bytes) -> None:
            idle = self.cycle is None or self.cycle.response_complete
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif idle and self._timer is None:
                self._timer = self.loop.call_later(receive_s, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Patient


def _why_not(settings: ServeSettings, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {settings.port} of {settings.host} is taken, maybe by another server. "
            f"Type: dflash2-mlx serve --port {settings.port + 1 if settings.port < 65535 else 0}"
        )
    if error.errno == errno.EACCES:
        return f"port {settings.port} may not be used by you. Give one above 1023 with --port."
    return f"{settings.host} is no address of this machine ({error.strerror or error}). Give another one with --host."
