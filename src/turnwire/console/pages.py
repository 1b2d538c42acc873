"""The console's files, served by the gateway itself.

Promise: no foreign request and no build step; the files hold no data, which the page asks for with the operator's key.
A client that does not ask for a page gets none at `/`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["front_page", "page", "part", "self_contained"]

Handler = Callable[[Request], Awaitable[Response]]

_PARTS = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "timeline.js": "text/javascript",
    "turn.js": "text/javascript",
    "markdown.js": "text/javascript",
    "playground.js": "text/javascript",
    "charts.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_VENDORED = {"uPlot.iife.min.js": "text/javascript", "uPlot.min.css": "text/css"}
"""Files of uPlot as its makers publish them, with their licence beside them."""
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


@lru_cache
def _file(name: str) -> bytes:
    folder = ("static", "vendor") if name in _VENDORED else ("static",)
    return resources.files("turnwire.console").joinpath(*folder, name).read_bytes()


async def page(request: Request) -> Response:
    """The console."""
    return Response(_file("console.html"), headers=_HEADERS, media_type="text/html")


async def part(request: Request) -> Response:
    """A stylesheet, script or picture of the console."""
    name = request.path_params["file"]
    media_type = _PARTS.get(name) or _VENDORED.get(name)
    if media_type is None:
        return Response(status_code=404)
    return Response(_file(name), headers=_HEADERS, media_type=media_type)


_MODULE = re.compile(r"^import .*?;$|^export ", re.MULTILINE)
_SHOWN = ("timeline.js", "turn.js", "console.js")


def self_contained(data: bytes) -> bytes:
    """The console with its data inside, as one page that asks nobody for anything."""
    page = _file("console.html").decode()
    head = page[: page.index('<link rel="icon"')]
    body = page[page.index("</head>") :].replace('<img src="console/icon.svg" alt="" width="22" height="22"> ', "")
    code = "\n".join(_MODULE.sub("", _file(name).decode()) for name in _SHOWN)
    # Inside a script element only its own end tag, and the comment that hides one, mean anything.
    inside = data.replace(b"</", b"<\\/").replace(b"<!--", b"<\\u0021--").decode()
    style = f"<style>{_file('console.css').decode()}</style>"
    told = f'<script type="application/json" id="capture">{inside}</script><script type="module">{code}</script>'
    return f"{head}{style}{body.replace('</body>', told + '</body>')}".encode()


def front_page(otherwise: Handler) -> Handler:
    """The console for a browser that opens `/`; everybody else gets the answer of `otherwise`."""

    async def answer(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return await page(request)
        return await otherwise(request)

    return answer
