"""What the next turn of a conversation will begin with, told to the pool when a turn ends; and what a session that is
about to start will.

Promise: the prefix is exact: it is what the builder writes for the conversation with this answer and any next message,
up to where two different next messages part. It is worked out after the client has its answer, and costs a turn
nothing. Off unless the operator turns it on, since a prefix that is never asked for is read for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal, TypeAlias

import msgspec

from turnwire.engines.interface import GenerateRequest
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.turns.asking import hints_of
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.gateway.turns.turn import Turn
from turnwire.prompts.prompt import Prompt
from turnwire.protocols.reply import Reply
from turnwire.shared_prefix import shared_prefix
from turnwire.token_ids import packed_ids
from turnwire.turns import Block, Conversation, Message, Note, Sampling, TextBlock, ToolCallBlock, ToolResultBlock

__all__ = ["NextPrompts", "ReadAheadMode", "beginning", "scaffold"]

log = logging.getLogger("turnwire.turn")

ReadAheadMode: TypeAlias = Literal["off", "hinted", "always"]

_NEXT = ("0", "The")
"""Two next messages that have nothing in common."""


def scaffold(conversation: Conversation) -> Conversation:
    """What every session of a client begins with: the system text and the tools, and nothing that was said."""
    said = next(
        (place for place, message in enumerate(conversation.messages) if message.role not in ("system", "developer")),
        len(conversation.messages),
    )
    return msgspec.structs.replace(conversation, messages=conversation.messages[:said])


async def beginning(runtime: ModelRuntime, conversation: Conversation, tenant: str) -> list[int]:
    """What a conversation's prompt begins with, whatever its user says next."""
    one, other = [packed_ids((await runtime.build(_said(conversation, text), tenant)).ids) for text in _NEXT]
    return list(one[: shared_prefix(one, other)])


def _said(conversation: Conversation, text: str) -> Conversation:
    following = Message(role="user", blocks=(TextBlock(text=text),))
    return msgspec.structs.replace(conversation, messages=(*conversation.messages, following))


class NextPrompts:
    """Works out next prompts after turns: for all of them, for those whose request asks for it (`hinted`), or none."""

    def __init__(self, mode: ReadAheadMode) -> None:
        self._mode = mode
        self._tasks: set[asyncio.Task[None]] = set()

    def begun(self, turn: Turn) -> None:
        """A turn is about to run: what it says will be needed."""
        record = turn.record
        asked = record.inbound.conversation.context.read_ahead
        if self._wanted(record):
            record.reply = record.reply or Reply()
        elif asked and self._mode == "off":
            note = Note("routing.read_ahead_off", "The next prompt is not read ahead: speculative_prefill is off here.")
            record.inbound.notes = (*record.inbound.notes, note)

    def finished(self, record: TurnRecord[Any]) -> None:
        """A turn is over."""
        if self._wanted(record) and record.reply is not None and record.finish in ("stop", "tool_calls"):
            task = asyncio.ensure_future(self._read_ahead(record, record.reply.message()))
            self._tasks.add(task)
            task.add_done_callback(self._over)

    def expected(self, record: TurnRecord[Any]) -> None:
        """A client says that it will go on from this conversation, and asks for nothing yet."""
        if self._mode != "off" and isinstance(record.runtime.engine, WorkerPool) and record.prompt.ids:
            task = asyncio.ensure_future(self._warm(record, record.runtime.engine))
            self._tasks.add(task)
            task.add_done_callback(self._over)

    async def _warm(self, record: TurnRecord[Any], pool: WorkerPool) -> None:
        conversation = record.inbound.conversation
        request = GenerateRequest(
            prompt_ids=await beginning(record.runtime, conversation, record.tenant),
            sampling=Sampling(),
            hints=hints_of(record),
            conversation=conversation,
            stop_token_ids=record.runtime.stop_token_ids,
        )
        await pool.read_ahead.warm(request, every=False)

    def _wanted(self, record: TurnRecord[Any]) -> bool:
        context = record.inbound.conversation.context
        return (
            self._mode != "off"
            and (self._mode == "always" or context.read_ahead)
            and record.exact
            and not record.runtime.shown(record.inbound.conversation)
            and not context.final
            and isinstance(record.runtime.engine, WorkerPool)
            and record.runtime.engine.capabilities.yields == "tokens"
        )

    async def _read_ahead(self, record: TurnRecord[Any], answer: Message) -> None:
        runtime, outcome = record.runtime, record.outcome
        assert outcome is not None
        assert isinstance(runtime.engine, WorkerPool)
        one, other = [await self._following(record, answer, text) for text in _NEXT]
        first = packed_ids(one.ids)
        ids = one.ids[: shared_prefix(first, packed_ids(other.ids))]
        known = shared_prefix(first[: len(ids)], packed_ids(record.prompt.ids) + packed_ids(outcome.output_ids))
        request = GenerateRequest(
            prompt_ids=ids,
            sampling=Sampling(),
            hints=hints_of(record),
            conversation=record.inbound.conversation,
            stop_token_ids=runtime.stop_token_ids,
        )
        runtime.engine.read_ahead.begin(request, known)

    async def _following(self, record: TurnRecord[Any], answer: Message, text: str) -> Prompt:
        """The prompt of the turn after this one, if its client says `text` next."""
        conversation = record.inbound.conversation
        calls = [block for block in answer.blocks if isinstance(block, ToolCallBlock)]
        said: tuple[Block, ...] = tuple(
            ToolResultBlock(call_id=call.id, name=call.name, content=(TextBlock(text=text),)) for call in calls
        )
        following = Message(role="user", blocks=said or (TextBlock(text=text),))
        messages = (*conversation.messages, answer, following)
        return await record.runtime.build(msgspec.structs.replace(conversation, messages=messages), record.tenant)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("no next prompt was worked out: %s: %s", type(error).__name__, error)
