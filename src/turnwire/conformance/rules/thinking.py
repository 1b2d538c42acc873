"""Rules of thinking: it comes as thinking, goes back, and is read again in its place.

Promise: what the model reads is judged by what the engine was given, or by counted tokens, never by what it answers.
"""

from __future__ import annotations

from turnwire.conformance.probe import Probe, Reply
from turnwire.conformance.scenes import Scene
from turnwire.conformance.words import Finding, clipped

__all__ = ["block_order", "interleaving", "replayed", "streamed"]


async def streamed(probe: Probe) -> Finding:
    turn = (await probe.first("answer")).turn
    thoughts = turn.of("thinking")
    text, thought = turn.text(), turn.text("thinking").strip()
    evidence = (f"thinking: {clipped(thought, 200)!r}", f"text: {clipped(text, 200)!r}")
    if "<think>" in text or "</think>" in text:
        return Finding("broken", "the marks of a thought are shown as text", evidence)
    if not thoughts:
        if not probe.scripted:
            return Finding("unknown", "the model did not think", evidence)
        wanted = _parts((await probe.first("answer")).scene, "thinking")[0]
        where = "is shown as text" if wanted in text else "is dropped"
        return Finding("broken", f"the thought {where}", evidence)
    if probe.scripted and thought != _parts((await probe.first("answer")).scene, "thinking")[0]:
        return Finding("broken", "the thought is not what the model thought", evidence)
    pieces = sum(block.deltas for block in thoughts)
    return Finding("preserved", f"the thought comes as thinking, in {pieces} pieces", evidence)


async def replayed(probe: Probe) -> Finding:
    call = await probe.first("call")
    thought = call.turn.text("thinking").strip()
    if not thought:
        return Finding("unknown", "no thought came that could be sent back")
    reply = probe.accepted(await probe.after(call))
    if reply.prompt is not None:
        read = probe.text(reply.prompt)
        if thought in read:
            return Finding("preserved", "the model reads its thought again", (_around(read, thought),))
        return Finding(
            "broken",
            "the thought is accepted, but the model does not read it",
            (f"prompt ends: {clipped(read[-400:])}",),
        )
    without = probe.accepted(await probe.after(call, thoughts=False))
    more, less = reply.turn.counts.prompt, without.turn.counts.prompt
    evidence = (f"prompt tokens with the thought: {more}, without: {less}", f"thought: {clipped(thought, 120)!r}")
    if more is None or less is None:
        return Finding("unknown", "accepted; the server counts no prompt tokens", evidence)
    if more - less >= max(3, len(thought.split()) // 2):
        return Finding("preserved", "the model reads its thought again", evidence)
    # A server that remembers the turn gives the thought back to the model in both cases.
    return Finding("unknown", "accepted, and the prompt is as long without it", evidence)


async def interleaving(probe: Probe) -> Finding:
    """Thought, call, result, thought, call, result: all of it, in this order, before the third turn."""
    first = await probe.first("loop")
    second = probe.accepted(await probe.after(first, text="Bergen: 9 degrees"))
    if not second.turn.of("call"):
        return Finding("unknown", "the model made no second call", (clipped(second.turn.text(), 200),))
    third = probe.accepted(await probe.after(second, text="Malmo: 11 degrees"))
    if third.prompt is None:
        return Finding("unknown", "accepted; what the model reads cannot be seen")
    read = probe.text(third.prompt)
    wanted = _sequence(first, "Bergen: 9 degrees") + _sequence(second, "Malmo: 11 degrees")
    place = 0
    seen: list[str] = []
    for text in wanted:
        found = read.find(text, place)
        if found < 0:
            where = "out of order" if text in read else "missing"
            ends = f"prompt ends: {clipped(read[-300:])}"
            return Finding("broken", f"{clipped(text, 80)!r} is {where} in what the model reads", (*seen, ends))
        seen.append(f"{found}: {clipped(text, 80)!r}")
        place = found + len(text)
    return Finding("preserved", "thoughts, calls and results are read in the order in which they happened", tuple(seen))


def _sequence(reply: Reply, result: str) -> list[str]:
    thoughts = [part.text for part in reply.scene.turns[reply.step] if part.kind == "thinking"]
    return [*thoughts, *(f'"{call.name}"' for call in reply.turn.of("call")), result]


async def block_order(probe: Probe) -> Finding:
    reply = await probe.first("mixed")
    kinds = [block.kind for block in reply.turn.blocks if block.text]
    seen = (" ".join(kinds), clipped(reply.turn.text(), 200))
    if not probe.scripted:
        if "text" not in kinds[1:]:
            return Finding("unknown", "the model wrote no text between its calls", seen)
        return Finding("preserved", "blocks come in the order in which they were made", seen)
    wanted = [part.kind for part in reply.scene.turns[0]]
    lost = [text for text in _parts(reply.scene, "text") if text not in reply.turn.text()]
    if lost:
        return Finding("broken", f"text between the calls is lost or cut: {lost[0]!r}", seen)
    if kinds != wanted:
        return Finding("adapted", "all of it comes, in another order", (*seen, f"made as: {' '.join(wanted)}"))
    return Finding("preserved", "blocks come in the order in which they were made", seen)


def _parts(scene: Scene, kind: str) -> list[str]:
    return [part.text for part in scene.turns[0] if part.kind == kind]


def _around(text: str, part: str) -> str:
    at = text.find(part)
    return f"read at {at}: …{clipped(text[max(0, at - 40) : at + len(part) + 40])}…"
