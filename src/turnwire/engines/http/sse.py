"""Server-sent events of an engine, read a socket read at a time: bytes in, whole events out, and their payloads as one
JSON array.

Promise: work is linear in the bytes and done by a handful of calls per read, however many events it holds; an event cut
anywhere (also between \\r and \\n) is the same event; memory is bounded by the largest event allowed.
"""

from __future__ import annotations

from codecs import BOM_UTF8

from turnwire.engines.interface import EngineError

__all__ = ["EventReader"]

_LIMIT = 16 * 1024 * 1024
_DONE = b"[DONE]"


class EventReader:
    """Collects events. `done` is true once the stream said `[DONE]`."""

    __slots__ = ("_rest", "_seen", "done")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._seen = 0
        self.done = False

    @property
    def holds(self) -> bool:
        """Whether an event has begun that is not whole."""
        return bool(self._rest)

    def feed(self, data: bytes) -> bytes:
        """All events that `data` completes, without carriage returns; nothing if it completes none."""
        if b"\r" in data:
            # JSON escapes control characters, so a bare carriage return can only belong to a line end.
            data = data.replace(b"\r", b"")
        rest, end = self._rest, data.rfind(b"\n\n") + 2
        if end < 2:
            return self._hold(data)
        if not rest and end == len(data):
            return data
        whole = b"".join((rest, memoryview(data)[:end]))
        rest[:] = data[end:]
        self._seen = len(rest)
        return whole

    def finish(self) -> bytes:
        """What a stream that ended without its last blank line still held."""
        data, self._rest = bytes(self._rest), bytearray()
        return data

    def array(self, events: bytes) -> bytes | None:
        """The payloads of events as one JSON array; None if none has one. Payloads are not looked into: whoever decodes
        the array finds out whether they are JSON."""
        data = events.rstrip(b"\n")
        if data.endswith(b"data: [DONE]"):
            self.done = True
            data = data[:-12].rstrip(b"\n")
        if data.startswith(b"data: "):
            array = data[6:].replace(b"\n\ndata: ", b",")
            # An event without a payload, as some servers send for a sign of life, is no value of an array.
            if b"\n" not in array and b"data: \n" not in events:
                return b"[" + array + b"]"
        return self._slowly(data)

    def _hold(self, data: bytes) -> bytes:
        """Keep what ends no event by itself; it may still end the one that it goes on with."""
        rest = self._rest
        rest += data
        end = rest.rfind(b"\n\n", max(self._seen - 1, 0)) + 2
        whole = bytes(rest[:end]) if end >= 2 else b""
        del rest[: len(whole)]
        self._seen = len(rest)
        if self._seen > _LIMIT:
            raise EngineError("internal", f"the engine sent an event of more than {_LIMIT >> 20} MiB")
        return whole

    def _slowly(self, data: bytes) -> bytes | None:
        """Events with comments, names, several data lines, a byte order mark or other spacing."""
        payloads = []
        for event in data.removeprefix(BOM_UTF8).split(b"\n\n"):
            lines = []
            for line in event.split(b"\n"):
                name, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if name == b"data":
                    lines.append(value)
                elif name == b"error":
                    # llama.cpp names the failure of a stream by a field of its own.
                    lines.append(b'{"error":' + value + b"}")
            payload = b"\n".join(lines)
            if payload == _DONE:
                self.done = True
            elif payload:
                payloads.append(payload)
        return b"[" + b",".join(payloads) + b"]" if payloads else None
