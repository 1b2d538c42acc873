"""An API as the gateway sees it: one object that decodes its requests, encodes its turns and phrases its refusals.

Promise: an API knows nothing of transports, and everything between decode and encode is shared. There is no base class:
whatever has these methods is an API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from turnwire.continuity import Verdict
from turnwire.continuity import header as prefix_header
from turnwire.gateway.door.keys import Key
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.hosted.offer import HostedOffer
from turnwire.protocols.wire import Encoder, ErrorReply, Inbound, TurnFacts, TurnFailure

__all__ = ["Api", "Headers", "Offering", "answer_headers", "decoded", "facts_of"]

E = TypeVar("E")
T = TypeVar("T")

_LARGE = 1 << 20
"""Bytes of a body that the event loop does not decode itself, where no process does."""

Headers = list[tuple[bytes, bytes]]


class Api(Protocol[E]):
    """What differs between APIs. `E` is what its encoder must repeat of a request; `call_prefix` starts the ids of its
    tool calls; `large_bodies` says that it can have a large body decoded elsewhere."""

    name: str
    call_prefix: str
    large_bodies: bool

    async def decode(self, arrival: Arrival) -> Sequence[Inbound[E]]:
        """What the request asks for, one entry for each prompt; stored things that it refers to are fetched here."""
        ...

    def begin(self, turns: Sequence[TurnRecord[E]], framing: Framing = SSE) -> Sequence[Encoder]:
        """The encoder of each of a request's turns; from now on the turns run."""
        ...

    async def finished(self, turn: TurnRecord[E]) -> None:
        """The engine has finished a turn: keep what must be kept of it before its client gets the end."""
        ...

    async def end(self, turns: Sequence[TurnRecord[E]]) -> None:
        """The turns of a request are over, whatever became of them."""
        ...

    def refuse(self, failure: TurnFailure, turn: TurnRecord[E] | None = None) -> ErrorReply:
        """A failure before any byte of the answer; `turn` is known once the request was admitted."""
        ...

    def headers(self, turn: TurnRecord[E]) -> Headers:
        """What the answer says about itself before its first byte."""
        ...


class Offering(Protocol):
    """Says which hosted tools the gateway runs for a key."""

    async def offer(self, key: Key) -> HostedOffer: ...


async def decoded(body: bytes, cache: DecodedParts, work: Callable[[DecodedParts | None], T]) -> T:
    """What `work` makes of a body. A large one is decoded beside the event loop, without the cache of what was decoded
    before: it is not made for two at a time."""
    if len(body) < _LARGE:
        return work(cache)
    return await asyncio.to_thread(work, None)


def facts_of(
    turn: TurnRecord[E], diagnostics: Callable[[Verdict], Mapping[str, object] | None] | None = None
) -> TurnFacts:
    """What is fixed before a turn starts. `diagnostics` says in the API's words how its prefix held."""
    inbound = turn.inbound
    return TurnFacts(
        turn_id=turn.turn_id,
        model=inbound.conversation.model,
        created=turn.created,
        dispatch=bool(inbound.dispatch),
        diagnostics=diagnostics(turn.continuity) if diagnostics is not None and inbound.previous_turn else None,
        annotations={name: _annotation(name, turn) for name in inbound.annotations} if inbound.annotations else {},
    )


def _annotation(name: str, turn: TurnRecord[E]) -> str | None:
    """What an annotation says. A prompt that the engine renders itself is not known here, and the value is null."""
    if name == "request_id":
        return turn.turn_id
    if not turn.runtime.writes_prompts:
        return None
    if name == "token_ids":
        return f"[{','.join(map(str, turn.prompt.ids))}]"
    return turn.runtime.tokenizer.decode(turn.prompt.ids)


def answer_headers(turn: TurnRecord[E]) -> Headers:
    """What every answer says about itself: its id, whether the prefix held, where it runs and why if that is known by
    now, and the codes of its notes so far."""
    notes = (*turn.inbound.notes, *turn.prompt.notes)
    headers = [
        (b"request-id", f"req_{turn.turn_id}".encode()),
        (b"x-turnwire-prefix", prefix_header(turn.continuity).encode("latin-1", "replace")),
    ]
    if turn.route is not None:
        headers.append((b"x-turnwire-worker", turn.route.label.encode()))
        headers.append((b"x-turnwire-route", turn.route.header.encode()))
    if notes:
        codes = sorted({note.code for note in notes})
        headers.append((b"x-turnwire-notes", ",".join(codes)[:1024].encode("latin-1", "replace")))
    return headers
