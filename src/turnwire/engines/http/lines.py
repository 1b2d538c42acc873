"""A stream of JSON lines, read a socket read at a time: bytes in, one JSON array of the lines out.

Promise: as for server-sent events: linear in the bytes, a line cut anywhere is the same line, memory is bounded by the
longest line allowed.
"""

from __future__ import annotations

from turnwire.engines.interface import EngineError

__all__ = ["LineReader"]

_LIMIT = 16 * 1024 * 1024


class LineReader:
    """Collects lines. Such a stream has no end mark of its own, so `done` stays false."""

    __slots__ = ("_rest", "done")

    def __init__(self) -> None:
        self._rest = bytearray()
        self.done = False

    def feed(self, data: bytes) -> bytes | None:
        """All lines that `data` completed, as one JSON array; None if it completed none."""
        end = data.rfind(b"\n")
        if end < 0:
            self._rest += data
            if len(self._rest) > _LIMIT:
                raise EngineError("internal", f"the engine sent a line of more than {_LIMIT >> 20} MiB")
            return None
        whole = bytes(self._rest) + data[:end]
        self._rest = bytearray(data[end + 1 :])
        return _array(whole)

    def finish(self) -> bytes | None:
        """A last line without its end."""
        data, self._rest = bytes(self._rest), bytearray()
        return _array(data)


def _array(data: bytes) -> bytes | None:
    lines = [line for line in data.split(b"\n") if line.strip()]
    return b"[" + b",".join(lines) + b"]" if lines else None
