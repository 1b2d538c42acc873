"""One request at a time over a plain socket: sends a body, reads the stream, says when the first text came.

Promise: the clock starts when the body is ready to be sent; the stream is read to its end, and an answer that is not
whole is an error.
"""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from benchmarks.load.requests import ENDINGS, PATHS, Api


class Answer(NamedTuple):
    """When the text began and how long the whole took, in seconds, and what came."""

    first: float
    whole: float
    stream: bytes


class AnswerFailure(Exception):
    """The answer was an error or not whole."""


def head(path: str, port: int, size: int) -> bytes:
    """The head of a request whose connection closes after the answer."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer bench\r\nanthropic-version: 2023-06-01\r\nConnection: close\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()


def ask(port: int, api: Api, body: bytes, word: str) -> Answer:
    """Send a request; the first text is where `word` is first seen."""
    ending, sought = ENDINGS[api].encode(), word.encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(60)
        request = head(PATHS[api], port, len(body)) + body
        started = time.perf_counter()
        connection.sendall(request)
        received = bytearray()
        first = 0.0
        while data := connection.recv(1 << 16):
            # What was searched before is not searched again: an answer that begins with its instructions is long.
            seen = max(0, len(received) - len(sought))
            received += data
            if not first and received.find(sought, seen) >= 0:
                first = time.perf_counter() - started
            if received.endswith(b"0\r\n\r\n"):
                break
        whole = time.perf_counter() - started
    if not received.startswith(b"HTTP/1.1 200") or ending not in received or not first:
        raise AnswerFailure(bytes(received[:600]).decode(errors="replace"))
    return Answer(first, whole, bytes(received))
