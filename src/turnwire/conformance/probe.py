"""What a judge works with: asks turns of one API of one server, and knows what the stand-in read.

Promise: a scene's first turn is asked once and shared by all rules that look at it; a refusal, a failure or a turn
that the model did not make ends the judge with the word for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.conformance.apis.interface import Api, Ask
from turnwire.conformance.exchange import Exchange, Wire
from turnwire.conformance.scenes import SCENES, Scene
from turnwire.conformance.stand_in import StandIn
from turnwire.conformance.turn import Message, Result, Turn, User
from turnwire.conformance.values import items, number, string
from turnwire.conformance.words import Finding, Word, clipped

__all__ = ["SYSTEM", "Probe", "Reply", "Verdict"]

SYSTEM = "You are a careful agent. You use the tools you are given, and you answer in few words."
_RESULT = "12 degrees, light rain"
# Answers that say: not here.
_ABSENT = (404, 405, 501)


class Verdict(Exception):
    """Ends a judge with a finding."""

    def __init__(self, word: Word, reason: str, *evidence: str) -> None:
        super().__init__(reason)
        self.finding = Finding(word, reason, evidence)


class Reply(msgspec.Struct):
    """An answer with its turn. `prompt` is what the engine read, where a stand-in shows it."""

    scene: Scene
    step: int
    exchange: Exchange
    turn: Turn
    messages: tuple[Message, ...]
    prompt: list[int] | None = None


class Probe:
    """One API of one server."""

    def __init__(self, wire: Wire, api: Api, model: str, stand_in: StandIn | None, scripted: bool, most: int) -> None:
        self.wire = wire
        self.api = api
        self.model = model
        self.stand_in = stand_in
        self.scripted = scripted
        self.most = most
        self._first: dict[tuple[str, bool], Reply] = {}

    async def first(self, name: str, *, stream: bool = True) -> Reply:
        """The first turn of a scene, whole and as the scene wants it."""
        known = self._first.get((name, stream))
        if known is None:
            known = self._first[name, stream] = await self.ask(name, stream=stream)
        return self.whole(known)

    def asked(self) -> list[Reply]:
        """Every first turn that was asked so far."""
        return list(self._first.values())

    async def after(self, reply: Reply, *, failed: bool = False, text: str = _RESULT, **options: Any) -> Reply:
        """The next turn: every call of the last one is answered with `text`."""
        results = [Result(call.id, text, failed) for call in reply.turn.of("call")]
        going: list[Message] = [*results] or [User("Go on.")]
        history = (*reply.messages, reply.turn, *going)
        return await self.ask(reply.scene.name, history=history, step=reply.step + 1, **options)

    async def ask(
        self,
        name: str,
        *,
        history: Sequence[Message] = (),
        step: int = 0,
        leave_after: int | None = None,
        system: tuple[str, ...] = (SYSTEM,),
        **options: Any,
    ) -> Reply:
        """One turn of a scene; whatever comes back is in the reply."""
        scene = SCENES[name]
        if self.stand_in is not None:
            self.stand_in.play(name, min(step, len(scene.turns) - 1))
        messages = tuple(history) or (User(scene.question),)
        forced = scene.needs != "text" and step == 0 and not self.scripted
        options = {"most": self.most, "forced": forced} | options
        ask = Ask(model=self.model, messages=messages, system=system, tools=scene.tools, **options)
        before = len(self.stand_in.heard()) if self.stand_in is not None else 0
        exchange = await self.wire.post(self.api.path, self.api.body(ask), self.headers(), leave_after)
        heard = self.stand_in.heard()[before:] if self.stand_in is not None else []
        turn = self.api.read(exchange)
        return Reply(scene, step, exchange, turn, messages, heard[-1] if heard else None)

    def body(self, **options: Any) -> dict[str, Any]:
        """A legal request's body: the scene `answer`, not streamed."""
        messages = (User(SCENES["answer"].question),)
        options = {"most": self.most, "stream": False} | options
        return self.api.body(Ask(model=self.model, messages=messages, system=(SYSTEM,), **options))

    def headers(self) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01"} if self.api.name == "messages" else {}

    def whole(self, reply: Reply) -> Reply:
        """The reply, or a verdict where it is none, or lacks what its scene needs."""
        self.accepted(reply)
        needs, turn = reply.scene.needs, reply.turn
        if reply.step == 0 and needs != "text":
            calls = len(turn.of("call"))
            if calls < (2 if needs == "calls" else 1):
                said = f"it said: {clipped(turn.text() or turn.text('thinking'), 200)}"
                if self.scripted:
                    raise Verdict("broken", f"{calls} calls came back where the engine made {needs}", said)
                raise Verdict("unknown", f"the model made {calls} calls where {needs} are needed", said)
        return reply

    def accepted(self, reply: Reply) -> Reply:
        """The reply, or a verdict where the server refused or failed."""
        exchange, turn = reply.exchange, reply.turn
        if exchange.fault is not None:
            raise Verdict("broken", f"the answer did not end: {exchange.fault}")
        if exchange.status in _ABSENT:
            raise Verdict("unsupported", f"HTTP {exchange.status} at {exchange.path}", clipped(_body(exchange)))
        if 400 <= exchange.status < 500:
            raise Verdict("unsupported", f"refused with HTTP {exchange.status}", clipped(_body(exchange)))
        if exchange.status >= 500 or exchange.status < 200:
            raise Verdict("broken", f"HTTP {exchange.status} to a legal request", clipped(_body(exchange)))
        if turn.error is not None:
            raise Verdict("broken", "the answer is an error", clipped(turn.error))
        return reply

    def text(self, ids: Sequence[int]) -> str:
        """A prompt as text."""
        return self.stand_in.text(ids) if self.stand_in is not None else ""

    async def window(self) -> int | None:
        """The model's window, as the server states it."""
        listed = (await self.wire.get("/v1/models")).document
        rows = items(listed, "data")
        row = next((row for row in rows if string(row, "id") == self.model), rows[0] if rows else None)
        for path in (
            ("max_model_len",),
            ("context_length",),
            ("context_window",),
            ("meta", "n_ctx"),
            ("max_input_tokens",),
        ):
            if (found := number(row, *path)) is not None:
                return found
        return None


def _body(exchange: Exchange) -> str:
    return exchange.body.decode("utf-8", "replace")
