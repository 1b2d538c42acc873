"""Message threads: a request that names the last answer instead of repeating the conversation.

Promise: `continue` yields the conversation that a client with the full history would have sent, or a failure that
makes the client send it. The store is the gateway's and is awaited only here; what is kept is one record per thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from turnwire.protocols.anthropic.context_management import TokenCounter, apply_edits, estimate_tokens
from turnwire.protocols.anthropic.echo import Echo
from turnwire.protocols.anthropic.vocabulary import message_id
from turnwire.protocols.json_body import invalid
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import (
    Block,
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Message,
    ReasoningBlock,
    SealCarried,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolCallClosed,
    ToolResultBlock,
)

__all__ = ["Reply", "ThreadRecord", "ThreadStore", "continue_thread", "keep_thread", "record_turn", "resume_thread"]


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation up to and including one answer, as the client knows it: before any context edit."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


class ThreadStore(Protocol):
    """Where records live: bytes under a space (tenant and kind) and a key. A store may forget; the client then repeats
    all."""

    async def get(self, space: str, key: str) -> bytes | None: ...

    async def put(self, space: str, key: str, value: bytes) -> None: ...

    async def delete(self, space: str, key: str) -> bool: ...


_RECORD = msgspec.msgpack.Decoder(ThreadRecord)
_encode = msgspec.msgpack.Encoder().encode


class Reply:
    """Collects the events of a turn into the assistant message that a client would send back."""

    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}
        self._blocks: dict[int, Block] = {}

    def feed(self, events: Sequence[Event]) -> None:
        """Take a batch of the turn's events."""
        for event in events:
            match event:
                case BlockOpened():
                    self._texts[event.index] = []
                case BlockDelta():
                    self._texts[event.index].append(event.text)
                case BlockClosed():
                    text = "".join(self._texts.pop(event.index))
                    if event.kind == "reasoning":
                        self._blocks[event.index] = ReasoningBlock(text=text, seal=event.seal or None)
                    elif text and not text.isspace():
                        self._blocks[event.index] = TextBlock(text=text)
                case ToolCallClosed():
                    self._texts.pop(event.index, None)
                    self._blocks[event.index] = ToolCallBlock(
                        id=event.call_id, name=event.name, arguments=event.arguments or "{}"
                    )
                case SealCarried():
                    self._blocks[event.index] = ReasoningBlock(text="", seal=event.seal, redacted=True)

    def message(self) -> Message:
        """The answer as a message of the conversation."""
        return Message(role="assistant", blocks=tuple(self._blocks.values()))


def record_turn(inbound: Inbound[Echo], reply: Message) -> ThreadRecord:
    """What to keep of a finished turn whose request had a `thread`."""
    history = inbound.echo.history if inbound.echo.history is not None else inbound.conversation.messages
    return ThreadRecord(messages=(*history, reply), tools=inbound.conversation.tools)


def continue_thread(
    inbound: Inbound[Echo], record: ThreadRecord | None, *, count_tokens: TokenCounter = estimate_tokens
) -> Inbound[Echo]:
    """The request with the stored conversation in front of its own messages, and its context edits carried out.
    Raises thread_not_found where the store has lost the record."""
    echo = inbound.echo
    if echo.thread is None or echo.thread.type != "continue":
        return inbound
    if record is None:
        raise TurnFailure(
            "not_found",
            f"thread.previous_message_id: no conversation is stored under {echo.thread.previous_message_id!r}; "
            "send the full conversation with thread type 'create'",
            param="thread.previous_message_id",
            code="thread_not_found",
        )
    asked = inbound.conversation
    choice = asked.tool_choice
    if choice.mode == "named" and all(tool.name != choice.name for tool in record.tools):
        raise invalid("tool_choice.name", f"no tool named {choice.name!r} in the thread's tools")
    history = _named((*record.messages, *asked.messages))
    added = {tool.name: tool for tool in (*record.tools, *asked.tools)}
    conversation = msgspec.structs.replace(asked, messages=history, tools=tuple(added.values()))
    conversation, applied = apply_edits(conversation, echo.edits, count_tokens)
    echo = msgspec.structs.replace(
        echo, history=history, applied_edits=applied if echo.applied_edits is not None else None
    )
    return msgspec.structs.replace(inbound, conversation=conversation, echo=echo)


async def resume_thread(
    inbound: Inbound[Echo], store: ThreadStore, tenant: str, *, count_tokens: TokenCounter = estimate_tokens
) -> Inbound[Echo]:
    """The request as it would be with its full history; unchanged where it continues no thread."""
    link = inbound.echo.thread
    if link is None or link.previous_message_id is None:
        return inbound
    data = await store.get(_space(tenant), link.previous_message_id)
    return continue_thread(inbound, _unpacked(data), count_tokens=count_tokens)


async def keep_thread(inbound: Inbound[Echo], turn_id: str, reply: Message, store: ThreadStore, tenant: str) -> None:
    """Keep a finished turn under its message id where the request had a `thread`. An answer is continued once, so the
    record that this one goes on from is dropped."""
    link = inbound.echo.thread
    if link is None:
        return
    await store.put(_space(tenant), message_id(turn_id), _encode(record_turn(inbound, reply)))
    if link.previous_message_id is not None:
        await store.delete(_space(tenant), link.previous_message_id)


def _space(tenant: str) -> str:
    return f"{tenant}/threads"


def _unpacked(data: bytes | None) -> ThreadRecord | None:
    """A record that cannot be read is as good as lost: the client repeats the conversation."""
    if data is None:
        return None
    try:
        return _RECORD.decode(data)
    except msgspec.DecodeError:
        return None


def _named(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with every tool result naming the tool it answers."""
    names: dict[str, str] = {}
    joined: list[Message] = []
    for message in messages:
        blocks: list[Block] = []
        for block in message.blocks:
            if isinstance(block, ToolCallBlock):
                names[block.id] = block.name
            elif isinstance(block, ToolResultBlock) and block.name is None and block.call_id in names:
                block = msgspec.structs.replace(block, name=names[block.call_id])
            blocks.append(block)
        joined.append(Message(role=message.role, blocks=tuple(blocks)))
    return tuple(joined)
