"""The bounds on what comes over a client's connection, and on how long one that is closed may linger.

Promise: a peer that takes nothing of what is still to be sent does not keep a connection that is being closed.
"""

from __future__ import annotations

import asyncio

import msgspec

__all__ = ["HttpBounds", "see_off"]


class HttpBounds(msgspec.Struct, frozen=True, kw_only=True):
    """`head_bytes` counts the request line and all headers, `headers` their number; `request_s` is the time from a
    request's first byte (or from connecting) to its last; a peer has to take something of what is to be sent within
    `stall_s`, and of what was still to be sent when it was closed within `linger_s`."""

    head_bytes: int
    headers: int
    request_s: float
    stall_s: float
    linger_s: float = 30.0


def see_off(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float, left: int = -1) -> None:
    """Closing waits for the peer to read; one that takes nothing for so long would keep its connection for ever."""
    if transport.get_extra_info("sslcontext") is not None:
        # It has a bound of its own, and counts only what is not encrypted yet.
        return
    size = transport.get_write_buffer_size()
    if size == left:
        transport.abort()
    elif size:
        loop.call_later(seconds, see_off, transport, loop, seconds, size)
