"""A stream of JSON lines, read a socket read at a time: bytes in, whole lines out, and those as one JSON array.

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

    @property
    def holds(self) -> bool:
        """Whether a line has begun that is not whole."""
        return bool(self._rest)

    def feed(self, data: bytes) -> bytes:
        """All lines that `data` completes; nothing if it completes none."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._rest += data
            if len(self._rest) > _LIMIT:
                raise EngineError("internal", f"the engine sent a line of more than {_LIMIT >> 20} MiB")
            return b""
        whole = bytes(self._rest) + data[:end]
        self._rest = bytearray(data[end:])
        return whole

    def finish(self) -> bytes:
        """A last line without its end."""
        data, self._rest = bytes(self._rest), bytearray()
        return data

    def array(self, lines: bytes) -> bytes | None:
        """Lines as one JSON array; None if they are blank."""
        kept = [line for line in lines.split(b"\n") if line.strip()]
        return b"[" + b",".join(kept) + b"]" if kept else None
