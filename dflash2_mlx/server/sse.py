"""Server-sent events: frames to bytes. Knows nothing of what they say."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: its document, and its name where the dialect names events."""

    data: dict[str, object]
    name: str | None = None


COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


def encode(frame: Frame) -> bytes:
    """The event as bytes. JSON has no raw line break, so one data line is enough."""
    name = f"event: {frame.name}\n" if frame.name else ""
    return f"{name}data: {to_json(frame.data)}\n\n".encode()


def to_json(document: object) -> str:
    """Compact JSON; U+2028 and U+2029, which some line readers break at, are escaped."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
