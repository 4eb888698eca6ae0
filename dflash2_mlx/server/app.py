"""The ASGI app: routes, guards, and the envelope of every error. Knows the dialects by their routes."""

from collections.abc import Awaitable, Callable
from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from dflash2_mlx.server.anthropic.messages import count_tokens, read_messages
from dflash2_mlx.server.errors import ApiError, explain
from dflash2_mlx.server.exchange import Exchange, Quick
from dflash2_mlx.server.guards import Guards
from dflash2_mlx.server.health import Health
from dflash2_mlx.server.openai.chat import read_chat
from dflash2_mlx.server.openai.completions import read_completion
from dflash2_mlx.server.openai.recall import Recall, add_items, begin_conversation
from dflash2_mlx.server.openai.responses import read_response
from dflash2_mlx.server.page import PAGE_ROUTES
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.state import ServerState

Endpoint = ASGIApp | Callable[[Request], Awaitable[Response]]
_PREFIXES = ("/v1", "", "/v1/v1")  # clients differ in whether a base URL ends in /v1, and some add another one
_ROUTES = (
    "Programs POST to /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages; "
    "the page for people is at /."
)


def build_app(state: ServerState) -> Starlette:
    """The app around one engine."""
    app = Starlette(
        routes=_routes(state),
        middleware=[*_cors(state.settings), Middleware(Guards, settings=state.settings)],
        exception_handlers={HTTPException: _refused, ApiError: _refused, Exception: _refused},
    )
    app.router.redirect_slashes = False
    return app


def _routes(state: ServerState) -> list[Route]:
    """The page and what the server says of itself at one path each, the two dialects below every prefix."""
    health, recall = Health(state), Recall(state.responses)
    once = {"/health": health.health, "/livez": health.live, "/api/status": health.status}
    dialects: list[tuple[str, Endpoint, list[str]]] = [
        ("/models", health.models, ["GET"]),
        ("/models/status", health.models_status, ["GET"]),
        ("/models/{name:path}", health.model, ["GET"]),
        ("/chat/completions", Exchange(state, read_chat), ["POST"]),
        ("/completions", Exchange(state, read_completion), ["POST"]),
        ("/messages", Exchange(state, read_messages), ["POST"]),
        ("/messages/count_tokens", Quick(state, count_tokens), ["POST"]),
        ("/responses", Exchange(state, read_response), ["POST"]),
        ("/responses/{id}", recall.document, ["GET", "DELETE"]),
        ("/responses/{id}/input_items", recall.items, ["GET"]),
        ("/conversations", Quick(state, begin_conversation), ["POST"]),
        ("/conversations/{id}", recall.document, ["GET", "DELETE"]),
        ("/conversations/{id}/items", recall.items, ["GET"]),
        ("/conversations/{id}/items", Quick(state, add_items), ["POST"]),
    ]
    return [
        *PAGE_ROUTES,
        *(Route(path, endpoint, methods=["GET"]) for path, endpoint in once.items()),
        *(Route(prefix + path, endpoint, methods=how) for path, endpoint, how in dialects for prefix in _PREFIXES),
    ]


def _cors(settings: ServeSettings) -> list[Middleware]:
    """What lets pages of the allowed origins read answers, and asks for no key before they may send one."""
    if not settings.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=("X-DFlash2-Ignored-Params", "Retry-After"),
        )
    ]


async def _refused(request: Request, error: Exception) -> Response:
    """Any error in the envelope of its route; which methods it takes is no error."""
    if request.method == "OPTIONS" and isinstance(error, HTTPException) and error.status_code == 405:
        return Response(status_code=204, headers=error.headers)
    known = _from_starlette(request, error) if isinstance(error, HTTPException) else explain(error)
    return JSONResponse(known.envelope(request.url.path), known.status, dict(known.headers))


def _from_starlette(request: Request, error: HTTPException) -> ApiError:
    path, method = request.url.path, request.method
    headers = cast(dict[str, str], error.headers or {})
    if error.status_code == 404:
        return ApiError(404, "not_found", f"there is no {path[:200]} here. {_ROUTES}")
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        return ApiError(405, "method_not_allowed", f"{path} does not take {method}. Use {allowed}.", headers=headers)
    return ApiError(error.status_code, "http_error", str(error.detail), headers=headers)
