"""The two WebSockets under bad messages: the Responses API's, and that of the console's playground.

Promise: a visit is drawn as a whole before it begins, so that it can be made again. Every message that is a frame gets
an answer, and events of a response are judged as those of a stream are.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from benchmarks.fuzz.requests import RAW, Fuzzer
from benchmarks.fuzz.verdicts import stream_fault
from benchmarks.fuzz.wire import BINARY, CLOSE, PING, TEXT, Socket

RESPONSES, CONSOLE = "WS /v1/responses", "WS /console/chat"
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
# A reserved opcode, a frame without a mask, a length of 2**63, a fragment that goes on from nothing, a torn header.
GARBAGE = (b"\x83\x80\x00\x00\x00\x00", b"\x81\x02hi", b"\x82\xff" + b"\xff" * 12, b"\x80\x80\x00\x00\x00\x00", b"\x81")
INTERNAL = 1011
NO_FRAME = -1
"""In the place of an opcode: bytes that are sent as they are."""
SAID: tuple[dict[str, Any], ...] = (
    {"type": "hello"},
    {"type": "hello", "key": "x", "model": "h", "tools": "always"},
    {"type": "ask", "text": "Go on, say-1."},
    {"type": "ask", "text": "Hi", "images": ["data:image/png;base64,aGk="]},
    {"type": "retry"},
    {"type": "cancel"},
    {"type": "clear"},
    {"type": "approve", "call_id": "x", "answer": "always"},
    {"type": "settings", "tools": "off", "model": "nobody"},
)


class Visit(msgspec.Struct, frozen=True):
    """What is sent on one connection: the bytes of each message and its opcode."""

    route: str
    messages: tuple[tuple[bytes, int], ...]


def drawn(fuzzer: Fuzzer) -> Visit:
    """A few messages for one of the two."""
    if fuzzer.dice.random() < 0.7:
        return Visit(RESPONSES, tuple(_for_responses(fuzzer)))
    return Visit(CONSOLE, tuple(_for_console(fuzzer)))


def _for_responses(fuzzer: Fuzzer) -> list[tuple[bytes, int]]:
    dice, messages = fuzzer.dice, list[tuple[bytes, int]]()
    for _ in range(dice.randrange(1, 4)):
        if dice.random() < 0.1:
            return [*messages, (dice.choice(GARBAGE), NO_FRAME)]
        body = fuzzer.body("/v1/responses")
        body["type"] = "response.create"
        if dice.random() < 0.1:
            body["generate"] = dice.choice((False, True, 1))
        message = dice.choice(RAW[1:]) if dice.random() < 0.15 else json.dumps(body).encode()
        messages.append((message, dice.choice((TEXT, TEXT, TEXT, BINARY))))
    return messages


def _for_console(fuzzer: Fuzzer) -> list[tuple[bytes, int]]:
    dice, messages = fuzzer.dice, list[tuple[bytes, int]]()
    for number in range(dice.randrange(2, 7)):
        said = dict(SAID[0] if number == 0 and dice.random() < 0.7 else dice.choice(SAID))
        message = json.dumps(said if dice.random() < 0.6 else fuzzer.broken(said)).encode()
        if dice.random() < 0.1:
            message = dice.choice([raw for raw in RAW[1:] if not raw.startswith((b"\xff", b"\xef"))])
        messages.append((message, dice.choice((TEXT, TEXT, TEXT, BINARY))))
    return messages


async def make(port: int, visit: Visit) -> tuple[int, str | None]:
    """Make a visit: how many messages were sent, and what was wrong."""
    return await (_responses if visit.route == RESPONSES else _console)(port, visit)


async def _responses(port: int, visit: Visit) -> tuple[int, str | None]:
    socket = await Socket.opened(port, "/v1/responses")
    sent = 0
    try:
        for message, opcode in visit.messages:
            sent += 1
            if opcode == NO_FRAME:
                socket.raw(message)
                return sent, None
            socket.send(message, opcode)
            wrong = await _judged(socket)
            if wrong is not None:
                return sent, wrong or None
    except asyncio.IncompleteReadError:
        return sent, f"cut at message {sent}"
    finally:
        socket.close()
    return sent, None


async def _judged(socket: Socket) -> str | None:
    """Read one response to its end; "" where the server closed the connection for what was sent."""
    lines = []
    while True:
        opcode, data = await socket.receive()
        if opcode == CLOSE:
            code = int.from_bytes(data[:2], "big")
            return f"closed with {code}" if code == INTERNAL else ""
        if opcode != TEXT:
            continue
        try:
            kind = json.loads(data)["type"]
        except (ValueError, KeyError, TypeError):
            return f"a frame that is no event: {data[:200]!r}"
        if kind == "error":
            return None
        lines.append(b"event: %s\ndata: %s\n\n" % (kind.encode(), data))
        if kind in ENDS:
            return stream_fault("POST /v1/responses", b"".join(lines))


async def _console(port: int, visit: Visit) -> tuple[int, str | None]:
    """Messages in any order; whatever is wrong with one is said in a message, and the tab stays open."""
    socket = await Socket.opened(port, "/console/chat")
    sent = len(visit.messages)
    try:
        for message, opcode in visit.messages:
            socket.send(message, opcode)
        # What is not understood is answered in order, so the answer to this comes after all of it.
        socket.send(b"[]", TEXT)
        socket.send(b"", PING)
        while True:
            opcode, data = await socket.receive()
            if opcode == CLOSE:
                return sent, f"closed with {int.from_bytes(data[:2], 'big')}"
            if opcode == TEXT and b"is not understood" in data and b"array" in data:
                return sent, None
    except asyncio.IncompleteReadError:
        return sent, "cut"
    finally:
        socket.close()
