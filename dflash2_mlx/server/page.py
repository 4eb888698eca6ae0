"""`GET /` and `/page/`: the page for people, under a policy that runs its own files and nothing else. Knows no API."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FILES_AT = "/page/"
_HEADERS = {
    "Cache-Control": "no-cache",  # kept, and asked for again with its ETag
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}  # no machine's own table


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        kind = _TYPES.get(Path(path).suffix)
        if kind and response.status_code == 200:
            response.headers["Content-Type"] = kind
        return response


_files = _Files(directory=Path(__file__).with_name("page"))


async def _page(request: Request) -> Response:
    return await _files.get_response(request.path_params.get("name", "index.html"), request.scope)


# Open even where a key is set: the page asks for the key.
PAGE_ROUTES = (Route("/", _page, methods=["GET"]), Route(f"{FILES_AT}{{name}}", _page, methods=["GET"]))
