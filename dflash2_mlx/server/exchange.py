"""One request and its answer over ASGI: body in, job to the engine, frames out, gone clients noticed at any moment."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from dflash2_mlx.events import Finished, Prefilling
from dflash2_mlx.server.body import ClientGoneError, JsonObject, parse_object, read_body
from dflash2_mlx.server.dialect import Dialect, Prepared
from dflash2_mlx.server.errors import ApiError, explain
from dflash2_mlx.server.guards import owner_of
from dflash2_mlx.server.reading import Reading
from dflash2_mlx.server.sse import COMMENT, DONE, HEADERS, Frame, encode, to_json
from dflash2_mlx.server.state import ServerState
from dflash2_mlx.server.worker import CancelledError, EngineGoneError, Failed

if TYPE_CHECKING:
    from dflash2_mlx.server.worker import Update

Read = TypeVar("Read")
_logger = logging.getLogger("dflash2_mlx.server")


class Exchange:
    """The endpoint of a generating route."""

    def __init__(self, state: ServerState, dialect: Dialect) -> None:
        self._state, self._dialect = state, dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = _Reply(scope, send, self._state)
        self._state.open += 1
        try:
            await self._serve(reply, receive)
        except ClientGoneError:
            reply.log("gone")
        finally:
            self._state.open -= 1

    async def _serve(self, reply: "_Reply", receive: Receive) -> None:
        try:
            self._state.totals.requests += 1
            self._state.check_room()
            call = await prepared(self._state, reply, receive, self._dialect)
            async with _updates(self._state, call, receive) as updates:
                if call.stream:
                    await reply.stream(call, updates)
                else:
                    await reply.whole(call, updates)
        except ClientGoneError:
            raise
        except Exception as error:
            known = explain(error)
            if known.status == 500:
                _logger.exception("%s failed", reply.scope["path"])
            self._state.totals.failed += 1
            await reply.refuse(known)


async def prepared(
    state: ServerState, reply: "_Reply", receive: Receive, read: Callable[[JsonObject, Reading], Read]
) -> Read:
    """What `read` makes of the body. All that can be refused is refused here, before any header is sent."""
    model, headers = state.model(), Headers(scope=reply.scope)
    body = await read_body(receive, headers.get("content-length"), state.settings.receive_s)
    path_id = reply.scope.get("path_params", {}).get("id", "")
    reading = Reading(model, state.settings, state.responses, owner_of(headers), path_id)
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(state.renderer, lambda: read(parse_object(body), reading))
    finally:
        reply.ignored = reading.header


@contextlib.asynccontextmanager
async def _updates(state: ServerState, call: Prepared, receive: Receive) -> AsyncIterator["asyncio.Queue[Update]"]:
    """The call's updates as they come, until its client goes away; the job is over or cancelled when this ends."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue["Update"]()

    def deliver(update: "Update") -> None:
        loop.call_soon_threadsafe(queue.put_nowait, update)

    job = state.worker.submit(call.work, deliver)
    watcher = asyncio.create_task(_report_disconnect(receive, queue))
    try:
        yield queue
    finally:
        watcher.cancel()
        job.cancel(CancelledError("the client closed the connection."))


async def _report_disconnect(receive: Receive, queue: "asyncio.Queue[Update]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    queue.put_nowait(Failed(ClientGoneError()))


class _Reply:
    """What goes back to the client, and the line about it in the log."""

    def __init__(self, scope: Scope, send: Send, state: ServerState) -> None:
        self.scope, self._send, self._state = scope, send, state
        self._started = False
        self._written = time.monotonic()  # when the client last heard something
        self._arrived = time.perf_counter()
        self._done: Finished | None = None
        self.ignored: Mapping[str, str] = {}  # the header that names the fields that nobody reads

    async def stream(self, call: Prepared, updates: "asyncio.Queue[Update]") -> None:
        """Frames as they come, signs of life in between."""
        await self._start(200, self.ignored, HEADERS)
        for frame in call.writer.opening():
            await self._write(encode(frame))
        await self._write(self._sign_of_life(call))
        failure: ApiError | None = None
        while self._done is None and failure is None:
            update = await self._next(call, updates)
            failure = self._note(update)
            frames = call.writer.failed(failure) if failure else _read(call, update)
            await self._write(b"".join(map(encode, frames)))
        await self._write(DONE if call.writer.ends_with_done else b"", more=False)
        self.log(f"stream {failure.code}" if failure else "stream")

    async def _next(self, call: Prepared, updates: "asyncio.Queue[Update]") -> "Update":
        """The next update; signs of life are written while nothing else is, prefill progress included."""
        while True:
            left = self._written + self._state.settings.keep_alive_s - time.monotonic()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    return await asyncio.wait_for(updates.get(), left)
            self._written = time.monotonic()
            await self._write(self._sign_of_life(call))

    async def whole(self, call: Prepared, updates: "asyncio.Queue[Update]") -> None:
        """One document, folded from the frames that a stream would have had."""
        frames = call.writer.opening()
        while self._done is None:
            update = await updates.get()
            failure = self._note(update)
            if failure:
                raise failure
            frames += _read(call, update)
        await self.document(call.writer.fold(frames))

    async def document(self, document: Mapping[str, object]) -> None:
        """A whole reply."""
        await self._document(200, document, self.ignored)
        self.log("200")

    async def refuse(self, error: ApiError) -> None:
        """The error's envelope; nothing where the answer has begun, since its stream told the error already."""
        if self._started:
            return
        await self._document(error.status, error.envelope(self.scope["path"]), error.headers)
        self.log(f"{error.status} {error.code}")

    def log(self, outcome: str) -> None:
        """One line: no prompt, no key, no query string."""
        seconds = time.perf_counter() - self._arrived
        numbers = ""
        if self._done:
            summary = self._done.summary
            numbers = (
                f", {summary.prompt_tokens} tokens ({summary.cached_tokens} cached) -> {summary.completion_tokens} at "
                f"{summary.decode_rate:.1f} tok/s, {summary.tokens_per_round:.2f} per round"
            )
        _logger.info("%s %s: %s, %.2f s%s", self.scope["method"], self.scope["path"], outcome, seconds, numbers)

    def _note(self, update: "Update") -> ApiError | None:
        """Count the update; the error, if it is one. Raises: ClientGoneError."""
        if isinstance(update, Finished):
            self._done = update
            self._state.totals.add(update)
        if not isinstance(update, Failed):
            return None
        if isinstance(update.error, ClientGoneError):
            self._state.totals.cancelled += 1
            raise update.error
        if isinstance(update.error, EngineGoneError):
            code = "shutting_down" if self._state.worker.state == "stopped" else "engine_dead"
            return ApiError(503, code, str(update.error))
        return explain(update.error)

    def _sign_of_life(self, call: Prepared) -> bytes:
        kind = self._state.settings.keep_alive
        if kind == "off":
            return b""
        frames = call.writer.filler() if kind == "chunk" else call.writer.sign_of_life()
        return b"".join(map(encode, frames)) or COMMENT

    async def _document(self, status: int, document: Mapping[str, object], headers: Mapping[str, str]) -> None:
        data = to_json(document).encode()
        await self._start(status, headers, ((b"content-type", b"application/json"), _length(data)))
        await self._write(data, more=False)

    async def _start(self, status: int, headers: Mapping[str, str], own: tuple[tuple[bytes, bytes], ...]) -> None:
        self._started = True
        extra = [(key.lower().encode("latin-1"), value.encode("latin-1")) for key, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": [*own, *extra]})

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        if data or not more:
            self._written = time.monotonic()
            try:
                async with asyncio.timeout(self._state.settings.receive_s):
                    await self._send({"type": "http.response.body", "body": data, "more_body": more})
            except TimeoutError:  # it reads nothing, and must not hold its place for ever
                self._state.totals.cancelled += 1
                raise ClientGoneError from None


def _read(call: Prepared, update: "Update") -> list[Frame]:
    return [] if isinstance(update, Prefilling | Failed) else call.writer.read(update)


def _length(data: bytes) -> tuple[bytes, bytes]:
    return b"content-length", str(len(data)).encode()


class Quick:
    """The endpoint of what is answered without the engine: counted tokens, begun conversations."""

    def __init__(self, state: ServerState, read: Callable[[JsonObject, Reading], JsonObject]) -> None:
        self._state, self._read = state, read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = _Reply(scope, send, self._state)
        try:
            await reply.document(await prepared(self._state, reply, receive, self._read))
        except ClientGoneError:
            reply.log("gone")
        except Exception as error:
            await reply.refuse(explain(error))
