"""A request's body: bytes within limits, then one JSON object. Knows nothing of what it asks for."""

import asyncio
import json
import math
from collections.abc import Iterable

from starlette.types import Receive

from dflash2_mlx.server.errors import ApiError, invalid
from dflash2_mlx.server.settings import MOST_BODY_BYTES

DEEPEST_JSON = 64
JsonObject = dict[str, object]


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(receive: Receive, declared: str | None, timeout_s: float) -> bytes:
    """The whole body, however it was cut into pieces. `declared`: its Content-Length, if there is one.

    Raises: ApiError 413 for more than 32 MiB, 408 for a piece that does not come; ClientGoneError.
    """
    if declared is not None and declared.isascii() and declared.isdigit() and int(declared[:20]) > MOST_BODY_BYTES:
        raise _too_large()
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        try:
            message = await asyncio.wait_for(receive(), timeout_s)
        except TimeoutError:
            raise ApiError(
                408,
                "request_timeout",
                f"no piece of the body came for {timeout_s:g} s. Send it again.",
                headers={"Connection": "close"},
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
        if size > MOST_BODY_BYTES:
            raise _too_large()
    return b"".join(pieces)


def parse_object(body: bytes) -> JsonObject:
    """The JSON object that `body` holds. Raises: ApiError 400 `invalid_json`."""
    if not body.strip():
        raise _broken("the body is empty")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # lone surrogates are no text
    except UnicodeDecodeError as error:
        raise _broken(f"byte 0x{body[error.start]:02x} at position {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise _broken("a \\u escape is half of a surrogate pair") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise _broken(str(error)) from None
    if not isinstance(value, dict):
        raise _broken(f"it holds a {type(value).__name__}")
    _check_depth(value)
    return value


def directly_inside(level: Iterable[object]) -> list[object]:
    """The objects and lists that those of `level` hold."""
    inside = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list))
    return [child for children in inside for child in children if isinstance(child, dict | list)]


def _check_depth(value: object) -> None:
    """Nothing that reads the body later may run out of stack."""
    level = [value]
    for _ in range(DEEPEST_JSON):
        level = directly_inside(level)
        if not level:
            return
    raise _too_deep()


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is beyond every float")
    return number


def _broken(why: str) -> ApiError:
    return invalid(f"the body is not a JSON object: {why}. Send UTF-8 JSON.", code="invalid_json")


def _too_deep() -> ApiError:
    return invalid(f"the JSON is nested more than {DEEPEST_JSON} levels deep. Flatten it.", code="invalid_json")


def _too_large() -> ApiError:
    return ApiError(
        413,
        "request_too_large",
        f"the body is larger than {MOST_BODY_BYTES // 2**20} MiB. Send a shorter conversation.",
        headers={"Connection": "close"},
    )
