"""Compressed request bodies, expanded within a bound.

Promise: bytes in, bytes out. Expansion stops at the limit, whatever the body claims about its own size, so a small body
cannot become a large one in memory, and takes time in proportion to what goes in and comes out; a damaged or unknown
encoding is a failure that says what to send instead.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

import brotli  # type: ignore[import-untyped]
import zstandard

from turnwire.protocols.wire import TurnFailure

__all__ = ["ENCODINGS", "expand"]

_CHUNK = 64 * 1024
_MAX_LAYERS = 4
# The largest window a zstd frame may ask for; it is allocated before the first byte comes out.
_ZSTD_WINDOW = 128 * 1024 * 1024
_ZSTD_SLICE = 512
# What follows the end of one member is copied with it.
_ZLIB_SLICE = 4096
_MAX_MEMBERS = 1_000
"""Bodies in one that a compressed one may have; each takes some ten microseconds, and may hold nothing."""


def expand(body: bytes, encoding: str, limit: int) -> bytes:
    """The body that a `Content-Encoding` header describes. Several encodings are undone last first."""
    if not encoding:
        return body
    layers = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if len(layers) > _MAX_LAYERS:
        raise TurnFailure("invalid_request", f"content-encoding: at most {_MAX_LAYERS} encodings", code="bad_encoding")
    for name in reversed(layers):
        reader = _READERS.get(name)
        if reader is None:
            raise TurnFailure(
                "invalid_request",
                f"content-encoding: '{name}' is not known here; send {', '.join(ENCODINGS)} or no encoding",
                code="bad_encoding",
            )
        body = _bounded(reader(body), name, limit)
    return body


def _bounded(pieces: Iterator[bytes], name: str, limit: int) -> bytes:
    out: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise TurnFailure("too_large", f"The request body expands to more than {limit} bytes; send less.")
            out.append(piece)
    except (zlib.error, zstandard.ZstdError, brotli.error, EOFError):
        raise TurnFailure("invalid_request", f"The request body is not valid {name}.", code="bad_encoding") from None
    return b"".join(out)


def _too_many() -> TurnFailure:
    said = f"content-encoding: at most {_MAX_MEMBERS:,} compressed bodies in one; send one"
    return TurnFailure("invalid_request", said, code="bad_encoding")


def _zstd(body: bytes) -> Iterator[bytes]:
    # A streaming client's frame states no content size, so the whole-buffer call cannot be used; and only the
    # incremental object says whether the frame was whole. Small slices bound what one call can expand to.
    view = memoryview(body)
    at = 0
    for _ in range(_MAX_MEMBERS):
        unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        while not unpacker.eof:
            if at >= len(view):
                raise EOFError
            piece = view[at : at + _ZSTD_SLICE]
            at += len(piece)
            yield unpacker.decompress(piece)
        at -= len(unpacker.unused_data)
        if at >= len(view):
            return
    raise _too_many()


def _zlib(window: int) -> Callable[[bytes], Iterator[bytes]]:
    def read(body: bytes) -> Iterator[bytes]:
        view = memoryview(body)
        at = 0
        for _ in range(_MAX_MEMBERS):
            unpacker = zlib.decompressobj(window)
            pending: bytes | memoryview = b""
            while not unpacker.eof:
                if not pending:
                    pending = view[at : at + _ZLIB_SLICE]
                    at += len(pending)
                whole = at >= len(view)
                piece = unpacker.decompress(pending, _CHUNK)
                pending = unpacker.unconsumed_tail
                if whole and not piece and not pending and not unpacker.eof:
                    raise EOFError
                yield piece
            at -= len(unpacker.unused_data)
            if at >= len(view):
                return
        raise _too_many()

    return read


def _brotli(body: bytes) -> Iterator[bytes]:
    # What it has not used of its input it copies at each call, so it is given little at a time.
    unpacker = brotli.Decompressor()
    view = memoryview(body)
    at = 0
    while not unpacker.is_finished():
        given = view[at : at + _CHUNK] if unpacker.can_accept_more_data() else view[:0]
        at += len(given)
        piece = unpacker.process(bytes(given), output_buffer_limit=_CHUNK)
        if not given and not piece and not unpacker.is_finished():
            raise EOFError
        yield piece
    if at < len(view):
        raise EOFError


_READERS: Mapping[str, Callable[[bytes], Iterator[bytes]]] = {
    "zstd": _zstd,
    "gzip": _zlib(31),
    "x-gzip": _zlib(31),
    "deflate": _zlib(15),
    "br": _brotli,
}
ENCODINGS = ("zstd", "gzip", "deflate", "br")
