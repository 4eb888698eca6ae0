"""Who may talk to the server: the Host it is addressed by, the pages that may call it, the key. Reads headers only."""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dflash2_mlx.server.errors import ApiError
from dflash2_mlx.server.page import FILES_AT
from dflash2_mlx.server.settings import ServeSettings, is_loopback

OPEN_PATHS = frozenset({"/", "/health", "/livez"})
_READING = ("GET", "HEAD")


class Guards:
    """ASGI middleware. Refusals carry the envelope of the route they protect."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app, self._settings = app, settings
        self._allowed = {name.lower() for name in settings.allowed_hosts}
        self._key = settings.api_key.encode() if settings.api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        if error is not None:
            await JSONResponse(error.envelope(scope["path"]), error.status, dict(error.headers))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> ApiError | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        nameless = "host" not in headers and scope.get("http_version") == "1.0"  # no browser, so no rebinding
        if self._settings.on_loopback and not nameless and not self._knows(host):
            message = f"this server is not addressed as {host[:100]!r}. Allow the name with --allowed-host."
            return ApiError(403, "host_not_allowed", message)
        if scope["method"] not in _READING and origin and not (self._allows(origin) or _same_origin(origin, host)):
            message = f"pages of {origin[:100]!r} may not call this server. Allow them with --cors-origin."
            return ApiError(403, "origin_not_allowed", message)
        closed = scope["path"] not in OPEN_PATHS and not scope["path"].startswith(FILES_AT)
        if self._key and closed and not self._has_key(headers):
            message = "the API key is missing or wrong. Send it as `Authorization: Bearer KEY` or as `x-api-key`."
            return ApiError(401, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"})
        return None

    def _knows(self, host: str) -> bool:
        name = _name(host)
        return is_loopback(name) or name.lower() in self._allowed or host.lower() in self._allowed

    def _allows(self, origin: str) -> bool:
        return "*" in self._settings.cors_origins or origin in self._settings.cors_origins

    def _has_key(self, headers: Headers) -> bool:
        assert self._key is not None
        return sum(hmac.compare_digest(key.encode("latin-1"), self._key) for key in _keys(headers)) > 0


def owner_of(headers: Headers) -> str:
    """Who asks, told by the key that was sent."""
    return " ".join(_keys(headers))


def _keys(headers: Headers) -> list[str]:
    """The keys that a request carries."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return [*([token.strip()] if scheme.lower() == "bearer" else []), headers.get("x-api-key", "")]


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _same_origin(origin: str, host: str) -> bool:
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
