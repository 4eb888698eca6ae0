"""What goes wrong with a request, and the two envelopes it is told in. Knows nothing of routes but their prefix."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dflash2_mlx.errors import DFlash2Error, TemplateError
from dflash2_mlx.server.worker import CancelledError, EngineGoneError, QueueFullError

_NO_MEMORY = ("unable to allocate", "attempting to allocate", "insufficient memory", "out of memory", "resource limit")
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


@dataclass
class ApiError(Exception):
    """An answer that is an error. `param`: the field at fault; `code`: what programs look at."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        return self.message

    def envelope(self, path: str) -> dict[str, object]:
        """The error's document in the dialect of the route at `path`."""
        if path.startswith("/v1/messages"):
            kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        return {"error": self.openai()}

    def openai(self) -> dict[str, object]:
        """The inside of OpenAI's envelope."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}


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
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return ApiError(503, "queue_full", str(error), headers={"Retry-After": "2"})
    if isinstance(error, EngineGoneError):
        return ApiError(503, "engine_unavailable", str(error))
    if isinstance(error, CancelledError):
        return ApiError(499, "cancelled", str(error))
    if isinstance(error, TemplateError):
        return ApiError(400, "template_error", str(error), "messages")
    if isinstance(error, DFlash2Error):
        return invalid(str(error))
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in _NO_MEMORY):
        message = f"out of memory: {_first(error)}. Send a shorter prompt, or serve with a smaller --max-context."
        return ApiError(507, "out_of_memory", message, headers={"x-should-retry": "false"})
    return ApiError(500, "internal_error", f"the request failed inside the server: {_first(error)}. Its log has more.")


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200].rstrip('.')}" if lines else type(error).__name__
