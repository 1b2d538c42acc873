"""Messages at the gateway: threads are resumed before the turn and kept after it.

Promise: a request that continues a thread is answered from the whole conversation or refused with `thread_not_found`;
nothing is kept of a turn that did not finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.types import Receive, Send

from turnwire.continuity import Verdict, anthropic_diagnostics
from turnwire.gateway.stores.store import Store
from turnwire.gateway.transports.http import Api, Host, TurnEndpoint
from turnwire.gateway.turns.passage import Passage
from turnwire.protocols import anthropic
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import Encoder, Inbound, TurnFailure
from turnwire.turns import Event, Usage

__all__ = ["MessagesEndpoint"]


class _Overheard:
    """An encoder that also keeps the answer as a message."""

    def __init__(self, encoder: Encoder, reply: Reply) -> None:
        self._encoder = encoder
        self._reply = reply
        self.media_type = encoder.media_type
        self.streams = encoder.streams

    def start(self, usage: Usage) -> bytes:
        return self._encoder.start(usage)

    def feed(self, events: Sequence[Event]) -> bytes:
        self._reply.feed(events)
        return self._encoder.feed(events)

    def keepalive(self) -> bytes:
        return self._encoder.keepalive()

    def fail(self, failure: TurnFailure) -> bytes:
        return self._encoder.fail(failure)


class MessagesEndpoint(TurnEndpoint):
    """`POST /v1/messages`."""

    def __init__(self, host: Host, api: Api, store: Store) -> None:
        super().__init__(host, api)
        self._store = store
        self._replies: dict[str, Reply] = {}

    async def decode(self, body: bytes, headers: Mapping[str, str], tenant: str) -> Inbound[anthropic.Echo]:
        inbound = await super().decode(body, headers, tenant)
        key = anthropic.thread_key(inbound)
        if key is None:
            return inbound
        return anthropic.continue_thread(inbound, anthropic.read_record(await self._store.get(_space(tenant), key)))

    def diagnostics(self, verdict: Verdict) -> Mapping[str, object] | None:
        return anthropic_diagnostics(verdict)

    def encoder(self, passage: Passage) -> Encoder:
        encoder = super().encoder(passage)
        if not _has_thread(passage):
            return encoder
        reply = self._replies[passage.turn_id] = Reply()
        return _Overheard(encoder, reply)

    async def settle(self, passage: Passage) -> None:
        reply = self._replies.get(passage.turn_id)
        if reply is None:
            return
        kept = anthropic.kept_thread(passage.inbound, passage.turn_id, reply.message())
        if kept is not None:
            space = _space(passage.tenant)
            await self._store.put(space, kept.key, kept.value)
            if kept.replaces is not None:
                await self._store.delete(space, kept.replaces)

    async def answer(self, passage: Passage, receive: Receive, send: Send) -> None:
        try:
            await super().answer(passage, receive, send)
        finally:
            self._replies.pop(passage.turn_id, None)


def _space(tenant: str) -> str:
    return f"{tenant}/threads"


def _has_thread(passage: Passage) -> bool:
    echo = passage.inbound.echo
    return isinstance(echo, anthropic.Echo) and echo.thread is not None
