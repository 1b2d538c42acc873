"""Stored responses as bytes, and back.

Promise: what responses of one conversation have in common, the items that they were asked with and the instructions and
tools that they repeat, is compressed once as long as it is among the decoded parts. What a large response takes is done
beside the event loop; what is kept and read is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
import zstandard

from turnwire.gateway.stores.store import StoreError
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.responses import ResponseJson, StoredResponse

__all__ = ["ResponsePacking"]

_PACK = zstandard.ZstdCompressor(level=1)
"""Used by the event loop only: two threads may not share one."""

_LARGE = 1024 * 1024
"""From this many bytes on, compressing or expanding would hold the event loop for milliseconds."""

_RUN = 16
"""How many items are packed together."""

_REPEATED = 4096
"""From so many bytes on, a piece that a response repeats of its request is packed by itself."""

_MAX_ENTRY = 256 * 1024 * 1024

_Held: TypeAlias = bytes | tuple[dict[str, Any], ...]


class _Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a response that others have too: a run of items, or a piece of a document. The very objects are held
    here, so that no others can be taken for them. `cost` is what they and their text count for among decoded parts."""

    held: _Held
    packed: bytes
    cost: int


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A response in the store: its first items in packed runs, the rest of it packed, and the packed pieces that its
    document lacks, each with its place. Earlier versions kept no pieces, and those before them the rest alone."""

    runs: list[bytes]
    rest: bytes
    pieces: list[tuple[int, bytes]] = []


_STORED = msgspec.msgpack.Decoder(StoredResponse)
_KEPT = msgspec.msgpack.Decoder(_Kept)
_encode = msgspec.msgpack.Encoder().encode


class ResponsePacking:
    """Packs and unpacks; `parts` holds what was packed for others."""

    def __init__(self, parts: DecodedParts) -> None:
        self._parts = parts
        self._runs = parts.kind("responses.packed")
        self._pieces = parts.kind("responses.repeated")

    async def pack(self, response: StoredResponse, said: ResponseJson | None = None) -> bytes:
        """A response as it is kept; where its document comes as `said`, its own is not looked at. Items and repeated
        pieces that were packed for an earlier response, which are the very same objects, are not packed again."""
        items, parts = response.input_items, self._parts
        runs = [items[place : place + _RUN] for place in range(0, len(items) - _RUN + 1, _RUN)]
        document, cuts = (response.document, []) if said is None else _cut(said)
        rest = msgspec.structs.replace(response, document=document, input_items=items[len(runs) * _RUN :])
        shared: list[tuple[int, tuple[int, ...], _Held]] = [
            *[(self._runs, tuple(map(id, run)), run) for run in runs],
            *[(self._pieces, (id(piece),), piece) for _, piece in cuts],
        ]
        known: list[_Part] = [parts.find(kind, key) for kind, key, _ in shared]
        new = [place for place, part in enumerate(known) if part is None]
        raw = [*[_raw(shared[place][2]) for place in new], _encode(rest)]
        if sum(map(len, raw)) > _LARGE:
            fresh = await asyncio.to_thread(lambda: [_packed(data) for data in raw])
        else:
            fresh = list(map(_PACK.compress, raw))
        for place, data, frame in zip(new, raw, fresh, strict=False):
            kind, key, held = shared[place]
            # Decoded items take as much again as their text.
            known[place] = _Part(held, frame, (3 if kind == self._runs else 2) * len(data))
            parts.put(kind, key, known[place])
        frames = [part.packed for part in known]
        _size([*frames, fresh[-1]])
        pieces = [(place, frame) for (place, _), frame in zip(cuts, frames[len(runs) :], strict=True)]
        return _encode(_Kept(frames[: len(runs)], fresh[-1], pieces))

    async def unpack(self, data: bytes) -> StoredResponse:
        """The response that was packed."""
        kept = _KEPT.decode(data) if data[:4] != zstandard.FRAME_HEADER else _Kept([], data)
        frames = [*kept.runs, *[frame for _, frame in kept.pieces], kept.rest]
        if _size(frames) > _LARGE:
            *parts, rest = await asyncio.to_thread(lambda: [_expanded(frame) for frame in frames])
        else:
            *parts, rest = map(_expanded, frames)
        response = _STORED.decode(rest)
        runs, pieces = parts[: len(kept.runs)], parts[len(kept.runs) :]
        items = [item for run in runs for item in msgspec.msgpack.decode(run)]
        places = [place for place, _ in kept.pieces]
        document = _joined(response.document, zip(places, pieces, strict=True))
        return msgspec.structs.replace(response, document=document, input_items=(*items, *response.input_items))


def _size(frames: Sequence[bytes]) -> int:
    """How many bytes the frames become; StoreError where that is too much, or they do not say it."""
    sizes = list(map(zstandard.frame_content_size, frames))
    if min(sizes) < 0 or sum(sizes) > _MAX_ENTRY:
        raise StoreError(f"A response takes more than {_MAX_ENTRY:,} bytes, or does not say how many.")
    return sum(sizes)


def _cut(said: ResponseJson) -> tuple[bytes, list[tuple[int, bytes]]]:
    """A document without its large repeated pieces, and those with the places that they have in it."""
    own, size = [said.before], len(said.before)
    cuts: list[tuple[int, bytes]] = []
    for piece in said.repeated:
        if len(piece) >= _REPEATED:
            cuts.append((size, piece))
        else:
            own.append(piece)
            size += len(piece)
    return b"".join((*own, said.after)), cuts


def _joined(document: bytes, cuts: Iterable[tuple[int, bytes]]) -> bytes:
    """The document that `_cut` took apart."""
    pieces: list[bytes] = []
    at = 0
    for place, piece in cuts:
        pieces += (document[at:place], piece)
        at = place
    return b"".join((*pieces, document[at:]))


def _raw(held: _Held) -> bytes:
    return held if isinstance(held, bytes) else _encode(held)


def _packed(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(raw)


def _expanded(packed: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(packed)
