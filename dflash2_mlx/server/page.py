"""`GET /`: the page for people, under a policy that runs its own script and nothing else. Knows no other route."""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response


async def page(request: Request) -> Response:
    """The page. It is open even where a key is set, and asks for it."""
    text = _text()
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _policy(text),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(text, headers=headers)


@cache
def _text() -> str:
    return files("dflash2_mlx.server").joinpath("page.html").read_text(encoding="utf-8")


@cache
def _policy(text: str) -> str:
    """Only the script and the style that the page has, told by their hashes: whatever a model writes, it cannot run."""
    return (
        f"default-src 'none'; script-src {_hash('script', text)}; style-src {_hash('style', text)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(tag: str, text: str) -> str:
    (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
