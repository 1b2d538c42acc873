"""How a stream's JSON events become bytes: server-sent events over HTTP, or one JSON text per line for a WebSocket.

Promise: a frame is never broken by a client's line splitter. Characters at which some clients split lines although the
format does not (U+0085, U+2028, U+2029) are always escaped inside the JSON, so a line holds exactly one JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

__all__ = ["LINES", "SSE", "Framing", "json_line", "one_line", "quoted", "typed"]

_encode = msgspec.json.Encoder().encode


class Framing(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The bytes around each JSON text of a stream. `data` comes before it, after a line with the event's name where
    `names` is true; `end` comes after it. `keepalive` and `done` are the frames without JSON that some APIs send; they
    are empty where the framing has no place for them."""

    data: bytes
    end: bytes
    names: bool
    keepalive: bytes
    done: bytes

    def head(self, name: str) -> bytes:
        """What comes before the JSON text of an event of this name, which is one of the API's own."""
        return _head(self, name)

    def event(self, name: str, value: object) -> bytes:
        """A named event with a JSON value."""
        return _head(self, name) + one_line(_encode(value)) + self.end

    def annotations(self, values: Mapping[str, object]) -> bytes:
        """Events that have a comment instead of data, as NVIDIA Dynamo annotates a stream: clients that do not look for
        them never see them. Nothing where events have no names."""
        if not values or not self.names:
            return b""
        return b"".join(b"event: %b\n: %b\n\n" % (name.encode(), json_line(value)) for name, value in values.items())

    def unnamed(self, value: object) -> bytes:
        """An event without a name."""
        return self.data + one_line(_encode(value)) + self.end


SSE = Framing(data=b"data: ", end=b"\n\n", names=True, keepalive=b": keep-alive\n\n", done=b"data: [DONE]\n\n")
LINES = Framing(data=b"", end=b"\n", names=False, keepalive=b"", done=b"")
"""One JSON text per line. A WebSocket sends each line as one text frame."""


@cache
def _head(framing: Framing, name: str) -> bytes:
    return b"event: %b\n%b" % (name.encode(), framing.data) if framing.names else framing.data


@cache
def typed(framing: Framing, name: str) -> bytes:
    """The beginning of an event whose JSON object says the event's name as its type: the next member follows. The name
    is one of the API's own."""
    return _head(framing, name) + b'{"type":"%b",' % name.encode()


def quoted(text: str) -> bytes:
    """A text as a JSON string, quotes included. The common case costs one encode and one flag test."""
    data = _encode(text)
    return data if text.isascii() else one_line(data)


def json_line(value: object) -> bytes:
    """Any value as JSON on one line."""
    return one_line(_encode(value))


def one_line(data: bytes) -> bytes:
    """JSON with the characters escaped at which some clients split lines."""
    if data.isascii():
        return data
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return data.replace(b"\xc2\x85", b"\\u0085") if b"\xc2\x85" in data else data
