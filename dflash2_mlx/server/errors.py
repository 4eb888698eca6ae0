"""What goes wrong with a request, and the two envelopes it is told in. Knows nothing of routes but their prefix."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dflash2_mlx.errors import DeviceError, DeviceMemoryError, DFlash2Error, TemplateError
from dflash2_mlx.server.worker import CancelledError, EngineGoneError, QueueFullError
from dflash2_mlx.session.faults import device_fault

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_SOONEST_S, _LATEST_S = 2, 60  # to come back; clients heed no later one
_CONVERSATION = {"/responses": "input", "/completions": "prompt"}


@dataclass
class ApiError(Exception):
    """An answer that is an error. `param`: the field at fault; `code`, `details`: what programs look at."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    details: Mapping[str, object] | None = None

    def __str__(self) -> str:
        return self.message

    def envelope(self, path: str) -> dict[str, object]:
        """The error's document in the dialect of the route at `path`."""
        route = re.sub(r"^(/v1)+/", "/", path)
        if route.startswith("/messages"):
            kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
            details = {"details": dict(self.details)} if self.details else {}
            return {"type": "error", "error": {"type": kind, "message": self.message, **details}}
        return {"error": self.openai(_CONVERSATION.get(route, "messages"))}

    def openai(self, conversation: str = "messages") -> dict[str, object]:
        """The inside of OpenAI's envelope; `conversation` is what the route calls the messages."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        param = conversation if self.param == "messages" else self.param
        return {"message": self.message, "type": kind, "param": param, "code": self.code}


def invalid(message: str, param: str | None = None, *, code: str = "invalid_value") -> ApiError:
    """A 400: the request says something that cannot be."""
    return ApiError(400, code, message, param)


def too_long(tokens: int, most: int) -> ApiError:
    """A 400 in the words that clients look for before they compact a conversation."""
    message = f"prompt is too long: {tokens} tokens > {most} maximum. Shorten the conversation."
    return ApiError(400, "context_length_exceeded", message, "messages")


def unsupported(param: str, why: str) -> ApiError:
    """A 400 for a known parameter that is not honoured."""
    return ApiError(400, "unsupported_parameter", f"{param} is not supported: {why}", param)


def explain(error: Exception) -> ApiError:
    """Whatever a request raised, as an error to send."""
    error = device_fault(error) or error
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        soon = str(max(_SOONEST_S, min(_LATEST_S, round(error.retry_s))))
        return ApiError(503, "queue_full", str(error), headers={"Retry-After": soon})
    if isinstance(error, EngineGoneError):
        return ApiError(503, "engine_unavailable", str(error))
    if isinstance(error, CancelledError):
        return ApiError(499, "cancelled", str(error))
    if isinstance(error, TemplateError):
        return ApiError(400, "template_error", str(error), "messages")
    if isinstance(error, DeviceMemoryError):
        return ApiError(507, "out_of_memory", str(error), headers={"x-should-retry": "false"})
    if isinstance(error, DeviceError):
        return ApiError(500, "device_error", str(error))
    if isinstance(error, DFlash2Error):
        return invalid(str(error))
    return ApiError(500, "internal_error", f"the request failed inside the server: {_first(error)}. Its log has more.")


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200].rstrip('.')}" if lines else type(error).__name__
