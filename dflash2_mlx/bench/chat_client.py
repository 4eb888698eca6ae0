"""One streamed chat completion over HTTP, timed. Knows OpenAI's wire format and the HTTP client."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from httpx2 import URL, Client, HTTPError, InvalidURL, Limits, Response

from dflash2_mlx.errors import UsageError
from dflash2_mlx.parsing import parse_json

_LONGEST, _MOST_TOKENS = 2**24, 2**31  # bytes of a list or of one event; tokens of an answer
FAILURES = (OSError, HTTPError, ValueError)  # of a server, of what it sends, or on the way to it


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's URL (with or without /v1 at its end), the model's name there, a key or None, and the patience."""

    base_url: str
    model: str
    api_key: str | None = None
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One request's times in seconds after it was sent. gaps_s: between pieces of text. error: why it failed, or None.

    tokens: as the server counts them, else the number of pieces. cached_tokens: None where it does not say.
    """

    first_s: float | None
    total_s: float
    gaps_s: tuple[float, ...]
    tokens: int
    error: str | None
    prompt_tokens: int = 0
    cached_tokens: int | None = None


class StatusError(ValueError):
    """The server answered with another status than 200."""


def client_of(endpoint: Endpoint) -> Client:
    """An HTTP client for the endpoint, for as many requests at once as are made. Raises: UsageError for no URL."""
    wrong = UsageError(f"--base-url {endpoint.base_url!r} is no URL. Give one like http://127.0.0.1:8000.")
    try:
        url = URL(endpoint.base_url.rstrip("/").removesuffix("/v1"))
    except (InvalidURL, ValueError) as error:
        raise wrong from error
    sound = url.scheme in ("http", "https") and url.host and (url.port or 0) < 2**16
    if not sound or url.query or url.fragment:
        raise wrong
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    return Client(
        base_url=url,
        headers=headers,
        timeout=endpoint.timeout_s,
        trust_env=False,  # no proxy of the environment may stand between
        limits=Limits(max_connections=None, max_keepalive_connections=None),
    )


def ask(client: Client, body: Mapping[str, object]) -> Reply:
    """Send the request and read its stream to the end; every failure is in the reply, none is raised."""
    began = time.perf_counter()
    pieces: list[float] = []
    usage: Mapping[str, object] = {}
    finished, error, events = False, None, 0
    try:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            _check_status(response)
            for chunk in _chunks(response):
                events += 1
                if chunk.get("error") is not None:
                    error = f"in the stream: {_message(chunk)}"
                    break
                pieces += [time.perf_counter()] if _has_text(chunk) else []
                finished |= _choice(chunk).get("finish_reason") is not None
                usage = _inner(chunk, "usage") or usage
        if error is None and not events:
            error = f"no event came: the answer is {one_line(response.headers.get('Content-Type', 'of no type'))}"
        elif error is None and not finished:
            error = "the stream ended without a finish_reason"
    except FAILURES as failure:
        error = error_words(failure)
    ended = time.perf_counter()
    gaps = tuple(later - sooner for sooner, later in pairwise(pieces))
    first, count = pieces[0] - began if pieces else None, _count(usage, "completion_tokens") or len(pieces)
    cached = _count(_inner(usage, "prompt_tokens_details"), "cached_tokens")
    return Reply(first, ended - began, gaps, count, error, _count(usage, "prompt_tokens") or 0, cached)


def error_words(failure: Exception) -> str:
    """A failure in few words, the same for the same cause, so that they can be counted."""
    return one_line(str(failure) if isinstance(failure, StatusError) else f"{type(failure).__name__}: {failure}"[:120])


def one_line(text: str) -> str:
    """What a server said as one line that a terminal may show: no line breaks, no control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def models_of(endpoint: Endpoint) -> Sequence[str]:
    """The model names that the server lists. Raises: UsageError where it does not answer or lists none."""
    with client_of(endpoint) as client:
        try:
            with client.stream("GET", "/v1/models") as response:
                _check_status(response)
                found = parse_json(b"\n".join(_lines(response)))
            names = [str(entry["id"]) for entry in found["data"]]
        except (*FAILURES, KeyError, TypeError) as error:
            raise UsageError(
                f"{endpoint.base_url} does not list its models ({error_words(error)}). Start the server, check "
                "--base-url, or name one with --model."
            ) from error
    if not names:
        raise UsageError(f"{endpoint.base_url} lists no models. Name one with --model.")
    return names


def _check_status(response: Response) -> None:
    """Raises: StatusError for any status but 200, with where a redirect leads."""
    if response.status_code != 200:
        said = response.headers.get("Location") or response.read()[:500].decode(errors="replace")
        raise StatusError(f"HTTP {response.status_code}: {said[:80]}")


def _lines(response: Response) -> Iterator[bytes]:
    """The lines as they come, each of a bounded length. Raises: ValueError."""
    rest = b""
    for piece in response.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST:
            raise ValueError(f"an event of the stream is longer than {_LONGEST} bytes")
        yield from lines
    yield rest


def _chunks(response: Response) -> Iterator[Mapping[str, object]]:
    """The JSON of every data event until `[DONE]`; comments are keep-alives."""
    for line in _lines(response):
        name, _, data = line.decode("utf-8").strip().partition(":")
        if name == "data" and data.strip() == "[DONE]":
            return
        chunk = parse_json(data) if name == "data" else None
        if isinstance(chunk, dict):
            yield chunk


def _inner(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _choice(chunk: Mapping[str, object]) -> Mapping[str, object]:
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return first if isinstance(first, dict) else {}


def _has_text(chunk: Mapping[str, object]) -> bool:
    delta = _inner(_choice(chunk), "delta")
    return any(delta.get(key) for key in ("content", "reasoning_content", "reasoning", "tool_calls"))


def _count(usage: Mapping[str, object], key: str) -> int | None:
    """A count of tokens that can be one."""
    count = usage.get(key)
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MOST_TOKENS else None


def _message(chunk: Mapping[str, object]) -> str:
    return one_line(str(_inner(chunk, "error").get("message", chunk["error"]))[:80])
