"""A server that speaks vLLM's completions wire and fails in every way that servers do, most of them polite.

Promise: what it says follows from the nonce in the prompt, from wherever the prompt leaves off; its dice have a seed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from benchmarks.storm.story import NONCE, said
from turnwire.prompts.prompt import Tokenizer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "GET /version": {"version": "0.32.0"},
    "GET /health": {},
    "GET /v1/models": {"data": [{"id": "m", "max_model_len": 32_000}]},
}
CHOICE = {"index": 0, "text": "x", "token_ids": [1], "finish_reason": "length"}
PROBED = {"choices": [CHOICE], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": None}}


def whole(status: int, body: object, *headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 {status} x\r\n{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def choice(text: str, ids: list[int], finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "token_ids": ids, "finish_reason": finish}]})


DEATH = event({"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}})
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
RESET = b"reset"
"""Not to be sent: the connection is reset."""

# Instead of an answer.
REFUSALS: dict[str, bytes] = {
    "429": whole(429, {"error": {"message": "slow down"}}, "Retry-After: 0.2"),
    "503": whole(503, {"error": {"message": "The request queue is full."}}),
    "retry after infinity": whole(503, {"error": {"message": "busy"}}, "Retry-After: inf"),
    "retry after nan": whole(429, {"error": {"message": "busy"}}, "Retry-After: nan"),
    "retry after a date": whole(429, {"error": "busy"}, "Retry-After: Wed, 21 Oct 2037 07:28:00 GMT"),
    "retry after a century": whole(503, ["busy"], "Retry-After: 3153600000"),
    "retry before": whole(503, {}, "Retry-After: -5"),
    "504": whole(504, {"error": {"message": None}}),
    "500": whole(500, {"error": {"message": "EngineCore encountered an issue."}}),
    "401": whole(401, {"error": {"message": "Unauthorized"}}),
    "302": whole(302, {}, "Location: http://127.0.0.1:9/"),
    "drained": HEAD + chunk(DONE) + LAST,
    "dead core": HEAD + chunk(DEATH + DONE) + LAST,
    "a page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
    "nothing": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n",
}
# Instead of an answer, and of the connection.
CUTS: dict[str, bytes] = {
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "a long head": b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n",
}
# In mid-stream.
BREAKS: dict[str, bytes] = {
    "abort": chunk(choice("", [], "abort") + DONE) + LAST,
    "unknown finish": chunk(choice("", [], "tired") + DONE) + LAST,
    "dead core": chunk(DEATH + DONE) + LAST,
    "no finish": chunk(DONE) + LAST,
    "malformed chunk": b"xyz\r\n",
    "cut event": chunk(choice("never", [1])[:20]),
    "cut chunk": b"ffff\r\ndata: {",
    "invalid UTF-8": chunk(b'data: {"choices":[{"text":"\xff\xfe"}]}\n\n'),
    "not JSON": chunk(b"data: <html>\n\n"),
    "a number": chunk(b"data: 7\n\n"),
    "a huge event": b"".join(chunk(b"data: " * (not n) + b"x" * 1_000_000) for n in range(20)),
    "no choices": chunk(event({"choices": []}) + DONE) + LAST,
    "closed": b"",
    "reset": RESET,
}
# After a complete answer, which it does not spoil: inside the stream, and on the connection that is kept.
AFTERWARDS: dict[str, bytes] = {
    "garbage after [DONE]": chunk(b"data: {never\n\n\xff") + LAST,
    "tokens after [DONE]": chunk(choice("never", [1]) + DONE) + LAST,
    "garbage after the answer": LAST + b"\x00\xffHTTP/9 never\r\n\r\n",
}


class RudeServer:
    """Says what the nonce in the prompt asks for; with chance `rudeness` it fails instead, in a way its dice choose."""

    def __init__(self, tokenizer: Tokenizer, seed: int, rudeness: float) -> None:
        self._tokenizer = tokenizer
        self._dice = random.Random(seed)
        self.rudeness = rudeness
        self.faults: Counter[str] = Counter()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                route = " ".join(head.split(" ", 2)[:2])
                if route in ANSWERS:
                    writer.write(whole(200, ANSWERS[route]))
                elif route != "POST /v1/completions":
                    writer.write(whole(404, {}))
                elif not await self._generate(json.loads(body), writer):
                    break
                await writer.drain()
        writer.close()

    async def _generate(self, body: dict[str, object], writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        prompt = body["prompt"]
        assert isinstance(prompt, list)
        if not body.get("stream"):
            writer.write(whole(200, PROBED))
            return True
        text = self._tokenizer.decode(prompt)
        nonces = NONCE.findall(text)
        if not nonces:
            writer.write(HEAD + chunk(choice("x", [1], "length") + DONE) + LAST)
            return True
        rude = self._dice.random() < self.rudeness
        if rude and self._dice.random() < 0.4:
            return self._refuse(writer)
        if rude and self._dice.random() < 0.05:
            fault = self._dice.choice(list(CUTS))
            self.faults[fault] += 1
            writer.write(CUTS[fault])
            return False
        ids = self._tokenizer.encode(f"I think of {nonces[-1]}.\n</think>\n\n{said(nonces[-1])}")
        at = _begun(prompt, ids)
        stop = self._dice.randrange(at, len(ids)) if rude else len(ids)
        writer.write(HEAD)
        detokenizer = self._tokenizer.detokenizer()
        detokenizer.feed(ids[:at])
        while at < stop:
            count = min(self._dice.randint(1, 6), stop - at)
            writer.write(chunk(choice(detokenizer.feed(ids[at : at + count]), ids[at : at + count])))
            at += count
            await writer.drain()
            await asyncio.sleep(0)
        if not rude:
            usage = event({"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}})
            end = self._tokenizer.special_tokens["<|im_end|>"]
            writer.write(chunk(choice("", [end], "stop") + usage + DONE))
            if self._dice.random() >= self.rudeness / 4:
                writer.write(LAST)
                return True
            fault = self._dice.choice(list(AFTERWARDS))
            self.faults[fault] += 1
            writer.write(AFTERWARDS[fault])
            return fault != "garbage after the answer"
        if self._dice.random() < 0.05:
            self.faults["frozen"] += 1
            await asyncio.sleep(3600)
        fault = self._dice.choice(list(BREAKS))
        self.faults[fault] += 1
        if BREAKS[fault] is RESET:
            writer.transport.abort()
        elif fault == "closed" and self._dice.random() < 0.5:
            writer.write_eof()  # half-closed: it goes on reading
            await asyncio.sleep(1)
        else:
            writer.write(BREAKS[fault])
        return False

    def _refuse(self, writer: asyncio.StreamWriter) -> bool:
        fault = self._dice.choice(list(REFUSALS))
        self.faults[fault] += 1
        writer.write(REFUSALS[fault])
        return True


def _begun(prompt: list[int], ids: list[int]) -> int:
    """How many of the answer's ids the prompt already ends with."""
    for count in range(min(len(ids), len(prompt)), 0, -1):
        if prompt[-count:] == ids[:count]:
            return count
    return 0
