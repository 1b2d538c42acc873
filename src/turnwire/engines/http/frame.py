"""What the events of one completions stream have in common: every byte before and after the one choice of each.

Promise: sans-IO. A frame is learnt only where nothing in it could matter; events are taken apart by it only where each
of them has it to the byte, and their choices are then given exactly as they came.
"""

from __future__ import annotations

import re
from io import BytesIO
from operator import itemgetter

from turnwire.engines.http.answer import CHUNK_SIZES

__all__ = ["Frame", "frame_of"]

_NAMED = rb'"(?:id|object|model|system_fingerprint)":"[^"\\]*",'
_OPENING = re.compile(rb'data: \{(?:%b|"created":[0-9]+,)*"choices":\[\{' % _NAMED).match
_CLOSING = re.compile(rb'\}\](?:,"[a-z_]+":null)*\}\n\n\Z').search

_LONGEST = 512
"""How far before its end the closing of an event is looked for."""


class Frame:
    """`opening` are the bytes of an event up to its choice, `closing` those after it, with the brace that the choice
    begins and ends with; `choice` is where in a lone event it lies."""

    __slots__ = ("_between", "_chunk_closing", "_cut", "choice", "closing", "opening")

    def __init__(self, opening: bytes, closing: bytes) -> None:
        self.opening = opening
        self.closing = closing
        self.choice = slice(len(opening) - 1, 1 - len(closing))
        self._between = closing + opening
        self._chunk_closing = closing + b"\r\n"
        self._cut = itemgetter(slice(len(opening) - 1, 2 - len(closing)))

    def chunk(self, data: bytes) -> bytes | None:
        """The choice of the one event that is all of a whole chunk; None where it is anything else."""
        at = data.find(b"\r\n", 0, 8) + 2
        opening = self.opening
        if (
            len(data) != at + 2 + CHUNK_SIZES.get(data[: at - 2], -1)
            or not data.startswith(opening, at)
            or not data.endswith(self._chunk_closing)
            or data.find(b"\n", at) != len(data) - 4
        ):
            return None
        return data[at + len(opening) - 1 : -1 - len(self.closing)]

    def choices(self, events: bytes) -> tuple[bytes, int] | None:
        """The choices of events of which the first begins and the last ends with this frame, one on each line, and how
        many events these are; None where not all of them have it."""
        lines = BytesIO(events).readlines()
        count = events.count(self._between) + 1
        if len(lines) != 2 * count:
            return None
        return b"\n".join(map(self._cut, lines[::2])), count


def frame_of(events: bytes) -> Frame | None:
    """The frame of a stream that begins with these events, as the first of them begins and the last one ends."""
    opening, closing = _OPENING(events), _CLOSING(events, max(len(events) - _LONGEST, 0))
    return None if opening is None or closing is None else Frame(opening[0], closing[0])
