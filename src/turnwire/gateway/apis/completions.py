"""Completions at the gateway: prompts go to the engine as they are.

Promise: the same turns as everywhere else (heartbeat, limits, one write per wake-up, ends with the engine's own word),
but with no template before them and a dialect that sees only text behind them; nothing of them is remembered.
"""

from __future__ import annotations

import time

from starlette.types import Receive, Scope, Send

from turnwire.continuity import Verdict
from turnwire.gateway.door.keys import Key, ranked
from turnwire.gateway.transports.http import (
    ASGISink,
    TurnEndpoint,
    headers_of,
    key_of,
    mint,
    response_headers,
    tenant_of,
)
from turnwire.gateway.turns.passage import Passage
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.gateway.turns.side_by_side import run_side_by_side
from turnwire.gateway.turns.turn import Turn
from turnwire.parsers import resolve
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.recall.seals import TurnSealer
from turnwire.prompts.recall.witness import Witness
from turnwire.protocols import completions
from turnwire.protocols.wire import Inbound, TurnFacts, TurnFailure
from turnwire.turns import Conversation, Message, TextBlock

__all__ = ["CompletionsEndpoint"]


class _BareModel(ModelRuntime):
    """A served model without its manners: plain text, no seals, no memory."""

    def __init__(self, runtime: ModelRuntime) -> None:
        self.__dict__.update(runtime.__dict__)
        self.dialect = resolve("plain")

    def seals_for(self, tenant: str, turn_id: str, tail: str, witness: Witness) -> TurnSealer | None:
        return None

    def remember(self, passage: Passage) -> None:
        """A raw completion is no turn of a conversation."""


class CompletionsEndpoint(TurnEndpoint):
    """`POST /v1/completions`."""

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        body = await self.body(headers, receive)
        asked = completions.decode(body, headers, limits=self._host.limits.wire)
        runtime = _BareModel(self._host.runtime_for(asked.model))
        if runtime.engine.capabilities.yields == "events":
            raise TurnFailure(
                "invalid_request",
                f"The engine behind {asked.model} takes conversations, not prompts; use /v1/chat/completions.",
            )
        passages = [
            Passage(
                api=self._api.name,
                turn_id=mint(),
                tenant=tenant_of(scope),
                started=time.monotonic(),
                headers=headers,
                body=body,
                inbound=_inbound(asked, text, key_of(scope)),
                runtime=runtime,
                prompt=Prompt(ids=ids, tail=""),
                continuity=Verdict(state="first"),
            )
            for text, ids in (_prompt(prompt, runtime) for prompt in asked.prompts)
            for _ in range(asked.choices)
        ]
        facts = TurnFacts(turn_id=passages[0].turn_id, model=asked.model, created=int(time.time()))
        shared = completions.SharedAnswer(facts, asked)
        make = completions.StreamEncoder if asked.stream else completions.DocumentEncoder
        turns = [
            Turn(passage, make(shared, index, passage.inbound.conversation.last_user_text), mint=mint)
            for index, passage in enumerate(passages)
        ]
        sink = ASGISink(send, make.media_type, response_headers(passages[0]))
        await run_side_by_side(self._host, turns, sink, receive)


def _prompt(prompt: str | tuple[int, ...], runtime: ModelRuntime) -> tuple[str, list[int]]:
    """A prompt as text and as token ids, whichever way it came."""
    if isinstance(prompt, str):
        return prompt, runtime.tokenizer.encode(prompt)
    size = runtime.tokenizer.vocab_size
    if any(token >= size for token in prompt):
        raise TurnFailure("invalid_request", f"prompt: token ids go from 0 to {size - 1}", param="prompt")
    return runtime.tokenizer.decode(prompt), list(prompt)


def _inbound(asked: completions.Asked, text: str, key: Key) -> Inbound[None]:
    conversation = Conversation(
        model=asked.model,
        messages=(Message(role="user", blocks=(TextBlock(text=text),)),),
        sampling=asked.sampling,
        context=asked.context,
    )
    return Inbound(conversation=ranked(conversation, key), stream=asked.stream, notes=asked.notes, echo=None)
