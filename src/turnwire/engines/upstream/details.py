"""`reasoning_details`: the thoughts of a turn as some servers want them back, piece by piece and unchanged.

Promise: what came is kept whole as the thought's opaque carrier, and goes back as it came. A carrier of another kind is
none of ours and is left alone.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from turnwire.unreadable import UNREADABLE

__all__ = ["Details", "carried", "readable"]

_MARK = "rd1."
_JOINED = ("text", "summary", "data")


class Details:
    """The pieces of one thought, gathered from a stream."""

    def __init__(self) -> None:
        self._pieces: list[dict[str, Any]] = []
        # What continues the texts of the last piece.
        self._more: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, pieces: list[dict[str, Any]]) -> None:
        """More of the stream; a piece with the index and type of the last one continues it."""
        for piece in pieces:
            last = self._pieces[-1] if self._pieces else {}
            if last and all(last.get(name) == piece.get(name) for name in ("type", "index")) and "index" in piece:
                for name, value in piece.items():
                    if name in _JOINED and isinstance(last.get(name), str) and isinstance(value, str):
                        self._more.setdefault(name, []).append(value)
                    elif value is not None:
                        self._more.pop(name, None)
                        last[name] = value
            else:
                self._join()
                self._pieces.append(dict(piece))

    def carrier(self) -> str:
        """All of it in one opaque word; the next thought starts empty."""
        self._join()
        pieces, self._pieces = self._pieces, []
        return _MARK + base64.urlsafe_b64encode(msgspec.json.encode(pieces)).decode()

    def _join(self) -> None:
        """Continue the last piece, once for all that came."""
        for name, more in self._more.items():
            self._pieces[-1][name] = "".join((self._pieces[-1][name], *more))
        self._more.clear()


def readable(pieces: list[dict[str, Any]]) -> str:
    """What of the pieces a person may read."""
    return "".join(str(piece.get("text") or piece.get("summary") or "") for piece in pieces)


def carried(seal: str | None) -> list[Any] | None:
    """The pieces in a carrier, or None where it is not one of these."""
    if seal is None or not seal.startswith(_MARK):
        return None
    try:
        pieces = msgspec.json.decode(base64.urlsafe_b64decode(seal[len(_MARK) :]))
    except (*UNREADABLE, ValueError):
        return None
    return pieces if isinstance(pieces, list) else None
