"""The one way in: from what a transport brought to turns that are ready to run.

Promise: every request, whatever its API and transport, passes the same steps in the same order: drain, decode, rank,
limits, prompt, verdict. A refusal is a TurnFailure that says what to change.
"""

from __future__ import annotations

import time
from typing import Any, Protocol, TypeVar

from turnwire.continuity import Verdict, session_key
from turnwire.gateway.apis.api import Api
from turnwire.gateway.door.keys import ranked
from turnwire.gateway.door.limits import RequestLimits
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.ids import mint
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import Dialect, resolve
from turnwire.prompts.prompt import Prompt
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import Inbound, TurnFailure

__all__ = ["Admitting", "admit", "admit_round", "refuse_while_draining"]

E = TypeVar("E")
_PLAIN = resolve("plain")
_NO_PROMPT = Prompt(ids=[], tail="")


class Admitting(Protocol):
    """What admission needs of the gateway."""

    draining: bool
    dispatch: bool
    keeps_bodies: bool
    limits: RequestLimits

    def runtime_for(self, model: str) -> ModelRuntime: ...

    def serving(self, inbound: Inbound[Any]) -> ModelRuntime:
        """The model that answers a request; what the client should know about the choice becomes a note."""
        ...


def refuse_while_draining(gateway: Admitting) -> None:
    """Raise the refusal of a gateway that is about to stop."""
    if gateway.draining:
        raise TurnFailure("overloaded", "The gateway is shutting down; try again.", retry_after=1)


async def admit(gateway: Admitting, api: Api[E], arrival: Arrival) -> list[TurnRecord[E]]:
    """The turns of a request: one, or one for each prompt and choice it asks for. Its body is let go, unless the
    gateway keeps it with the turns: an agent's has hundreds of kilobytes, and its turn lasts for minutes."""
    refuse_while_draining(gateway)
    admitted: list[tuple[Inbound[E], ModelRuntime, Dialect, str, Prompt, Verdict, TurnFailure | None]] = []
    tenant = arrival.tenant
    for inbound in await api.decode(arrival):
        inbound.conversation = ranked(inbound.conversation, arrival.key)
        if inbound.dispatch is None:
            inbound.dispatch = gateway.dispatch
        runtime = gateway.serving(inbound)
        overflow = await _settled(gateway, arrival, inbound, runtime)
        session = session_key(tenant, inbound.conversation)
        if overflow is not None:
            prompt, verdict, dialect = _NO_PROMPT, Verdict(state="first"), runtime.dialect
        elif inbound.prompt is None:
            prompt, verdict, overflow = await _prepared(runtime, inbound, tenant, session)
            dialect = runtime.dialect
        else:
            prompt, verdict, dialect = runtime.raw_prompt(inbound.prompt), Verdict(state="first"), _PLAIN
        admitted += [
            (inbound.choice(number), runtime, dialect, session, prompt, verdict, overflow)
            for number in range(inbound.choices)
        ]
    body, arrival.body = arrival.body if gateway.keeps_bodies else b"", b""
    return [
        TurnRecord(
            api=api.name,
            turn_id=mint(),
            tenant=tenant,
            session=session,
            key=arrival.key.name,
            started=arrival.started,
            headers=arrival.headers,
            body=body,
            inbound=inbound,
            runtime=runtime,
            dialect=dialect,
            exact=inbound.prompt is None,
            prompt=prompt,
            continuity=verdict,
            overflow=overflow,
        )
        for inbound, runtime, dialect, session, prompt, verdict, overflow in admitted
    ]


async def admit_round(before: TurnRecord[E], inbound: Inbound[E]) -> TurnRecord[E]:
    """The next round of an answer in which the gateway ran tools: the same request, further on."""
    session = session_key(before.tenant, inbound.conversation)
    prompt, verdict = await before.runtime.prepare(inbound, before.tenant, session)
    return TurnRecord(
        api=before.api,
        turn_id=mint(),
        tenant=before.tenant,
        session=session,
        key=before.key,
        started=time.monotonic(),
        headers=before.headers,
        body=before.body,
        inbound=inbound,
        runtime=before.runtime,
        dialect=before.dialect,
        exact=before.exact,
        prompt=prompt,
        continuity=verdict,
        reply=Reply(),
    )


async def _settled(
    gateway: Admitting, arrival: Arrival, inbound: Inbound[Any], runtime: ModelRuntime
) -> TurnFailure | None:
    """Check a request against the limits. One that is large gets its messages only now; the refusal where they cannot
    fit into the window."""
    if arrival.large is None:
        gateway.limits.check(inbound.conversation, len(arrival.body), fetches=runtime.fetches)
        return None
    density = runtime.tokenizer.density if runtime.writes_prompts else None
    least = await arrival.large.settle(inbound, window=runtime.window, density=density, fetches=runtime.fetches)
    return None if least is None else runtime.too_long(least)


async def _prepared(
    runtime: ModelRuntime, inbound: Inbound[Any], tenant: str, session: str
) -> tuple[Prompt, Verdict, TurnFailure | None]:
    """The prompt and its verdict; an empty one with the refusal where it cannot fit into the window."""
    try:
        return (*await runtime.prepare(inbound, tenant, session), None)
    except TurnFailure as failure:
        if failure.kind != "context_overflow":
            raise
        return _NO_PROMPT, Verdict(state="first"), failure.with_traceback(None)
