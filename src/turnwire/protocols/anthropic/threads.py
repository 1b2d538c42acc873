"""Message threads: a request that names the last answer instead of repeating the conversation.

Promise: pure functions over records. `continue_thread` yields the conversation that a client with the full history
would have sent, or a failure that makes the client send it. `thread_key` says which record a request needs,
`kept_thread` what to keep of a finished turn; where records live is the gateway's affair.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.protocols.anthropic.echo import Echo
from turnwire.protocols.anthropic.request.context_management import TokenCounter, apply_edits, estimate_tokens
from turnwire.protocols.anthropic.vocabulary import message_id
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Block, HostedUse, Message, Tool, ToolCallBlock, ToolResultBlock
from turnwire.unreadable import UNREADABLE

__all__ = [
    "KeptThread",
    "ThreadRecord",
    "continue_thread",
    "kept_thread",
    "read_record",
    "record_turn",
    "thread_key",
]


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation up to and including one answer, as the client knows it: before any context edit."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    hosted: dict[str, HostedUse] = {}


class KeptThread(msgspec.Struct, frozen=True, kw_only=True):
    """What to do in the store after a finished turn: put `value` under `key`, then delete `replaces`. An answer is
    continued once, so the record that this one goes on from is no longer needed."""

    key: str
    value: bytes
    replaces: str | None = None


_RECORD = msgspec.msgpack.Decoder(ThreadRecord)
_encode = msgspec.msgpack.Encoder().encode


def record_turn(inbound: Inbound[Echo], reply: Message, rounds: Sequence[Message] = ()) -> ThreadRecord:
    """What to keep of a finished turn whose request had a `thread`; `rounds` came before its last words."""
    history = inbound.echo.history if inbound.echo.history is not None else inbound.conversation.messages
    return ThreadRecord(
        messages=(*history, *rounds, reply), tools=inbound.conversation.tools, hosted=dict(inbound.hosted)
    )


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
    return msgspec.structs.replace(inbound, conversation=conversation, echo=echo, hosted=record.hosted)


def thread_key(inbound: Inbound[Echo]) -> str | None:
    """The key of the record that a request continues; None where it continues none."""
    link = inbound.echo.thread
    return link.previous_message_id if link is not None else None


def kept_thread(
    inbound: Inbound[Echo], turn_id: str, reply: Message, rounds: Sequence[Message] = ()
) -> KeptThread | None:
    """What to keep of a finished turn; None where its request had no `thread`."""
    if inbound.echo.thread is None:
        return None
    record = record_turn(inbound, reply, rounds)
    return KeptThread(key=message_id(turn_id), value=_encode(record), replaces=thread_key(inbound))


def read_record(data: bytes | None) -> ThreadRecord | None:
    """A kept record. One that cannot be read is as good as lost: the client repeats the conversation."""
    if data is None:
        return None
    try:
        return _RECORD.decode(data)
    except UNREADABLE:
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
