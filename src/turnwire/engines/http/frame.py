"""What the events of one completions stream have in common: every byte before and after the one choice of each.

Promise: sans-IO. A frame is learnt only where nothing in it could matter; events are taken apart by it only where each
of them has it to the byte, and their choices are then given exactly as they came.
"""

from __future__ import annotations

import re
from io import BytesIO
from operator import itemgetter

__all__ = ["Frame", "frame_of"]

_NAMED = rb'"(?:id|object|model|system_fingerprint)":"[^"\\]*",'
_OPENING = re.compile(rb'data: \{(?:%b|"created":[0-9]+,)*"choices":\[\{' % _NAMED).match
_CLOSING = re.compile(rb'\}\](?:,"[a-z_]+":null)*\}\n\n\Z').search

_LONGEST = 512
"""How far before its end the closing of an event is looked for."""


class Frame:
    """`opening` are the bytes of an event up to its choice, `closing` those after it, with the brace that the choice
    begins and ends with; `choice` is where in a lone event it lies, `chunk_closing` how a chunk with one event ends."""

    __slots__ = ("_between", "_cut", "choice", "chunk_closing", "closing", "opening")

    def __init__(self, opening: bytes, closing: bytes) -> None:
        self.opening = opening
        self.closing = closing
        self.choice = slice(len(opening) - 1, 1 - len(closing))
        self.chunk_closing = closing + b"\r\n"
        self._between = closing + opening
        self._cut = itemgetter(slice(len(opening) - 1, 2 - len(closing)))

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
