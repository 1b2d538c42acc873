"""The playground's WebSocket: a connection for each browser tab.

Promise: no more tabs than a gateway bears; the agent's code is loaded with the first of them, since most gateways never
see one.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["PlaygroundSocket"]

_MOST_TABS = 64


class PlaygroundSocket:
    """`/console/chat`. `app` is the whole gateway, door included; it is set once that is built."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.app is not None
        if self._open >= _MOST_TABS:
            await send({"type": "websocket.close", "code": 1013, "reason": "too many tabs"})
            return
        if (await receive())["type"] != "websocket.connect":
            return
        await send({"type": "websocket.accept"})
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "localhost")
        self._open += 1
        try:
            from turnwire.gateway.playground.tab import Tab

            await Tab(self.app, host, receive, send).run()
        finally:
            self._open -= 1
