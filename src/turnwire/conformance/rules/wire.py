"""Rules of the wire: what every client of an API relies on.

Promise: each is judged on turns that other rules ask for as well; a broken one names what was seen.
"""

from __future__ import annotations

from turnwire.conformance.probe import Probe, Reply, Verdict
from turnwire.conformance.turn import ProblemKind, Stop
from turnwire.conformance.words import Finding, clipped

__all__ = ["agree", "counts", "fields", "finish", "identities", "order", "stops", "unicode"]

_SCENES = ("answer", "call")


async def _replies(probe: Probe) -> list[Reply]:
    """Streams and documents of an answer and of a call."""
    replies = []
    for name in _SCENES:
        for stream in (True, False):
            try:
                replies.append(await probe.first(name, stream=stream))
            except Verdict as verdict:
                # A model that makes no call still shows the wire of its answers.
                if name == "answer" or verdict.finding.word != "unknown":
                    raise
    return replies


async def _problems(probe: Probe, kind: ProblemKind, held: str) -> Finding:
    replies = await _replies(probe)
    found = [
        f"{reply.scene.name}, {'stream' if reply.exchange.streamed else 'document'}: {problem.detail}"
        for reply in replies
        for problem in reply.turn.problems
        if problem.kind == kind
    ]
    if found:
        return Finding("broken", found[0], tuple(clipped(line) for line in found[:10]))
    events = sum(len(reply.exchange.frames) for reply in replies)
    return Finding("preserved", held, (f"{len(replies)} answers, {events} events",))


async def order(probe: Probe) -> Finding:
    return await _problems(probe, "order", "events come in the API's order")


async def fields(probe: Probe) -> Finding:
    return await _problems(probe, "fields", "every event and document has its fields")


async def finish(probe: Probe) -> Finding:
    return await _problems(probe, "finish", "each answer ends once")


async def agree(probe: Probe) -> Finding:
    found = await _problems(probe, "agree", "wholes are the sums of their parts")
    if found.word == "broken" or not probe.scripted:
        return found
    for name in _SCENES:
        stream, whole = await probe.first(name), await probe.first(name, stream=False)
        said, stated = _content(stream), _content(whole)
        if said != stated:
            return Finding(
                "broken", f"{name}: the stream and the document differ", (clipped(repr(said)), clipped(repr(stated)))
            )
    return Finding("preserved", "a stream, its summaries and the document say the same", found.evidence)


def _content(reply: Reply) -> tuple[str, str, list[tuple[str, object]]]:
    turn = reply.turn
    calls = [(call.name, call.arguments) for call in turn.of("call")]
    return turn.text("thinking").strip(), turn.text().strip(), calls


async def stops(probe: Probe) -> Finding:
    seen = []
    wanted: tuple[tuple[Stop, Reply | None], ...] = (
        ("end", await probe.first("answer")),
        ("calls", await _call_or_none(probe)),
        ("limit", probe.accepted(await probe.ask("long", most=12))),
    )
    for stop, reply in wanted:
        if reply is None:
            seen.append(f"{stop}: the model made no call")
            continue
        said = f"{stop}: {reply.turn.stop_text}"
        if stop == "end" and reply.turn.stop == "limit" and not probe.scripted:
            seen.append(f"{said} (the model did not come to an end by itself)")
        elif stop == "limit" and reply.turn.stop != "limit" and (reply.turn.counts.output or 0) < 12:
            seen.append(f"{said} (ended before the limit)")
        elif reply.turn.stop != stop:
            what = {"end": "its natural end", "calls": "a call", "limit": "max tokens"}[stop]
            return Finding("broken", f"a turn that ended by {what} says {reply.turn.stop_text!r}", (*seen, said))
        else:
            seen.append(said)
    return Finding("preserved", "the reason of each end is the API's word for it", tuple(seen))


async def _call_or_none(probe: Probe) -> Reply | None:
    try:
        return await probe.first("call")
    except Verdict as verdict:
        if verdict.finding.word == "unknown":
            return None
        raise


async def counts(probe: Probe) -> Finding:
    stream, whole = await probe.first("answer"), await probe.first("answer", stream=False)
    said, stated = stream.turn.counts, whole.turn.counts
    evidence = (f"stream: {said}", f"document: {stated}")
    for place, of in (("stream", said), ("document", stated)):
        if of.prompt is None or of.output is None:
            return Finding("broken", f"the {place} states no tokens", evidence)
        if of.output < 1 or of.prompt < 1:
            return Finding("broken", f"the {place} counts {of.prompt} prompt and {of.output} output tokens", evidence)
        if of.total is not None and of.total != of.prompt + of.output:
            return Finding("broken", f"the {place}'s total is not the sum", evidence)
    if said.prompt != stated.prompt:
        return Finding("broken", "the same prompt counts differently streamed and whole", evidence)
    if stream.prompt is not None and said.prompt != len(stream.prompt):
        return Finding("broken", f"the engine read {len(stream.prompt)} tokens, {said.prompt} are stated", evidence)
    if probe.stand_in is not None:
        made = len(probe.stand_in.tokens("answer", 0))
        # Whether the token that ends the turn counts is the server's choice.
        if said.output not in (made, made - 1):
            return Finding("broken", f"the engine made {made} tokens, {said.output} are stated", evidence)
    return Finding("preserved", "tokens are stated, add up and agree", evidence)


async def identities(probe: Probe) -> Finding:
    replies = [await probe.first("answer"), await probe.first("answer", stream=False)]
    call = await _call_or_none(probe)
    calls: list[str] = []
    if call is not None:
        again = probe.whole(await probe.ask("call"))
        replies += [call, again]
        calls = [block.id for reply in (call, again) for block in reply.turn.of("call")]
    names = [reply.turn.id for reply in replies]
    evidence = (
        f"answers: {', '.join(clipped(n, 60) for n in names)}",
        f"calls: {', '.join(clipped(n, 60) for n in calls)}",
    )
    if not all(names) or len(set(names)) != len(names):
        return Finding("broken", "two answers have one id, or none", evidence)
    if not all(calls) or len(set(calls)) != len(calls):
        return Finding("broken", "calls of two turns have one id, or none", evidence)
    return Finding("preserved", "ids of answers and calls are unique", evidence)


async def unicode(probe: Probe) -> Finding:
    text = (await probe.first("answer")).turn.text()
    if "\N{REPLACEMENT CHARACTER}" in text:
        return Finding("broken", "a character was cut in two", (clipped(text),))
    if probe.scripted:
        wanted = next(part.text for part in (await probe.first("answer")).scene.turns[0] if part.kind == "text")
        if text.strip() != wanted:
            return Finding("broken", "the text is not what the engine said", (clipped(text), clipped(wanted)))
    elif text.isascii():
        return Finding("unknown", "the model wrote ASCII only", (clipped(text),))
    return Finding("preserved", "characters of several bytes come whole", (clipped(text),))
