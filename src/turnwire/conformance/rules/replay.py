"""Rules of replay and of the prefix cache: what the model said is read again token by token.

Promise: judged by the ids that the engine was given; where those cannot be seen, by the cached tokens that it states.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from turnwire.conformance.probe import SYSTEM, Probe, Reply, Verdict
from turnwire.conformance.turn import User
from turnwire.conformance.values import number
from turnwire.conformance.words import Finding, clipped

__all__ = ["cache", "counting", "exact", "respaced", "spelling", "stored", "text", "volatile"]

# Engines cache whole blocks of tokens; so many at the end may be missing from what they state.
_BLOCK = 64
# What Claude Code puts first into each system prompt; it changes with every request.
_HEADER = "x-anthropic-billing-header: cc_version=2.1.325.{0}; cc_entrypoint=cli; cch={0};"


async def exact(probe: Probe) -> Finding:
    return await _exact(probe, await probe.first("loop"))


async def text(probe: Probe) -> Finding:
    return await _exact(probe, await probe.first("call"))


async def spelling(probe: Probe) -> Finding:
    if not probe.scripted:
        return Finding("unknown", "a real model cannot be made to leave out a space")
    return await _exact(probe, await probe.first("spelling"))


async def _exact(probe: Probe, first: Reply) -> Finding:
    second = probe.accepted(await probe.after(first))
    if probe.stand_in is not None and first.prompt is not None and second.prompt is not None:
        said = [*first.prompt, *probe.stand_in.tokens(first.scene.name, first.step)]
        same = _common(said, second.prompt)
        sizes = f"prompt {len(first.prompt)} and output {len(said) - len(first.prompt)} tokens"
        if same == len(said):
            return Finding("preserved", "the next prompt begins with this prompt and this output, id by id", (sizes,))
        lost = (
            f"the same up to token {same} of {len(said)}",
            f"said: {clipped(probe.text(said[same : same + 12]), 120)!r}",
            f"read: {clipped(probe.text(second.prompt[same : same + 12]), 120)!r}",
        )
        if respaced(probe.text(said[same:]), probe.text(second.prompt[same:])):
            reason = "read again with other white space: nothing is lost but the cached prefix"
            return Finding("adapted", reason, (sizes, *lost))
        return Finding("broken", "what the model reads is not what it said", (sizes, *lost))
    before, cached = first.turn.counts, second.turn.counts.cached
    evidence = (f"first turn {before.prompt} + {before.output} tokens", f"cached in the second: {cached}")
    if cached is None or before.prompt is None or before.output is None:
        return Finding("unknown", "the server states no cached tokens", evidence)
    if cached >= before.prompt + before.output - _BLOCK and before.output > _BLOCK // 2:
        return Finding("preserved", "the cache holds for this prompt and this output", evidence)
    return Finding("unknown", "what is stated as cached cannot tell", evidence)


def respaced(said: str, read: str) -> bool:
    """Whether a prompt goes on with what was said, white space aside."""
    return "".join(read.split()).startswith("".join(said.split()))


async def cache(probe: Probe) -> Finding:
    """Two questions after the same instructions and tools."""
    replies = [
        probe.accepted(await probe.ask("call", history=(User(text),), system=(SYSTEM * 8,)))
        for text in ("What is the weather in Cairo?", "And what is the weather in Quito?")
    ]
    return _shared(probe, replies[0], replies[1], "instructions and tools read the same each time")


async def volatile(probe: Probe) -> Finding:
    """The same, with the header of Claude Code that differs in each request."""
    replies = []
    for mark in ("0c19a", "7f3e2"):
        system = (_HEADER.format(mark), SYSTEM * 8)
        replies.append(probe.accepted(await probe.ask("call", system=system)))
    found = _shared(probe, replies[0], replies[1], "the header that changes does not reach the prompt")
    if found.word == "broken":
        return Finding(
            "unsupported", "the header that changes is read by the model and ends the cached prefix", found.evidence
        )
    return found


def _shared(probe: Probe, first: Reply, second: Reply, held: str) -> Finding:
    if first.prompt is not None and second.prompt is not None:
        same, least = _common(first.prompt, second.prompt), min(len(first.prompt), len(second.prompt))
        evidence = (f"the first {same} of {least} tokens are the same",)
        if same >= least * 0.8:
            return Finding("preserved", held, evidence)
        told = f"then: {clipped(probe.text(second.prompt[same : same + 12]), 120)!r}"
        return Finding("broken", "the prompts part early", (*evidence, told))
    prompt, cached = second.turn.counts.prompt, second.turn.counts.cached
    evidence = (f"{cached} of {prompt} tokens stated as cached",)
    if cached is None or not prompt:
        return Finding("unknown", "the server states no cached tokens", evidence)
    if cached >= 0.5 * prompt:
        return Finding("preserved", held, evidence)
    return Finding("broken" if cached * 10 < prompt else "unknown", "little of it was cached", evidence)


async def counting(probe: Probe) -> Finding:
    """The route that counts a prompt's tokens, against what a turn states."""
    if probe.api.counting is None:
        raise Verdict("unknown", "the API has no route that counts")
    path, field = probe.api.counting
    body = probe.body()
    kept = ("model", "messages", "system", "tools", "thinking", "input", "instructions")
    asked = await probe.wire.post(path, {name: body[name] for name in kept if name in body}, probe.headers())
    if asked.status != 200:
        return Finding(
            "unsupported", f"HTTP {asked.status} at {path}", (clipped(asked.body.decode("utf-8", "replace")),)
        )
    counted, stated = number(asked.document, field), (await probe.first("answer", stream=False)).turn.counts.prompt
    evidence = (f"counted {counted}, stated by the turn {stated}",)
    if counted is None:
        return Finding("broken", f"the answer has no {field}", evidence)
    if stated is None:
        return Finding("unknown", "the turn states no tokens", evidence)
    if counted == stated:
        return Finding("preserved", "the count is the turn's own", evidence)
    if abs(counted - stated) <= max(3, stated // 10):
        return Finding("adapted", "the count is near the turn's own", evidence)
    return Finding("broken", "the count is not the turn's", evidence)


async def stored(probe: Probe) -> Finding:
    """A conversation that goes on from a stored response, by its id."""
    first = probe.accepted(await probe.ask("answer", store=True))
    going = (User("Say it again."),)
    second = probe.accepted(await probe.ask("answer", history=going, step=1, store=True, previous=first.turn.id))
    if second.prompt is not None:
        if first.scene.question in probe.text(second.prompt):
            return Finding("preserved", "the model reads what was stored", (f"{len(second.prompt)} tokens",))
        return Finding(
            "broken", "accepted, but the model does not read what was stored", (f"{len(second.prompt)} tokens",)
        )
    alone, more = first.turn.counts.prompt, second.turn.counts.prompt
    evidence = (f"prompt tokens: {alone}, then {more}",)
    if alone is None or more is None:
        return Finding("unknown", "accepted; the server counts no prompt tokens", evidence)
    if more > alone:
        return Finding("preserved", "the model reads what was stored", evidence)
    return Finding("broken", "accepted, but the prompt is no longer for it", evidence)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
