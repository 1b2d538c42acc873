"""The two WebSockets under bad messages: the Responses API's, and that of the console's playground.

Promise: every message that is a frame gets an answer, and events of a response are judged as those of a stream are.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from benchmarks.fuzz.requests import RAW, Fuzzer
from benchmarks.fuzz.verdicts import stream_fault
from benchmarks.fuzz.wire import BINARY, CLOSE, PING, TEXT, Socket

RESPONSES, CONSOLE = "WS /v1/responses", "WS /console/chat"
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
# A reserved opcode, a frame without a mask, a length of 2**63, a fragment that goes on from nothing, a torn header.
GARBAGE = (b"\x83\x80\x00\x00\x00\x00", b"\x81\x02hi", b"\x82\xff" + b"\xff" * 12, b"\x80\x80\x00\x00\x00\x00", b"\x81")
INTERNAL = 1011
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


async def visit(port: int, fuzzer: Fuzzer) -> tuple[str, int, str | None]:
    """One connection with a few messages: the route, how many were sent, and what was wrong."""
    if fuzzer.dice.random() < 0.7:
        return RESPONSES, *await _responses(port, fuzzer)
    return CONSOLE, *await _console(port, fuzzer)


async def _responses(port: int, fuzzer: Fuzzer) -> tuple[int, str | None]:
    dice = fuzzer.dice
    socket = await Socket.opened(port, "/v1/responses")
    sent = 0
    try:
        for _ in range(dice.randrange(1, 4)):
            sent += 1
            if dice.random() < 0.1:
                socket.raw(dice.choice(GARBAGE))
                return sent, None
            body = fuzzer.body("/v1/responses")
            body["type"] = "response.create"
            if dice.random() < 0.1:
                body["generate"] = dice.choice((False, True, 1))
            message = dice.choice(RAW[1:]) if dice.random() < 0.15 else json.dumps(body).encode()
            socket.send(message, dice.choice((TEXT, TEXT, TEXT, BINARY)))
            wrong = await _judged(socket, message)
            if wrong is not None:
                return sent, wrong or None
    except asyncio.IncompleteReadError:
        return sent, f"cut at {message[:2000]!r}"
    finally:
        socket.close()
    return sent, None


async def _judged(socket: Socket, message: bytes) -> str | None:
    """Read one response to its end; "" where the server closed the connection for what was sent."""
    lines = []
    while True:
        opcode, data = await socket.receive()
        if opcode == CLOSE:
            code = int.from_bytes(data[:2], "big")
            return f"closed with {code} at {message[:2000]!r}" if code == INTERNAL else ""
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
            wrong = stream_fault("POST /v1/responses", b"".join(lines))
            return None if wrong is None else f"{wrong} at {message[:2000]!r}"


async def _console(port: int, fuzzer: Fuzzer) -> tuple[int, str | None]:
    """Messages in any order; whatever is wrong with one is said in a message, and the tab stays open."""
    dice = fuzzer.dice
    socket = await Socket.opened(port, "/console/chat")
    sent, all_said = 0, []
    try:
        for _ in range(dice.randrange(2, 7)):
            sent += 1
            said = dict(SAID[0] if sent == 1 and dice.random() < 0.7 else dice.choice(SAID))
            message = json.dumps(said if dice.random() < 0.6 else fuzzer.broken(said)).encode()
            if dice.random() < 0.1:
                message = dice.choice([raw for raw in RAW[1:] if not raw.startswith((b"\xff", b"\xef"))])
            all_said.append(message[:300])
            socket.send(message, dice.choice((TEXT, TEXT, TEXT, BINARY)))
        # What is not understood is answered in order, so the answer to this comes after all of it.
        socket.send(b"[]", TEXT)
        socket.send(b"", PING)
        while True:
            opcode, data = await socket.receive()
            if opcode == CLOSE:
                return sent, f"closed with {int.from_bytes(data[:2], 'big')} after {all_said!r}"
            if opcode == TEXT and b"is not understood" in data and b"array" in data:
                return sent, None
    except asyncio.IncompleteReadError:
        return sent, f"cut after {all_said!r}"
    finally:
        socket.close()
