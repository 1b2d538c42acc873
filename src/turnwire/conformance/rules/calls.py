"""Rules of calls: complete early, streamed as they are written, several at once.

Promise: earliness is a share of the turn's own time, so that a slow machine and a fast one are judged alike.
"""

from __future__ import annotations

import json

from turnwire.conformance.probe import Probe, Reply
from turnwire.conformance.words import Finding, clipped

__all__ = ["early", "parallel", "streamed"]

# A call that is whole before this share of the time since it began has passed was not held back.
_EARLY = 0.5
_PIECES = 5
# Below this many seconds everything came at once, and no share means anything.
_SHORT = 0.05


async def early(probe: Probe) -> Finding:
    reply = await probe.first("parallel")
    turn, call = reply.turn, reply.turn.of("call")[0]
    if call.complete is None:
        return Finding("broken", "the first call never becomes whole", (clipped(call.text),))
    took, rest = turn.ended - call.opened, turn.ended - call.complete
    written = turn.ended - reply.exchange.began
    evidence = (f"whole {rest * 1000:.0f} ms before the end of a turn of {written * 1000:.0f} ms",)
    if written < _SHORT:
        return Finding("unknown", "the turn was too short to tell", evidence)
    if rest >= _EARLY * max(took, written / 2):
        return Finding("preserved", "a call is whole while the next one is still written", evidence)
    return Finding("adapted", "a call that is finished is held back", evidence)


async def streamed(probe: Probe) -> Finding:
    reply = await probe.first("write")
    call = reply.turn.of("call")[0]
    wrong = _wrong(probe, reply)
    if wrong is not None:
        return wrong
    span, written = call.last - call.first, reply.turn.ended - reply.exchange.began
    evidence = (f"{call.deltas} pieces over {span * 1000:.0f} ms of a turn of {written * 1000:.0f} ms",)
    if call.deltas >= _PIECES and (span >= 0.3 * written or written < _SHORT):
        return Finding("preserved", "arguments come while they are written", evidence)
    if call.deltas < _PIECES:
        return Finding("adapted", "arguments come in one piece, or few", evidence)
    return Finding("adapted", "arguments come together, at the end", evidence)


async def parallel(probe: Probe) -> Finding:
    reply = await probe.first("parallel")
    wrong = _wrong(probe, reply)
    if wrong is not None:
        return wrong
    calls = reply.turn.of("call")
    names = [f"{call.name} {clipped(call.id, 40)}" for call in calls]
    if len({call.id for call in calls}) != len(calls):
        return Finding("broken", "two calls have one id", tuple(names))
    after = probe.accepted(await probe.after(reply))
    return Finding(
        "preserved", "two calls of one turn, and their results go back", (*names, f"HTTP {after.exchange.status}")
    )


def _wrong(probe: Probe, reply: Reply) -> Finding | None:
    """What is wrong with the calls of a turn."""
    calls = reply.turn.of("call")
    for call in calls:
        if not isinstance(call.arguments, dict):
            return Finding("broken", "arguments are not a JSON object", (clipped(call.text),))
    if probe.scripted:
        wanted = [(part.name, json.loads(part.text)) for part in reply.scene.turns[0] if part.kind == "call"]
        said = [(call.name, call.arguments) for call in calls]
        if said != wanted:
            return Finding(
                "broken", "the calls are not what the model wrote", (clipped(repr(said)), clipped(repr(wanted)))
            )
    return None
