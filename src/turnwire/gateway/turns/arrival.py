"""A request as any transport brings it, before anything of it is understood.

Promise: what the rest of the gateway needs to know of a transport is here; HTTP, WebSocket and background differ in
nothing else on the way in.
"""

from __future__ import annotations

import msgspec

from turnwire.gateway.door.guard import KeyUse
from turnwire.gateway.door.keys import ANONYMOUS, Key
from turnwire.gateway.large_bodies.pool import LargeRequest

__all__ = ["Arrival"]


class Arrival(msgspec.Struct, kw_only=True):
    """`body` is whole and expanded, and empty once the request is admitted; `headers` have lower-case names; `started`
    is when the body had been read, in monotonic seconds; `use` counts what the request's key is doing (None while no
    key is set). A request that is `large` has its body there, and none here."""

    headers: dict[str, str]
    body: bytes
    started: float
    use: KeyUse | None = None
    large: LargeRequest | None = None

    def close(self) -> None:
        """The request is admitted or refused, or its body is here: what a large one took is given back."""
        if self.large is not None:
            self.large.close()
            self.large = None

    @property
    def key(self) -> Key:
        """Whose request it is."""
        return self.use.key if self.use is not None else ANONYMOUS

    @property
    def tenant(self) -> str:
        """Who shares turns and prefix cache with it."""
        return self.key.owner
