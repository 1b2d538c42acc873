"""The console's files, served by the gateway itself.

Promise: no foreign request and no build step; the files hold no data, which the page asks for with the operator's key.
A client that does not ask for a page gets none at `/`, only a sign that something is here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["front_page", "page", "part"]

Handler = Callable[[Request], Awaitable[Response]]

_PARTS = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "timeline.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


@lru_cache
def _file(name: str) -> bytes:
    return resources.files("turnwire.console").joinpath("static", name).read_bytes()


async def page(request: Request) -> Response:
    """The console."""
    return Response(_file("console.html"), headers=_HEADERS, media_type="text/html")


async def part(request: Request) -> Response:
    """A stylesheet, script or picture of the console."""
    name = request.path_params["file"]
    if name not in _PARTS:
        return Response(status_code=404)
    return Response(_file(name), headers=_HEADERS, media_type=_PARTS[name])


def front_page(hello: Handler) -> Handler:
    """The console for a browser that opens `/`; for everybody else what `hello` says."""

    async def answer(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return await page(request)
        return await hello(request)

    return answer
