"""Completions: prompts go to the engine as they are.

Promise: the same turns as everywhere else, but with no template before them and a dialect that sees only text; nothing
of them is sealed or remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.gateway.apis.api import Headers, answer_headers, facts_of
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols import chat, completions
from turnwire.protocols.completions import Asked
from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Encoder, ErrorReply, Inbound, TurnFailure
from turnwire.turns import Conversation, Message, TextBlock

__all__ = ["Completions"]


class Completions:
    """`POST /v1/completions`."""

    name = "completions"
    call_prefix = "call_"
    large_bodies = False

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def decode(self, arrival: Arrival) -> Sequence[Inbound[Asked]]:
        asked = completions.decode(arrival.body, arrival.headers, limits=self._limits)
        return [_inbound(asked, prompt) for prompt in asked.prompts]

    def begin(self, turns: Sequence[TurnRecord[Asked]], framing: Framing = SSE) -> Sequence[Encoder]:
        asked = turns[0].inbound.echo
        shared = completions.SharedAnswer(facts_of(turns[0]), asked)
        make = completions.StreamEncoder if asked.stream else completions.DocumentEncoder
        return [make(shared, index, _text(turn) if asked.echo else "") for index, turn in enumerate(turns)]

    async def finished(self, turn: TurnRecord[Asked]) -> None:
        """Nothing is kept of a raw completion."""

    async def end(self, turns: Sequence[TurnRecord[Asked]]) -> None:
        """Nothing of a raw completion lives on."""

    def refuse(self, failure: TurnFailure, turn: TurnRecord[Asked] | None = None) -> ErrorReply:
        return chat.error_reply(failure)

    def headers(self, turn: TurnRecord[Asked]) -> Headers:
        return answer_headers(turn)


def _text(turn: TurnRecord[Asked]) -> str:
    prompt = turn.inbound.prompt
    return prompt if isinstance(prompt, str) else turn.runtime.tokenizer.decode(turn.prompt.ids)


def _inbound(asked: Asked, prompt: str | tuple[int, ...]) -> Inbound[Asked]:
    # The scripted engine picks its line by the last words of the user.
    text = prompt if isinstance(prompt, str) else ""
    conversation = Conversation(
        model=asked.model,
        messages=(Message(role="user", blocks=(TextBlock(text=text),)),),
        sampling=asked.sampling,
        context=asked.context,
    )
    return Inbound(
        conversation=conversation,
        stream=asked.stream,
        notes=asked.notes,
        echo=asked,
        prompt=prompt,
        choices=asked.choices,
        report=asked.extensions.report,
        annotations=asked.extensions.annotations,
    )
