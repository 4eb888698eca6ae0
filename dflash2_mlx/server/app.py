"""The ASGI app: routes, guards, and the envelope of every error. Knows the dialects by their routes."""

from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dflash2_mlx.server.chat import read_chat
from dflash2_mlx.server.completions import read_completion
from dflash2_mlx.server.errors import ApiError, explain
from dflash2_mlx.server.exchange import Counter, Desk, Exchange
from dflash2_mlx.server.guards import Guards
from dflash2_mlx.server.messages import count_tokens, read_messages
from dflash2_mlx.server.page import PAGE_ROUTES
from dflash2_mlx.server.responses import read_response
from dflash2_mlx.server.settings import Settings
from dflash2_mlx.server.status import Status


def build_app(desk: Desk) -> Starlette:
    """The app around one engine."""
    status = Status(desk)
    routes = [
        *PAGE_ROUTES,
        Route("/health", status.health, methods=["GET"]),
        Route("/livez", status.live, methods=["GET"]),
        Route("/api/status", status.status, methods=["GET"]),
        Route("/v1/models", status.models, methods=["GET"]),
        Route("/v1/models/status", status.models_status, methods=["GET"]),
        Route("/v1/models/{name:path}", status.model, methods=["GET"]),
        Route("/v1/chat/completions", Exchange(desk, read_chat), methods=["POST"]),
        Route("/v1/completions", Exchange(desk, read_completion), methods=["POST"]),
        Route("/v1/messages", Exchange(desk, read_messages), methods=["POST"]),
        Route("/v1/messages/count_tokens", Counter(desk, count_tokens), methods=["POST"]),
        Route("/v1/responses", Exchange(desk, read_response), methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[*_cors(desk.settings), Middleware(Guards, settings=desk.settings)],
        exception_handlers={HTTPException: _refused, ApiError: _refused, Exception: _refused},
    )
    app.router.redirect_slashes = False
    return app


def _cors(settings: Settings) -> list[Middleware]:
    """What lets pages of the allowed origins read answers, and asks for no key before they may send one."""
    if not settings.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=("X-DFlash2-Ignored-Params", "Retry-After"),
        )
    ]


async def _refused(request: Request, error: Exception) -> Response:
    """Any error in the envelope of its route."""
    known = _from_starlette(request, error) if isinstance(error, HTTPException) else explain(error)
    return JSONResponse(known.envelope(request.url.path), known.status, dict(known.headers))


def _from_starlette(request: Request, error: HTTPException) -> ApiError:
    path, method = request.url.path, request.method
    headers = cast(dict[str, str], error.headers or {})
    if error.status_code == 404:
        return ApiError(404, "not_found", f"there is no {path[:200]} here. GET / lists the routes.")
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        return ApiError(405, "method_not_allowed", f"{path} does not take {method}. Use {allowed}.", headers=headers)
    return ApiError(error.status_code, "http_error", str(error.detail), headers=headers)
