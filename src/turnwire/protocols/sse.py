"""Server-sent events that no client's line splitter can break.

Promise: a frame is one `event:` line (where the API has names) and one `data:` line. Characters at which some clients
split lines although the format does not (U+0085, U+2028, U+2029) are always escaped inside the JSON.
"""

from __future__ import annotations

import msgspec

__all__ = ["frame", "one_line", "quoted"]

_encode = msgspec.json.Encoder().encode


def quoted(text: str) -> bytes:
    """A text as a JSON string, quotes included. The common case costs one encode and one flag test."""
    data = _encode(text)
    return data if text.isascii() else one_line(data)


def frame(name: str, value: object) -> bytes:
    """A named event with a JSON value."""
    return b"event: " + name.encode() + b"\ndata: " + one_line(_encode(value)) + b"\n\n"


def one_line(data: bytes) -> bytes:
    """JSON with those characters escaped."""
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return data.replace(b"\xc2\x85", b"\\u0085") if b"\xc2\x85" in data else data
