"""Reads captures: lines of JSON, compressed or not.

Promise: a file that was being written when its process died is read up to its last whole line; one that was damaged
since, or is none, is an error that says so. No line is longer than its bound. A secret that the redaction would have
replaced is an error that names the turn, not a line that is passed on.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

from turnwire.capture.format import CapturedTurn, CaptureError, CaptureHead, decode_line
from turnwire.capture.redaction import secrets_in

__all__ = ["Capture", "read_capture", "read_lines"]

_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"
_LONGEST = 1 << 28


def _opened(stream: IO[bytes]) -> io.BufferedIOBase:
    """The stream, expanded where it is compressed."""
    begin = stream.read(4)
    rest = _Joined(begin, stream)
    if begin.startswith(_ZSTD):
        try:
            import zstandard
        except ImportError:
            raise CaptureError(
                "Compressed captures need the `zstandard` library: pip install 'turnwire[server]'"
            ) from None
        return io.BufferedReader(_Expanded(rest, zstandard.ZstdDecompressor(max_window_size=1 << 27)))
    plain = io.BufferedReader(rest)
    return gzip.GzipFile(fileobj=plain) if begin.startswith(_GZIP) else plain


class _Joined(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, begin: bytes, rest: IO[bytes]) -> None:
        self._begin = begin
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._begin[: len(buffer)] if self._begin else self._rest.read(len(buffer))
        self._begin = self._begin[len(data) :]
        buffer[: len(data)] = data
        return len(data)


class _Expanded(io.RawIOBase):
    """Zstandard frames, expanded up to the last whole block: a file that is still written to has no end yet."""

    # What so little can expand to (32 MiB) is bounded.
    _STEP = 1024

    def __init__(self, source: io.RawIOBase, decompressor: Any) -> None:
        self._source = source
        self._decompressor = decompressor
        self._frame = decompressor.decompressobj()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            data = self._source.read(self._STEP)
            if not data:
                return 0
            expanded = self._expand(data)
            while self._frame.eof and (rest := self._frame.unused_data):
                self._frame = self._decompressor.decompressobj()
                expanded += self._expand(rest)
            self._ready = memoryview(expanded)
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _expand(self, data: bytes) -> bytes:
        import zstandard

        try:
            expanded: bytes = self._frame.decompress(data)
        except zstandard.ZstdError as error:
            raise _Damaged(str(error)) from None
        return expanded


def read_lines(stream: IO[bytes], *, check: bool = True) -> Iterator[CaptureHead | CapturedTurn]:
    """Every line of a capture. With `check`, a secret in it is a CaptureError."""
    first = True
    for data in _whole_lines(stream):
        line = decode_line(data)
        if first and not isinstance(line, CaptureHead):
            raise CaptureError("This is not a capture: its first line is not a head.")
        first = False
        if check and isinstance(line, CapturedTurn) and (kinds := secrets_in(line)):
            raise CaptureError(
                f"Turn {line.turn_id} holds what looks like a secret ({', '.join(kinds)}). It was captured without "
                "redaction or changed since; nothing of it is used."
            )
        yield line
    if first:
        raise CaptureError("This is not a capture: it does not have one whole line.")


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file up to the last that has an end, or CaptureError."""
    lines, count = _opened(stream), 0
    while True:
        try:
            data = lines.readline(_LONGEST)
        except EOFError:
            return  # gzip, cut short
        except (OSError, zlib.error, _Damaged) as error:
            raise CaptureError(f"The file is damaged after {count} lines: {error}.") from None
        if len(data) >= _LONGEST:
            raise CaptureError(f"Line {count + 1} has more than {_LONGEST >> 20} MiB, which no turn has.")
        if not data.endswith(b"\n"):
            return
        count += 1
        yield data


class _Damaged(Exception):
    """A compressed file that does not expand."""


class Capture:
    """A whole capture in memory: its heads and its turns, oldest first."""

    def __init__(self, heads: list[CaptureHead], turns: list[CapturedTurn]) -> None:
        self.head = heads[0]
        self.turns = sorted(turns, key=lambda turn: turn.at)
        self.models = {model.id: model for head in heads for model in head.models}
        self._spelled: dict[str, dict[int, str]] = {}
        for turn in turns:
            self._spelled.setdefault(turn.model, {}).update(turn.spelled)

    def spell(self, model: str, ids: Sequence[int]) -> list[str]:
        """The text of each id; `▮` for one that was masked."""
        words = self._spelled.get(model, {})
        return [words.get(token, "\N{BLACK VERTICAL RECTANGLE}") for token in ids]

    def turn(self, turn_id: str) -> CapturedTurn:
        """The turn of an id (or of the answer's request-id), or CaptureError."""
        wanted = turn_id.removeprefix("req_")
        for turn in self.turns:
            if turn.turn_id == wanted:
                return turn
        raise CaptureError(f"There is no turn {wanted} in this capture; it holds {len(self.turns)} others.")


def read_capture(*streams: IO[bytes]) -> Capture:
    """All of one capture, which may be in several files."""
    heads: list[CaptureHead] = []
    turns: list[CapturedTurn] = []
    for stream in streams:
        for line in read_lines(stream):
            if isinstance(line, CaptureHead):
                heads.append(line)
            else:
                turns.append(line)
    return Capture(heads, turns)
