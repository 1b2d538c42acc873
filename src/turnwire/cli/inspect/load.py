"""Captured requests sent again to another gateway or engine, at the times at which they came.

Promise: each request leaves when it left in the capture, divided by the speed, whatever becomes of the others; one that
goes on from a stored response waits for that response, and names it as the target does. What is reported was measured
at the client's side of this process; an answer that breaks off or ends in an error has failed, whatever its status was.
What is not sent is counted.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter

import aiohttp
import click
import msgspec

from turnwire.capture.format import CapturedTurn
from turnwire.capture.reading import Capture
from turnwire.harness.plan import KEY_VARIABLE

__all__ = ["send_again"]

_PATHS = {
    "messages": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
    "compact": "/v1/responses/compact",
}
# What belongs to the captured connection or to whoever sent it then; every other header is part of the request.
_LEFT_OUT = frozenset(
    {"host", "connection", "content-length", "content-encoding", "transfer-encoding", "accept-encoding", "expect", "te"}
    | {"keep-alive", "upgrade", "authorization", "x-api-key", "api-key", "cookie", "traceparent", "tracestate"}
)
_HIDDEN = "REDACTED_"
# The lines by which a stream says that it is whole, and that it went wrong.
_ENDS: dict[str, tuple[bytes, ...]] = {
    "messages": (b"\nevent: message_stop",),
    "chat": (b"\ndata: [DONE]",),
    "completions": (b"\ndata: [DONE]",),
    "responses": (b"\nevent: response.completed", b"\nevent: response.incomplete"),
}
_FAILURES = (b"\nevent: error", b"\nevent: response.failed", b'\ndata: {"error"')
_LONGEST_MARK = 64
_KEPT_BYTES = 4096
_RESPONSE_ID = re.compile(rb'"id": ?"(resp_[^"]+)"')
_LONGEST_S = 600.0


class _Answer(msgspec.Struct):
    """What became of a request: `failed` says how it failed, or nothing."""

    failed: str
    begun: float
    whole: float


class _Sending:
    """All requests of a capture on their way to one address."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str | None, model: str | None) -> None:
        self._session = session
        self._url = url.rstrip("/").removesuffix("/v1")
        self._key = key
        self._model = model
        # What the target calls the responses of the capture.
        self._names: dict[str, asyncio.Future[str | None]] = {}

    def expect(self, turns: list[CapturedTurn]) -> None:
        """Know which responses of the capture there will be."""
        for turn in turns:
            if (captured := _captured_name(turn)) is not None:
                self._names[captured] = asyncio.get_running_loop().create_future()

    async def send(self, turn: CapturedTurn, at: float) -> _Answer:
        """Send one request at its time."""
        await asyncio.sleep(max(at - time.monotonic(), 0))
        name: str | None = None
        try:
            body = await self._body(turn)
            answer, name = await self._sent(turn, body)
            return answer
        finally:
            waiting = self._names.get(_captured_name(turn) or "")
            if waiting is not None and not waiting.done():
                waiting.set_result(name)

    async def _body(self, turn: CapturedTurn) -> bytes:
        """The captured body, with the target's names of models and responses."""
        raw = turn.request.body.encode()
        if self._model is None and b'"previous_response_id"' not in raw:
            return raw
        body = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if self._model is not None:
            body["model"] = msgspec.Raw(msgspec.json.encode(self._model))
        before = msgspec.json.decode(body.get("previous_response_id", b"null"))
        if isinstance(before, str) and before in self._names:
            known = await self._names[before]
            body["previous_response_id"] = msgspec.Raw(msgspec.json.encode(known or before))
        return msgspec.json.encode(body)

    async def _sent(self, turn: CapturedTurn, body: bytes) -> tuple[_Answer, str | None]:
        headers = {
            name: value
            for name, value in turn.request.headers.items()
            if name not in _LEFT_OUT and not name.startswith("sec-") and _HIDDEN not in value
        }
        headers.setdefault("content-type", "application/json")
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        path = _PATHS[turn.request.route or turn.api]
        started = time.monotonic()
        begun = 0.0
        first, tail, seen = b"", b"\n", set[bytes]()
        try:
            async with self._session.post(self._url + path, data=body, headers=headers) as answer:
                async for piece in answer.content.iter_any():
                    begun = begun or time.monotonic() - started
                    first = first if len(first) >= _KEPT_BYTES else first + piece[:_KEPT_BYTES]
                    tail += piece
                    seen.update(mark for mark in (*_ENDS[turn.api], *_FAILURES) if mark in tail)
                    tail = tail[-_LONGEST_MARK:]
                streamed = answer.content_type == "text/event-stream"
                status = f"404 at {path}" if answer.status == 404 else str(answer.status)
                failed = status if answer.status != 200 else _broken(turn.api, seen) if streamed else ""
        except (aiohttp.ClientError, TimeoutError):
            failed = "broken off" if begun else "no answer"
        name = _RESPONSE_ID.search(first)
        return _Answer(failed, begun, time.monotonic() - started), name[1].decode() if name else None


def _captured_name(turn: CapturedTurn) -> str | None:
    """The id of a captured response."""
    if turn.api != "responses" or not turn.answer:
        return None
    found = _RESPONSE_ID.search(turn.answered[:_KEPT_BYTES].encode())
    return found[1].decode() if found else None


def _broken(api: str, seen: set[bytes]) -> str:
    """What is wrong with a stream in which these lines were seen."""
    if seen.intersection(_FAILURES):
        return "error in the stream"
    return "" if seen.intersection(_ENDS[api]) else "broken off"


async def send_again(capture: Capture, url: str, speed: float, key: str | None = None, model: str | None = None) -> int:
    """Send every captured request and print how long answers took, then and now; how many failed. `model` is asked for
    instead of the captured one."""
    there = [turn for turn in capture.turns if not turn.memory]
    turns = _requests([turn for turn in there if turn.request.framing == "sse"])
    if not turns:
        raise click.ClickException("The capture holds no request that can be sent by HTTP.")
    if sockets := sum(turn.request.framing != "sse" for turn in there):
        click.echo(f"{sockets} that came over a WebSocket are left out")
    began, first = time.monotonic(), turns[0].at
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=_LONGEST_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        sending = _Sending(session, url, key, model)
        sending.expect(turns)
        answers = await asyncio.gather(*(sending.send(turn, began + (turn.at - first) / speed) for turn in turns))
    failed = Counter(answer.failed for answer in answers if answer.failed)
    then = [(turn.answer[0][0], turn.seconds) for turn in turns if turn.answer]
    now = [(answer.begun, answer.whole) for answer in answers if not answer.failed]
    why = ", ".join(f"{count} x {words}" for words, count in sorted(failed.items()))
    told = f"{failed.total()} failed" + (f": {why}" if why else "")
    click.echo(f"{len(turns)} requests in {time.monotonic() - began:.1f} s, {told}")
    if failed["401"] or failed["403"]:
        click.echo(f"{url} wants a key: give one with --key or {KEY_VARIABLE}.", err=True)
    if any(words.startswith("404") for words in failed):
        asked = model or ", ".join(sorted({turn.model for turn in turns}))
        click.echo(f"{url} may not serve {asked}, or not this API: name its model with --model.", err=True)
    for name, rows in (("captured", then), ("replayed", now)):
        if rows:
            firsts, wholes = sorted(row[0] for row in rows), sorted(row[1] for row in rows)
            click.echo(f"{name}: first byte {_spread(firsts)}, whole answer {_spread(wholes)}")
    return failed.total()


def _requests(turns: list[CapturedTurn]) -> list[CapturedTurn]:
    """One turn for each request: several choices, and several rounds of hosted tools, were one."""
    seen: set[tuple[str | None, str]] = set()
    kept = []
    for turn in sorted(turns, key=lambda turn: turn.at):
        if turn.request.choices > 1 or turn.hosted:
            request = (turn.session, turn.request.body)
            if request in seen:
                continue
            seen.add(request)
        kept.append(turn)
    return kept


def _spread(values: list[float]) -> str:
    return f"p50 {values[len(values) // 2]:.3f} s, p95 {values[min(len(values) * 95 // 100, len(values) - 1)]:.3f} s"
