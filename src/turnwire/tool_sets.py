"""What is known of a set of tools: an agent sends the same ones with every request.

Promise: `tool_set` gives equal answers for equal tools; for the very objects that it was asked about before it does no
work. What is kept is bounded, and may be shared by threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

import msgspec

from turnwire.turns import Tool

__all__ = ["ToolSet", "tool_set"]

_encode = msgspec.msgpack.Encoder().encode
_MOST_BYTES = 16 * 1024 * 1024
_MOST_DIGESTS = 64


class ToolSet:
    """Tools, and `packed`: all of them as msgpack."""

    __slots__ = ("__weakref__", "_digests", "packed", "tools")

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools)
        self.packed = _encode(self.tools)
        self._digests: dict[tuple[bytes, ...], bytes] = {}

    def digest(self, *more: bytes) -> bytes:
        """One digest of the tools and of `more`."""
        found = self._digests.get(more)
        if found is None:
            hashed = blake2b(digest_size=16)
            for part in (self.packed, *more):
                hashed.update(len(part).to_bytes(4, "little"))
                hashed.update(part)
            if len(self._digests) >= _MOST_DIGESTS:
                self._digests.clear()
            found = self._digests[more] = hashed.digest()
        return found

    @property
    def size(self) -> int:
        """Roughly its bytes with those of its tools, which are kept as long as it is."""
        return 5 * len(self.packed) + 512 * len(self.tools) + 64 * _MOST_DIGESTS


class _Sets:
    """The sets used last, by the identities of their tools: those that are kept here are nobody else's."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._held: OrderedDict[tuple[int, ...], ToolSet] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def of(self, tools: Sequence[Tool]) -> ToolSet:
        key = tuple(map(id, tools))
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                return found
        made = ToolSet(tools)
        if made.size <= self._max // 4:
            with self._lock:
                if key not in self._held:
                    self._held[key] = made
                    self._bytes += made.size
                while self._bytes > self._max:
                    self._bytes -= self._held.popitem(last=False)[1].size
        return made

    def __len__(self) -> int:
        return len(self._held)


# One for the process: what is asked about a set here is asked there too.
_SETS = _Sets(_MOST_BYTES)
tool_set = _SETS.of
