"""An answer of several rounds: the model calls a tool of the gateway's, reads what it answered, and goes on.

Promise: the client gets one answer with one beginning and one end. Every round is a turn of its own to the engine, and
its prompt repeats the rounds before it exactly; it is begun only while the request's limits allow. A round that also
calls a tool of the client's ends the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from turnwire.gateway.hosted.tools import HostedTools
from turnwire.gateway.turns.admission import admit_round
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols.hosted.answers import result_block
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import Encoder, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    HostedAnswer,
    HostedAnswered,
    HostedCalled,
    HostedUse,
    Message,
    SealCarried,
    ToolCallClosed,
    ToolChoice,
    TurnReport,
    Usage,
)

__all__ = ["RoundEncoder", "Rounds"]


class RoundEncoder:
    """The encoder of an answer, given one round after another. `calls` are the calls of the present round that the
    gateway must answer; with any, its end is held back."""

    def __init__(self, inner: Encoder, uses: Mapping[str, HostedUse]) -> None:
        self.media_type = inner.media_type
        self.streams = inner.streams
        self.carried = False
        self._inner = inner
        self._uses = uses
        self._shift = 0
        self._next = 0
        self._open: set[int] = set()
        self._started = False
        self._spent = Usage(0)
        self._held: list[Event] = []
        self.round = 0
        self.calls: list[HostedCalled] = []
        self.mixed = False

    @property
    def reason(self) -> str:
        """How the round ended that is held back."""
        return next((event.reason for event in self._held if isinstance(event, Finished)), "")

    @property
    def output(self) -> int:
        """Tokens of all rounds so far."""
        return self._spent.output

    def start(self, usage: Usage) -> bytes:
        if self._started:
            return b""
        self._started = True
        return self._inner.start(usage)

    def feed(self, events: Sequence[Event]) -> bytes:
        told: list[Event] = []
        for event in events:
            self._take(event, told)
        data = self._inner.feed(told) if told else b""
        self.carried = self._inner.carried
        return data

    def running(self, index: int) -> None:
        return None

    def keepalive(self) -> bytes:
        return self._inner.keepalive()

    def fail(self, failure: TurnFailure) -> bytes:
        return self._inner.fail(failure)

    def answered(self, called: HostedCalled, answer: HostedAnswer) -> bytes:
        """A call's answer on its way to the client."""
        return self._inner.feed((HostedAnswered(self._place(), called, answer),))

    def go_on(self) -> None:
        """Another round follows."""
        self._held, self.calls, self.mixed = [], [], False
        self._shift, self._open = self._next, set()
        self.round += 1

    def end(self, *, paused: bool) -> bytes:
        """The end that was held back."""
        held = self._held
        if paused:
            held = [Finished("paused") if isinstance(event, Finished) else event for event in held]
        return self._inner.feed(held)

    def _take(self, event: Event, told: list[Event]) -> None:
        match event:
            case BlockOpened() if event.kind == "tool_call" and event.name in self._uses:
                self._open.add(event.index)
                self._next = max(self._next, event.index + self._shift + 1)
            case BlockDelta() if event.index in self._open:
                return
            case ToolCallClosed() if event.index in self._open:
                arguments = event.arguments or "{}"
                called = HostedCalled(
                    event.index + self._shift, event.call_id, event.name, arguments, self._uses[event.name]
                )
                self.calls.append(called)
                told.append(called)
            case BlockOpened() | BlockDelta() | BlockClosed() | ToolCallClosed():
                self.mixed = self.mixed or isinstance(event, ToolCallClosed)
                place = event.index + self._shift
                self._next = max(self._next, place + 1)
                told.append(msgspec.structs.replace(event, index=place) if self._shift else event)
            case SealCarried():
                told.append(SealCarried(self._place(), event.seal, more=bool(self.calls)))
            case Usage():
                self._spent = _sum(self._spent, event)
                (self._held if self.calls else told).append(self._spent)
            case TurnReport() | Finished():
                (self._held if self.calls else told).append(event)
            case _:
                told.append(event)

    def _place(self) -> int:
        self._next += 1
        return self._next - 1


class Rounds:
    """The rounds of one request. `follows`: another one will be asked for."""

    def __init__(
        self,
        first: TurnRecord[Any],
        encoder: Encoder,
        tools: HostedTools,
        finished: Callable[[TurnRecord[Any]], Awaitable[None]],
    ) -> None:
        self.encoder = RoundEncoder(encoder, first.inbound.hosted)
        self.follows = False
        self._first = first
        self._present = first
        self._tools = tools
        self._finished = finished
        self._uses: dict[str, int] = {}
        self._answers: dict[str, HostedAnswer] = {}
        self._earlier: list[Message] = []
        self._paused = False
        first.reply = Reply()

    @property
    def pending(self) -> bool:
        """Whether the round that just ended has calls of ours."""
        return bool(self.encoder.calls)

    async def finished(self, record: TurnRecord[Any]) -> None:
        """A round has ended; what is kept is the whole answer."""
        if not self.pending:
            await self._keep()

    async def answer(self, put: Callable[[bytes], None]) -> None:
        """Run the calls of this round, all at once; each answer leaves when it is there, in the order of the calls."""
        calls = self.encoder.calls
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run(called)) for called in calls]
            for called, task in zip(calls, running, strict=True):
                answer = self._answers[called.call_id] = await task
                put(self.encoder.answered(called, answer))
        exhausted = all(self._answers[called.call_id].error == "max_uses_exceeded" for called in calls)
        self._paused = exhausted or self.encoder.round + 1 >= self._tools.most_rounds
        over = self.encoder.mixed or self.encoder.reason != "tool_calls" or self._room() == 0
        self.follows = not over and not self._paused
        self._paused = self._paused and not over

    async def close(self) -> bytes:
        """The end of an answer whose last round called a tool."""
        data = self.encoder.end(paused=self._paused)
        await self._keep()
        return data

    async def following(self) -> TurnRecord[Any]:
        """The next round, admitted."""
        before = self._present
        assert before.reply is not None
        results = tuple(result_block(called, self._answers[called.call_id]) for called in self.encoder.calls)
        self._earlier += (before.reply.message(), Message(role="user", blocks=results))
        asked = before.inbound.conversation
        first = self._first.inbound.conversation
        conversation = msgspec.structs.replace(
            first,
            messages=(*first.messages, *self._earlier),
            tool_choice=ToolChoice(parallel=asked.tool_choice.parallel),
            sampling=msgspec.structs.replace(asked.sampling, max_tokens=self._room()),
        )
        inbound = msgspec.structs.replace(before.inbound, conversation=conversation, previous_turn=None, notes=())
        self.encoder.go_on()
        self.follows = False
        self._present = await admit_round(before, inbound)
        return self._present

    async def _run(self, called: HostedCalled) -> HostedAnswer:
        name, most = called.use.server, called.use.most
        self._uses[name] = self._uses.get(name, 0) + 1
        if most is not None and self._uses[name] > most:
            return HostedAnswer(error="max_uses_exceeded")
        return await self._tools.run(called, self._first.key)

    def _room(self) -> int | None:
        """What is left of the tokens that the whole answer may have."""
        wanted = self._first.inbound.conversation.sampling.max_tokens
        return None if wanted is None else max(wanted - self.encoder.output, 0)

    async def _keep(self) -> None:
        self._first.outcome = self._present.outcome
        kept = msgspec.structs.replace(self._first, reply=self._present.reply, rounds=tuple(self._earlier))
        await self._finished(kept)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.prompt + other.prompt,
        one.cached + other.cached,
        one.output + other.output,
        one.reasoning + other.reasoning,
    )
