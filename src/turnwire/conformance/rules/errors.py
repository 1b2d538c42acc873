"""Rules of failure: errors in the API's shape, prompts that are too long, tools that failed, clients that leave.

Promise: nothing here harms a server; the longest prompt is a little longer than the window it states.
"""

from __future__ import annotations

import asyncio
import re
import time

from turnwire.conformance.exchange import Exchange
from turnwire.conformance.probe import Probe, Reply
from turnwire.conformance.turn import User
from turnwire.conformance.words import Finding, clipped

__all__ = ["broken_arguments", "cancellation", "overflow", "shapes", "tool_error"]

# How servers name the requests that run in their metrics.
_GAUGES = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "turnwire_live_turns",
)
_RUNNING = re.compile(rf"^(?:{'|'.join(_GAUGES)})(?:\{{[^}}]*\}})? ([0-9.e+]+)$", re.MULTILINE)
_PATIENCE = 3.0
# The longest prompt that is sent to find out how a server refuses.
_MOST = 1_000_000


async def shapes(probe: Probe) -> Finding:
    good = probe.body()
    wrong = {
        "no JSON": b'{"model": ',
        "messages of a wrong type": good | {("input" if probe.api.name == "responses" else "messages"): 12},
        "a limit below zero": good | {("max_output_tokens" if probe.api.name == "responses" else "max_tokens"): -5},
    }
    seen, odd = [], []
    for what, body in wrong.items():
        exchange = await probe.wire.post(probe.api.path, body, probe.headers())
        said = f"{what}: HTTP {exchange.status} {clipped(exchange.body.decode('utf-8', 'replace'), 160)}"
        seen.append(said)
        if exchange.fault is not None or not 400 <= exchange.status < 500:
            return Finding("broken", f"{what} is answered with HTTP {exchange.status}", tuple(seen))
        if not probe.api.error(exchange.document):
            odd.append(what)
    if odd:
        return Finding("adapted", f"refused, but not in the API's shape: {', '.join(odd)}", tuple(seen))
    return Finding("preserved", "wrong requests are refused in the API's shape", tuple(seen))


async def overflow(probe: Probe) -> Finding:
    window = await probe.window()
    if window is None or window > _MOST:
        return Finding("unknown", f"the server states {window or 'no'} tokens as its window")
    reply = await probe.ask("answer", history=(User("word " * (window + 64)),), most=16)
    text = reply.exchange.body.decode("utf-8", "replace") + " ".join(frame.data for frame in reply.exchange.frames[:20])
    evidence = (f"window {window}", f"HTTP {reply.exchange.status}", clipped(text))
    if reply.exchange.fault is not None or reply.exchange.status >= 500:
        return Finding("broken", "a prompt beyond the window makes the server fail", evidence)
    if reply.exchange.status < 400 and reply.turn.error is None:
        return Finding("broken", "a prompt beyond the window is answered as if it fitted", evidence)
    if any(words in text.lower() for words in probe.api.overflow):
        return Finding("preserved", "refused in the words by which harnesses compact", evidence)
    return Finding("adapted", "refused, but not in the words by which harnesses compact", evidence)


async def tool_error(probe: Probe) -> Finding:
    call = await probe.first("call")
    said = "the station does not answer"
    reply = probe.accepted(await probe.after(call, failed=True, text=said))
    return _read(probe, reply, said, "the failed tool's words")


async def broken_arguments(probe: Probe) -> Finding:
    call = await probe.first("call")
    turn = call.turn
    cut = '{"city": "Par'
    for block in turn.of("call"):
        block_text, block.pieces = block.pieces, [cut]
    raw = turn.raw
    turn.raw = [item | ({"arguments": cut} if "arguments" in item else {}) for item in raw]
    try:
        reply = await probe.after(call, text="the arguments were cut off")
    finally:
        turn.raw = raw
        for block in turn.of("call"):
            block.pieces = block_text
    probe.accepted(reply)
    return _read(probe, reply, "the arguments were cut off", "what came after a call that was cut off")


def _read(probe: Probe, reply: Reply, text: str, what: str) -> Finding:
    if reply.prompt is None:
        return Finding("preserved", "the conversation goes on", (f"HTTP {reply.exchange.status}",))
    if text in probe.text(reply.prompt):
        return Finding("preserved", f"the conversation goes on, and the model reads {what}", (f"read: {text!r}",))
    return Finding("broken", f"the model does not read {what}", (clipped(probe.text(reply.prompt)[-500:]),))


async def cancellation(probe: Probe) -> Finding:
    before = probe.stand_in.left() if probe.stand_in is not None else 0
    reply = await probe.ask("long", leave_after=6)
    if reply.exchange.status != 200 or len(reply.exchange.frames) < 6:
        probe.accepted(reply)
        return Finding(
            "unknown", "the turn was over before it could be left", (f"{len(reply.exchange.frames)} events",)
        )
    stopped, how = await _stopped(probe, before)
    after = await probe.ask("answer", most=64)
    if after.exchange.status != 200 or after.exchange.fault is not None:
        return Finding("broken", "the next request fails", (f"HTTP {after.exchange.status}", how))
    if stopped is None:
        return Finding("unknown", "the next request is answered; whether the engine stopped cannot be seen", (how,))
    if not stopped:
        return Finding("broken", "the engine goes on for a client that has left", (how,))
    return Finding("preserved", "the engine stops when the client leaves", (how,))


async def _stopped(probe: Probe, before: int) -> tuple[bool | None, str]:
    """Whether the engine stopped, and how that is known."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < _PATIENCE:
        if probe.stand_in is not None:
            if probe.stand_in.left() > before:
                return True, f"the stand-in was told {waited:.1f} s after the client left"
        else:
            running = _running(await probe.wire.get("/metrics"))
            if running is None:
                return None, "no metric of running requests"
            if running == 0:
                return True, f"no running request {waited:.1f} s after the client left"
        await asyncio.sleep(0.1)
    return False, f"not within {_PATIENCE:g} s"


def _running(exchange: Exchange) -> float | None:
    found = _RUNNING.findall(exchange.body.decode("utf-8", "replace"))
    return sum(float(value) for value in found) if found else None
