"""An HTTP/1.1 answer, read as its bytes come: status, headers, and the body without its framing.

Promise: sans-IO and linear in the bytes; what is held back is bounded by the largest head or chunk line allowed; body
bytes are given as soon as they are there, also of an incomplete chunk; every malformed form raises MalformedAnswer at
the byte that makes it one, never waits for more.
"""

from __future__ import annotations

import re
from enum import Enum
from io import BytesIO

__all__ = ["CHUNK_SIZES", "Answer", "MalformedAnswer"]

_HEAD_LIMIT = 32 * 1024
_LINE_LIMIT = 4 * 1024
_INTERIM_LIMIT = 8
"""Answers like `103 Early Hints` that may come before the one that counts."""

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n\0]*)?")
_HEADER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\r\n\0]*)")
# Nearly every answer's head: it is there completely, and is no interim one. Its header lines are read at once.
_WHOLE_HEAD = re.compile(
    rb"HTTP/1\.([01]) ([2-5][0-9]{2})(?: [^\r\n\0]*)?\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n)*+)\r\n"
).match
_HEADERS = re.compile(r"([^:]+):([^\r]*)\r\n").findall
_CHUNK_LINE = re.compile(rb"([0-9a-fA-F]{1,12})(?:[ \t]*;[^\r\n]*)?\r\n").match
_CHUNK_LINE_BEGUN = re.compile(rb"(?:[0-9a-fA-F]{1,12}(?:[ \t]*(?:;[^\r\n]*)?\r?)?)?\Z").match
_STATUS_BEGUN = b"HTTP/1."

# Looking a chunk's size up costs a third of reading it; other spellings and larger ones are read.
CHUNK_SIZES = {b"%x" % size: size for size in range(1, 2048)}
# The same for a chunk that is a line and an empty line: how long the first of them is, by the line of the chunk's size.
_EVENT_SIZES = {b"%x\r\n" % size: size - 1 for size in range(2, 2048)}

_LAST_CHUNK = b"0\r\n\r\n"


class MalformedAnswer(Exception):
    """Bytes that are not an HTTP/1.1 answer; the message says what is wrong. `before` are the body bytes of the same
    read that came before."""

    before = b""


class State(Enum):
    """Where in the answer the next byte belongs."""

    HEAD = "head"
    SIZED = "body of a known length"
    UNTIL_CLOSE = "body that ends with the connection"
    CHUNK_LINE = "size of the next chunk"
    CHUNK = "inside a chunk"
    CHUNK_END = "line end after a chunk"
    TRAILER = "after the last chunk"
    OVER = "answer complete"


_AT_CHUNK = State.CHUNK_LINE


class Answer:
    """One answer. `status` is 0 until the head is complete; `over` is true once the last byte is read; `reusable` says
    whether the connection may then carry another request."""

    __slots__ = (
        "_held",
        "_interim",
        "_left",
        "_seen",
        "_size",
        "_state",
        "_status",
        "headers",
        "over",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self._state = State.HEAD
        self._held = b""
        self._seen = 0
        self._size = 0
        self._left = 0
        self._interim = 0
        self._status = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.reusable = False
        self.over = False

    @property
    def begun(self) -> bool:
        """Whether any byte has come."""
        return bool(self._held or self._size)

    @property
    def at_chunk(self) -> bool:
        """Whether the next byte begins a chunk."""
        return self._state is _AT_CHUNK and not self._held

    def feed(self, data: bytes) -> bytes:
        """The body bytes that `data` brings."""
        if self._state is _AT_CHUNK and not self._held:
            # By far the most frequent case: an engine's step is one chunk, and one read.
            at = data.find(b"\r\n", 0, 8)
            if len(data) == at + 4 + CHUNK_SIZES.get(data[:at], -1) and data.endswith(b"\r\n"):
                return data[at + 2 : -2]
        if self._state is State.HEAD:
            return self._head(data)
        return self._body(data)

    def close(self) -> None:
        """The connection was closed in order. MalformedAnswer if the answer was not complete by then."""
        if self._state is State.UNTIL_CLOSE:
            self._finish()
        if not self.over:
            raise MalformedAnswer(f"the connection was closed in the {_WHERE[self._state]}")

    def _finish(self) -> None:
        self._state, self.over = State.OVER, True

    # ---------------------------------------------------------------------------------------------------- head

    def _head(self, data: bytes) -> bytes:
        whole = None if self._held or self._size else _WHOLE_HEAD(data)
        if whole is not None and whole.end() <= _HEAD_LIMIT:
            lines = _HEADERS(whole[3].decode("latin-1"))
            headers = {name.lower(): value.strip(_BLANKS) for name, value in lines}
            # A header that is there twice may be one too many.
            if len(headers) == len(lines):
                self._size, self._status, self.headers = whole.end(), int(whole[2]), headers
                self.reusable = whole[1] == b"1"
                self._headed()
                return self._body(data[self._size :])
        return self._head_lines(data)

    def _head_lines(self, data: bytes) -> bytes:
        held, self._held = self._held + data, b""
        at = 0
        while self._state is State.HEAD:
            end = held.find(b"\n", max(at, self._seen))
            if end < 0:
                self._hold_head(held[at:])
                return b""
            line, at, self._seen = held[at : end + 1], end + 1, 0
            self._size += len(line)
            if self._size > _HEAD_LIMIT or not line.endswith(b"\r\n"):
                raise MalformedAnswer("the answer's head cannot be read")
            self._head_line(line[:-2])
        return self._body(held[at:])

    def _hold_head(self, line: bytes) -> None:
        begun = _STATUS_BEGUN[: len(line)]
        if len(line) + self._size > _HEAD_LIMIT or not (self._status or line.startswith(begun)):
            raise MalformedAnswer("the answer's head cannot be read")
        self._held, self._seen = line, len(line)

    def _head_line(self, line: bytes) -> None:
        if not self._status:
            status_line = _STATUS_LINE.fullmatch(line)
            if status_line is None:
                raise MalformedAnswer("the answer does not begin with an HTTP/1.1 status line")
            self._status, self.reusable = int(status_line[2]), status_line[1] == b"1"
        elif line:
            header = _HEADER_LINE.fullmatch(line)
            if header is None:
                raise MalformedAnswer("one of the answer's header lines cannot be read")
            name, value = header[1].decode("ascii").lower(), header[2].decode("latin-1").strip(_BLANKS)
            if name in _ONLY_ONCE and self.headers.get(name, value) != value:
                raise MalformedAnswer(f"the answer has two different {name} headers")
            self.headers[name] = value
        elif self._status < 200:
            self._interim += 1
            if self._status == 101 or self._interim > _INTERIM_LIMIT:
                raise MalformedAnswer(f"the answer has status {self._status}, which was not asked for")
            self._status, self.headers = 0, {}
        else:
            self._headed()

    def _headed(self) -> None:
        """The head is complete, and says how the body is framed."""
        self.status, headers = self._status, self.headers
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if "close" in headers.get("connection", "").lower():
            self.reusable = False
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise MalformedAnswer(f"the answer is compressed ({headers['content-encoding'][:40]}), unasked")
        if self.status in (204, 304):
            self._finish()
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise MalformedAnswer("the answer's framing is ambiguous (transfer-encoding)")
            self._state = State.CHUNK_LINE
        elif length is not None:
            if not (length.isascii() and length.isdigit() and len(length) <= 15):
                raise MalformedAnswer("the answer's content-length is not a number")
            self._left = int(length)
            if self._left:
                self._state = State.SIZED
            else:
                self._finish()
        else:
            self.reusable = False
            self._state = State.UNTIL_CLOSE

    # ---------------------------------------------------------------------------------------------------- body

    def _body(self, data: bytes) -> bytes:
        if self._state is State.UNTIL_CLOSE:
            return data
        if self._held:
            data, self._held = self._held + data, b""
        parts: list[bytes] = []
        try:
            self._split(data, parts)
        except MalformedAnswer as error:
            error.before = b"".join(parts)
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _split(self, data: bytes, parts: list[bytes]) -> None:
        at, size, tried = 0, len(data), False
        while at < size:
            state = self._state
            if state is _AT_CHUNK:
                if not tried:
                    at, tried = self._whole_events(data, parts, at), True
                if size - at == 5 and data.endswith(_LAST_CHUNK):
                    self._finish()
                    break
                at = self._whole_chunks(data, parts, at)
                if at == size:
                    break
                line = _CHUNK_LINE(data, at)
                if line is None:
                    self._hold_line(data[at:])
                    break
                at, self._left = line.end(), int(line[1], 16)
                self._state = State.CHUNK if self._left else State.TRAILER
            elif state is State.CHUNK or state is State.SIZED:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if not self._left:
                    if state is State.SIZED:
                        self._finish()
                    else:
                        self._state = State.CHUNK_END
            elif state is State.CHUNK_END:
                end = data[at : at + 2]
                if end != b"\r\n"[: len(end)]:
                    raise MalformedAnswer("a chunk of the answer is longer than it says")
                if len(end) < 2:
                    self._held = end
                    break
                at += 2
                self._state = State.CHUNK_LINE
            elif state is State.TRAILER:
                at = self._trailer(data, at)
            else:
                # What follows the answer was not asked for: the connection cannot be trusted with another request.
                self.reusable = False
                break

    def _whole_events(self, data: bytes, parts: list[bytes], at: int) -> int:
        """Take a read of which each chunk is a line and an empty line, as a server-sent event is, but for what is
        incomplete at its end; where that begins. Nothing of another read is taken."""
        lines = BytesIO(data[at:]).readlines()
        count = len(lines) // 4
        rest = lines[4 * count :]
        del lines[4 * count :]
        if not lines[2::4].count(b"\n") == lines[3::4].count(b"\r\n") == count > 0:
            return at
        events = lines[1::4]
        if list(map(_EVENT_SIZES.get, lines[::4])) != list(map(len, events)):
            return at
        parts += (b"\n".join(events), b"\n")
        return len(data) - sum(map(len, rest))

    def _whole_chunks(self, data: bytes, parts: list[bytes], at: int) -> int:
        """Take the chunks from `at` on that are there completely; where the first other thing is."""
        find, known = data.find, CHUNK_SIZES.get
        while True:
            line = find(b"\r\n", at, at + 8)
            size = known(data[at:line]) if line > 0 else None
            if size is None or data[line + 2 + size : line + 4 + size] != b"\r\n":
                return at
            end = line + 2 + size
            parts.append(data[line + 2 : end])
            at = end + 2

    def _hold_line(self, line: bytes) -> None:
        if len(line) > _LINE_LIMIT or _CHUNK_LINE_BEGUN(line) is None:
            raise MalformedAnswer("a chunk of the answer has no readable size")
        self._held = line

    def _trailer(self, data: bytes, at: int) -> int:
        """Pass over one line of the trailer; the empty one ends the answer."""
        end = data.find(b"\n", at)
        if end < 0:
            if len(data) - at > _LINE_LIMIT:
                raise MalformedAnswer("the answer's trailer is too long")
            self._held = data[at:]
            return len(data)
        line = data[at : end + 1]
        self._size += len(line)
        if line == b"\r\n":
            self._finish()
        elif not line.endswith(b"\r\n") or _HEADER_LINE.fullmatch(line[:-2]) is None or self._size > _HEAD_LIMIT:
            raise MalformedAnswer("the answer's trailer cannot be read")
        return end + 1


_BLANKS = " \t"
_ONLY_ONCE = frozenset({"content-length", "transfer-encoding", "content-encoding"})
_WHERE = {
    State.HEAD: "answer's head",
    State.SIZED: "answer's body",
    State.CHUNK_LINE: "middle of the answer, between two chunks",
    State.CHUNK: "middle of a chunk",
    State.CHUNK_END: "middle of a chunk",
    State.TRAILER: "answer's trailer",
}
