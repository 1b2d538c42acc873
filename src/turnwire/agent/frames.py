"""Server-sent events from any server: bytes in, named JSON payloads out.

Promise: sans-IO. An event cut anywhere is the same event; memory is bounded by the largest event allowed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.unreadable import UNREADABLE

__all__ = ["FrameError", "FrameReader"]

_LIMIT = 16 * 1024 * 1024
_decode = msgspec.json.Decoder().decode


class FrameError(ValueError):
    """A stream that is not a stream of JSON events."""


class FrameReader:
    """Collects events. `done` is true once the stream said `[DONE]`."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []
        self.done = False

    def feed(self, data: bytes) -> list[tuple[str, Any]]:
        """Every event that `data` completed: its name (empty where it has none) and its decoded payload."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LIMIT:
            raise FrameError(f"the server sent a line of more than {_LIMIT >> 20} MiB")
        found: list[tuple[str, Any]] = []
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line:
                self._field(line)
            elif self._data:
                payload, name = b"\n".join(self._data), self._name
                self._data, self._name = [], ""
                if payload == b"[DONE]":
                    self.done = True
                else:
                    found.append((name, _value(payload)))
            else:
                self._name = ""
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")


def _value(payload: bytes) -> Any:
    try:
        return _decode(payload)
    except UNREADABLE as error:
        raise FrameError(f"the server sent an event that is not JSON: {error}") from None
