"""One streamed chat completion over HTTP, timed. Knows OpenAI's wire format and the standard library."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import pairwise
from urllib.parse import urlsplit

from dflash2_mlx.errors import UsageError
from dflash2_mlx.parsing import parse_json

_LONGEST, _MOST_TOKENS = 2**24, 2**31  # bytes of a list or of one event; tokens of an answer


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's base URL (`http://127.0.0.1:8000/v1`), the model's name there, a key or None, and the patience."""

    base_url: str
    model: str
    api_key: str | None = None
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One request's times in seconds after it was sent. gaps_s: between pieces of text. error: why it failed, or None.

    tokens: as the server counts them, else the number of pieces.
    """

    first_s: float | None
    total_s: float
    gaps_s: tuple[float, ...]
    tokens: int
    error: str | None


def ask(endpoint: Endpoint, body: Mapping[str, object]) -> Reply:
    """Send the request and read its stream to the end; every failure is in the reply, none is raised."""
    began = time.perf_counter()
    pieces: list[float] = []
    tokens, finished, error, events = None, False, None, 0
    try:
        connection = connect(endpoint)
        try:
            response = _post(connection, endpoint, body)
            for chunk in _chunks(response):
                events += 1
                if chunk.get("error") is not None:
                    error = f"in the stream: {_message(chunk)}"
                    break
                pieces += [time.perf_counter()] if _has_text(chunk) else []
                finished |= _finish_reason(chunk) is not None
                tokens = _completion_tokens(chunk) or tokens
        finally:
            connection.close()
        if error is None and not events:
            error = f"no event came: the answer is {one_line(response.headers.get_content_type())}"
        elif error is None and not finished:
            error = "the stream ended without a finish_reason"
    except FAILURES as failure:
        error = error_words(failure)
    ended = time.perf_counter()
    gaps = tuple(later - sooner for sooner, later in pairwise(pieces))
    first = pieces[0] - began if pieces else None
    return Reply(first, ended - began, gaps, tokens or len(pieces), error)


def error_words(failure: Exception) -> str:
    """A failure in few words, the same for the same cause, so that they can be counted."""
    return one_line(str(failure) if isinstance(failure, StatusError) else f"{type(failure).__name__}: {failure}"[:120])


def one_line(text: str) -> str:
    """What a server said as one line that a terminal may show: no line breaks, no control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


class StatusError(ValueError):
    """The server answered with another status than 200."""


FAILURES = (OSError, HTTPException, ValueError)  # of a server, of what it sends, or on the way to it


def connect(endpoint: Endpoint) -> HTTPConnection:
    """A connection to the endpoint's host. Raises: UsageError for a URL that is none."""
    wrong = UsageError(f"--base-url {endpoint.base_url!r} is no URL. Give one like http://127.0.0.1:8000/v1.")
    try:
        parts = urlsplit(endpoint.base_url)
        port = parts.port
    except ValueError as error:  # a port that is no number, half an IPv6 address
        raise wrong from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise wrong
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname, port, timeout=endpoint.timeout_s)


def models_of(endpoint: Endpoint) -> Sequence[str]:
    """The model names that the server lists. Raises: UsageError where it does not answer or lists none."""
    connection = connect(endpoint)
    try:
        connection.request("GET", _path(endpoint, "/models"), headers=_headers(endpoint))
        found = parse_json(_answered(connection).read(_LONGEST))
        names = [str(entry["id"]) for entry in found["data"]]
    except (*FAILURES, KeyError, TypeError) as error:
        raise UsageError(
            f"{endpoint.base_url} does not list its models ({error_words(error)}). Start the server, check --base-url "
            "(it usually ends in /v1), or name one with --model."
        ) from error
    finally:
        connection.close()
    if not names:
        raise UsageError(f"{endpoint.base_url} lists no models. Name one with --model.")
    return names


def _post(connection: HTTPConnection, endpoint: Endpoint, body: Mapping[str, object]) -> HTTPResponse:
    headers = {**_headers(endpoint), "Content-Type": "application/json", "Accept": "text/event-stream"}
    connection.request("POST", _path(endpoint, "/chat/completions"), json.dumps(body).encode(), headers)
    return _answered(connection)


def _answered(connection: HTTPConnection) -> HTTPResponse:
    """The response. Raises: StatusError for any status but 200, with where a redirect leads."""
    response = connection.getresponse()
    if response.status == 200:
        return response
    said = response.headers.get("Location") or response.read(500).decode(errors="replace")
    raise StatusError(f"HTTP {response.status}: {said[:80]}")


def _path(endpoint: Endpoint, rest: str) -> str:
    return urlsplit(endpoint.base_url).path.rstrip("/") + rest


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


def _chunks(response: HTTPResponse) -> Iterator[Mapping[str, object]]:
    """The JSON of every data event until `[DONE]`; comments are keep-alives."""
    while line := response.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise ValueError(f"an event of the stream is longer than {_LONGEST} bytes")
        text = line.decode("utf-8").strip()
        if not text.startswith("data:"):
            continue
        data = text.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        chunk = parse_json(data)
        if isinstance(chunk, dict):
            yield chunk


def _choice(chunk: Mapping[str, object]) -> Mapping[str, object]:
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return first if isinstance(first, dict) else {}


def _has_text(chunk: Mapping[str, object]) -> bool:
    delta = _choice(chunk).get("delta")
    return isinstance(delta, dict) and any(
        delta.get(key) for key in ("content", "reasoning_content", "reasoning", "tool_calls")
    )


def _finish_reason(chunk: Mapping[str, object]) -> object:
    return _choice(chunk).get("finish_reason")


def _completion_tokens(chunk: Mapping[str, object]) -> int | None:
    usage = chunk.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 < count < _MOST_TOKENS else None


def _message(chunk: Mapping[str, object]) -> str:
    error = chunk["error"]
    return one_line(str(error.get("message") if isinstance(error, dict) else error)[:80])
