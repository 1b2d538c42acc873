"""Which web pages of other origins may read the gateway's answers, by the operator's list.

Promise: an origin that is not listed changes nothing: no header is added and no preflight is answered. Keys are needed
as ever; no cookie or other credential of the browser's own is ever asked for.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from turnwire.gateway.door.exchange import DIRECT

__all__ = ["CrossOrigin", "origin_names"]

_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"request-id, retry-after, x-request-id, x-turnwire-notes, x-turnwire-prefix"
_PREFLIGHT_SECONDS = b"600"


def origin_names(origins: tuple[str, ...]) -> frozenset[str]:
    """The host names of the listed origins."""
    return frozenset(origin.partition("://")[2].partition(":")[0].lower() for origin in origins if "://" in origin)


class CrossOrigin:
    """Answers preflights of listed origins (`*`: all) and marks answers as theirs to read."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._all = "*" in origins
        self._origins = {origin.rstrip("/").encode("latin-1", "replace") for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ())) if scope["type"] == "http" else {}
        origin = headers.get(b"origin")
        if origin is None or not (self._all or origin in self._origins):
            await self._app(scope, receive, send)
            return
        ours = [
            (b"access-control-allow-origin", b"*" if self._all else origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        ]
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await _preflight(headers, ours, send)
            return

        async def marked(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *ours]
            await send(message)

        # Answers written straight to the connection would pass by here.
        extensions = {name: value for name, value in scope.get("extensions", {}).items() if name != DIRECT}
        await self._app({**scope, "extensions": extensions}, receive, marked)


async def _preflight(headers: dict[bytes, bytes], ours: list[tuple[bytes, bytes]], send: Send) -> None:
    answer = [
        *ours,
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"")),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
        (b"content-length", b"0"),
    ]
    if headers.get(b"access-control-request-private-network") == b"true":
        answer.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": answer})
    await send({"type": "http.response.body", "body": b""})
