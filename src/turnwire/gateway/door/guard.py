"""The door: every request is somebody's, or it is refused before its body is read.

Promise: plain ASGI middleware. It decides by the routed path alone (never by Host or other client-chosen headers),
denies by default once a key is set, and bounds what one key may do at a time, over all gateways that share a Redis.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from turnwire.gateway.door.hosts import is_from_here
from turnwire.gateway.door.keys import Key, Keyring, holder
from turnwire.gateway.door.shared_limits import SharedLimits
from turnwire.gateway.door.usage import UsageLedger
from turnwire.gateway.routes import Access, access_of, label_of
from turnwire.protocols.wire import ErrorReply, TurnFailure

__all__ = ["Guard", "KeyUse", "headers_of"]

log = logging.getLogger("turnwire.gateway")
_SHOWN_PATH = 128
_FOREIGN = (
    "Without keys this gateway answers only to names of its own machine; set --keys, or name the host in allowed_hosts."
)


def headers_of(scope: Scope) -> dict[str, str]:
    """Lower-case header names to values; the last of a repeated header wins. Read once for a request."""
    state: dict[str, dict[str, str]] = scope.setdefault("state", {})
    headers = state.get("headers")
    if headers is None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        state["headers"] = headers
    return headers


class KeyUse:
    """What one key is doing now: its running turns, its rate (a bucket that refills with time) and its budget."""

    def __init__(
        self, key: Key, clock: Callable[[], float] = time.monotonic, ledger: UsageLedger | None = None
    ) -> None:
        self.key = key
        self._ledger = ledger
        self.running = 0
        self._clock = clock
        self._tokens = float(key.requests_per_minute or 0)
        self._filled = clock()

    def ask(self, held: int = 0) -> None:
        """Count a request, or raise TurnFailure with the time to wait. `held` are places the asker has already."""
        if self._ledger is not None:
            self._ledger.check(self.key)
        per_minute = self.key.requests_per_minute
        if per_minute is not None:
            now = self._clock()
            self._tokens = min(per_minute, self._tokens + (now - self._filled) * per_minute / 60)
            self._filled = now
            if self._tokens < 1:
                # Rounded up and a little more: a client that comes back just when asked to must not be refused again.
                wait = math.ceil((1 - self._tokens) * 600 / per_minute) / 10 + 0.1
                raise TurnFailure(
                    "rate_limited",
                    f"This key may ask {per_minute} times a minute; try again in {wait:.1f}s.",
                    retry_after=wait,
                )
            self._tokens -= 1
        if self.key.concurrency is not None and self.running - held >= self.key.concurrency:
            raise TurnFailure(
                "rate_limited",
                f"This key may run {self.key.concurrency} requests at a time; try again in 1s.",
                retry_after=1,
            )


class Guard:
    """Checks the key and leaves its use in `scope["state"]["use"]`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keyring,
        refuse: Callable[[str, Mapping[str, str], TurnFailure], ErrorReply],
        count: Callable[[str, str], None] = lambda label, kind: None,
        hosts: frozenset[str] | None = None,
        ledger: UsageLedger | None = None,
        shared: SharedLimits | None = None,
    ) -> None:
        self._app = app
        self._shared = shared
        self._ledger = ledger
        self._keys = keys
        self._refuse = refuse
        self._count = count
        # With keys, a web page that knows none gets nowhere; without, only names of this machine are answered.
        self._hosts = None if keys else hosts
        self._uses: dict[str, KeyUse] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        headers = headers_of(scope)
        try:
            if self._hosts is not None and not is_from_here(headers, self._hosts):
                raise TurnFailure("permission", _FOREIGN)
            access = access_of(path)
            use = None if access == "open" else self._admit(access, headers)
            place = await self._shared.enter(use.key) if use is not None and self._shared is not None else None
        except TurnFailure as failure:
            # Anybody may choose the path: none may break the line, or make it long.
            shown = path[:_SHOWN_PATH].encode("unicode_escape").decode()
            log.info("refused %s %s: %s", shown, failure.kind, failure.message, extra={"turnwire": {"api": shown}})
            self._count(label_of(path), failure.kind)
            await self._answer(scope, send, self._refuse(path, headers, failure))
            return
        if use is None:
            await self._app(scope, receive, send)
            return
        scope["state"]["use"] = use
        use.running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            use.running -= 1
            if place is not None and self._shared is not None:
                await self._shared.leave(use.key, place)

    def _admit(self, access: Access, headers: Mapping[str, str]) -> KeyUse:
        key = holder(self._keys, headers)
        if access not in key.scopes:
            raise TurnFailure("permission", f"The key '{key.name}' may not use {access} routes.")
        use = self._uses.get(key.name)
        if use is None:
            use = self._uses[key.name] = KeyUse(key, ledger=self._ledger)
        elif use.key is not key:
            # The file was read again: its limits hold from now on.
            use.key = key
        use.ask()
        return use

    async def _answer(self, scope: Scope, send: Send, error: ErrorReply) -> None:
        kind = "http"
        if scope["type"] == "websocket":
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
                return
            kind = "websocket.http"
        headers = [
            (b"content-type", error.media_type.encode()),
            (b"content-length", str(len(error.body)).encode()),
            *((name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers),
        ]
        await send({"type": f"{kind}.response.start", "status": error.status, "headers": headers})
        await send({"type": f"{kind}.response.body", "body": error.body})
