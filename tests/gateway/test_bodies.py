"""Compressed bodies: every encoding comes back whole, a bomb stops at the limit, damage is named."""

from __future__ import annotations

import gzip
import random
import zlib

import brotli
import pytest
import zstandard

from turnwire.gateway.door.bodies import expand
from turnwire.protocols.wire import TurnFailure

PLAIN = b'{"input":"' + b"hello, \xe2\x82\xac " * 20_000 + b'"}'


def zstd_stream(data: bytes) -> bytes:
    """As Codex sends it: level 3, one frame, no content size, no checksum."""
    packer = zstandard.ZstdCompressor(level=3, write_content_size=False, write_checksum=False).compressobj()
    return packer.compress(data) + packer.flush()


PACKED = {
    "zstd": zstd_stream(PLAIN),
    "gzip": gzip.compress(PLAIN),
    "deflate": zlib.compress(PLAIN),
    "br": brotli.compress(PLAIN),
}


@pytest.mark.parametrize("name", PACKED)
def test_each_encoding_comes_back_whole(name: str) -> None:
    assert expand(PACKED[name], name, len(PLAIN)) == PLAIN
    assert expand(PACKED[name], name.upper(), len(PLAIN)) == PLAIN


def test_a_zstd_frame_without_content_size_is_what_is_tested() -> None:
    assert zstandard.get_frame_parameters(PACKED["zstd"]).content_size in (0, zstandard.CONTENTSIZE_UNKNOWN)
    with pytest.raises(zstandard.ZstdError):
        zstandard.ZstdDecompressor().decompress(PACKED["zstd"])


@pytest.mark.parametrize("name", PACKED)
def test_one_byte_over_the_limit_is_too_large(name: str) -> None:
    with pytest.raises(TurnFailure) as caught:
        expand(PACKED[name], name, len(PLAIN) - 1)
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("keep", [0, 1, 10, 0.5, -1])
def test_a_cut_body_is_named_as_damaged(name: str, keep: float) -> None:
    body = PACKED[name]
    cut = body[: int(len(body) * keep)] if isinstance(keep, float) else body[:keep]
    with pytest.raises(TurnFailure) as caught:
        expand(cut, name, 10_000_000)
    assert caught.value.kind == "invalid_request"
    assert name in caught.value.message


@pytest.mark.parametrize("name", ["zstd", "gzip"])
def test_several_frames_are_one_body(name: str) -> None:
    assert expand(PACKED[name] * 3, name, 10_000_000) == PLAIN * 3


@pytest.mark.parametrize("name", ["zstd", "gzip", "deflate"])
def test_so_many_frames_are_one_body(name: str) -> None:
    # What is empty takes time all the same.
    empty = {"zstd": zstandard.compress(b""), "gzip": gzip.compress(b""), "deflate": zlib.compress(b"")}[name]
    assert expand(empty * 999 + PACKED[name], name, len(PLAIN)) == PLAIN
    with pytest.raises(TurnFailure) as caught:
        expand(empty * 1_000 + PACKED[name], name, len(PLAIN))
    assert caught.value.kind == "invalid_request"
    assert "at most 1,000" in caught.value.message


@pytest.mark.parametrize("name", ["zstd", "gzip", "deflate", "br"])
def test_what_does_not_get_smaller_comes_back_whole_too(name: str) -> None:
    noise = random.Random(name).randbytes(300_000)
    packed = {"zstd": zstd_stream, "gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress}[name](noise)
    assert expand(packed, name, len(noise)) == noise
    with pytest.raises(TurnFailure):
        expand(packed[:-10], name, len(noise))
    if name == "br":
        # One body is all that its format has.
        with pytest.raises(TurnFailure):
            expand(packed + packed, name, 10_000_000)
        return
    assert expand(packed + PACKED[name] + packed, name, 10_000_000) == noise + PLAIN + noise


def test_layers_are_undone_last_first() -> None:
    assert expand(gzip.compress(PACKED["zstd"]), "zstd, gzip", 10_000_000) == PLAIN
    assert expand(PLAIN, "identity", 10_000_000) == PLAIN
    assert expand(PLAIN, "", 10_000_000) == PLAIN


def test_a_bomb_stops_at_the_limit() -> None:
    bomb = zstd_stream(bytes(200_000_000))
    assert len(bomb) < 50_000
    with pytest.raises(TurnFailure) as caught:
        expand(bomb, "zstd", 1_000_000)
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize("encoding", ["lzma", "gzip, gzip, gzip, gzip, gzip"])
def test_what_is_not_known_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(TurnFailure) as caught:
        expand(b"x", encoding, 1000)
    assert caught.value.kind == "invalid_request"
    assert "content-encoding" in caught.value.message
