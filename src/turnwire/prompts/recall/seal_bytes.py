"""What a seal holds: one segment of a turn's output, in a compact byte form.

Promise: `unpack(pack(segment)) == segment`. Unpacking never allocates beyond its bounds and raises only PayloadError.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array

import msgspec

__all__ = ["MOST_IDS", "PayloadError", "Segment", "pack", "unpack"]

MOST_IDS = 1_000_000
"""Ids in one segment; a turn that is longer is not sealed."""

_FIXED = struct.Struct(">BBHHII")  # flags, lengths of turn id, shape and tail, start, count
_LAST, _COMPRESSED, _HAS_TAIL = 1, 2, 4
_WIDTH_SHIFT = 4


class PayloadError(ValueError):
    """Bytes that are not a segment."""


class Segment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Output tokens `[start, start + len(ids))` of a turn. Segments are numbered from 0; the one that is `last` ends
    the turn. `shape` is how the turn looked to the client by then (see `recall_shape`), empty if unknown. `tail` is
    the end of the prompt that the turn was written after; the first segment carries it."""

    turn: str
    number: int
    start: int
    last: bool
    ids: array[int]
    shape: bytes = b""
    tail: str | None = None


def pack(segment: Segment) -> bytes:
    """The segment's bytes, without its number: that stands in the seal's open part."""
    ids = segment.ids
    width = 2 if not ids or max(ids) < 1 << 16 else 3 if max(ids) < 1 << 24 else 4
    plain = _narrowed(ids, width)
    packed = _compressed(plain)
    flags = (_LAST if segment.last else 0) | width << _WIDTH_SHIFT
    if len(packed) < len(plain):
        flags |= _COMPRESSED
        plain = packed
    if segment.tail is not None:
        flags |= _HAS_TAIL
    turn, tail = segment.turn.encode(), (segment.tail or "").encode("utf-8", "surrogatepass")
    if len(turn) > 255 or len(tail) > 0xFFFF:
        raise ValueError("a turn id has at most 255 bytes and a tail 65535")
    head = _FIXED.pack(flags, len(turn), len(segment.shape), len(tail), segment.start, len(ids))
    return b"".join((head, turn, segment.shape, tail, plain))


def unpack(payload: bytes, number: int) -> Segment:
    """The segment in `payload`."""
    try:
        flags, turn_size, shape_size, tail_size, start, count = _FIXED.unpack_from(payload)
    except struct.error:
        raise PayloadError("too short") from None
    if count > MOST_IDS:
        raise PayloadError("too many ids")
    turn_end = _FIXED.size + turn_size
    shape_end = turn_end + shape_size
    tail_end = shape_end + tail_size
    width = flags >> _WIDTH_SHIFT
    if width not in (2, 3, 4) or tail_end > len(payload):
        raise PayloadError("malformed")
    plain = payload[tail_end:]
    if flags & _COMPRESSED:
        stream = zlib.decompressobj()
        try:
            plain = stream.decompress(plain, count * width + 1)
        except zlib.error:
            raise PayloadError("malformed") from None
    if len(plain) != count * width:
        raise PayloadError("malformed")
    try:
        turn = payload[_FIXED.size : turn_end].decode()
        tail = payload[shape_end:tail_end].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise PayloadError("malformed") from None
    return Segment(
        turn=turn,
        number=number,
        start=start,
        last=bool(flags & _LAST),
        ids=_widened(plain, width),
        shape=payload[turn_end:shape_end],
        tail=tail if flags & _HAS_TAIL else None,
    )


def _compressed(plain: bytes) -> bytes:
    # To clear the tables of a whole window takes longer than to compress what fits into a small one.
    stream = zlib.compressobj(6, zlib.DEFLATED, *((12, 5) if len(plain) <= 1 << 12 else (15, 8)))
    return stream.compress(plain) + stream.flush()


def _narrowed(ids: array[int], width: int) -> bytes:
    """The ids as little-endian numbers of `width` bytes."""
    wide = _little(ids).tobytes()
    if width == 4:
        return wide
    narrow = bytearray(len(ids) * width)
    for place in range(width):
        narrow[place::width] = wide[place::4]
    return bytes(narrow)


def _widened(narrow: bytes, width: int) -> array[int]:
    wide = bytearray(len(narrow) // width * 4)
    for place in range(width):
        wide[place::4] = narrow[place::width]
    found: array[int] = array("I")
    found.frombytes(wide)
    return _little(found)


def _little(ids: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return ids
    swapped = array("I", ids)
    swapped.byteswap()
    return swapped
