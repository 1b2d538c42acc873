"""The messages of a request, system prompt first, in the order sent.

Promise: a message's value depends on what it says, not on its shape. Billing lines never get in, an expired system
message stays out, and both are noted, as is every key of a message that is not understood. A message is decoded from
its own bytes alone; what it takes from its neighbours (the names of answered calls) is added afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter

import msgspec

from turnwire.conventions import EFFORTS, without_billing
from turnwire.protocols.anthropic.request.blocks import BlockReader
from turnwire.protocols.fields.body import any_value, elements, invalid, part
from turnwire.protocols.fields.decoded import DecodedParts, PartNote, PartReader, ReadList, first_cases
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.limits import Limits
from turnwire.turns import JSON, Block, Message, Role, TextBlock, Tool, ToolResultBlock

__all__ = ["ReadMessages", "effort_of", "read_messages", "rounds_of"]

_ABSENT = msgspec.Raw(b"")
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}
_KEYS = frozenset({"role", "content", "output_config", "clear_at"})
_MESSAGE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_CHANGES_TOOLS = attrgetter("changes_tools")
_EXPIRES = attrgetter("expires")
_MOST_KEYS = 16
_EXPIRED = PartNote("system.message_expired", "", "shown only until the next user message")


class ReadMessages(msgspec.Struct, frozen=True, gc=False):
    """The messages, the tools with those that messages define, and the effort that the last message with an
    `output_config` asks for."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    effort: str | None = None


class _Decoded(msgspec.Struct, gc=False):
    """One message by itself. `results` are the ids of the calls that it answers; `message` is the message with their
    names as they were last found (`names`). `expires` is whether it is shown only until the next user message."""

    message: Message
    count: int
    calls: tuple[tuple[str, str], ...] = ()
    results: tuple[str, ...] = ()
    notes: tuple[PartNote, ...] = ()
    unknown: tuple[str, ...] = ()
    effort: str | None = None
    expires: bool = False
    changes_tools: bool = False
    names: tuple[str | None, ...] | None = None

    def named(self, known: dict[str, str]) -> Message:
        """The message with every result naming the tool it answers."""
        names = tuple(map(known.get, self.results))
        if names != self.names:
            found = iter(names)
            blocks = tuple(
                msgspec.structs.replace(block, name=next(found)) if isinstance(block, ToolResultBlock) else block
                for block in self.message.blocks
            )
            self.message, self.names = Message(role=self.message.role, blocks=blocks), names
        return self.message


class _Joined(msgspec.Struct, frozen=True, gc=False):
    """The messages so far, and what those that follow take from them: how many blocks there were, and the names of the
    tools that were called. `unknown` are keys that were not understood, `notes` those on all messages."""

    messages: tuple[Message, ...] = ()
    count: int = 0
    names: Mapping[str, str] = {}
    unknown: Mapping[str, None] = {}
    effort: str | None = None
    notes: Mapping[tuple[str, str], PartNote] = {}


def read_messages(fields: Fields, tools: tuple[Tool, ...], cache: DecodedParts | None) -> ReadMessages:
    """Read `messages` and `system`."""
    limits, notes = fields.limits, fields.notes
    raw = fields.raw("messages")
    if raw is None:
        raise invalid("messages", "this field is required")
    wires = elements(raw, "messages", "must be a list of messages")
    if len(wires) > limits.messages:
        raise invalid("messages", f"{len(wires)} messages; the limit is {limits.messages}")
    reader = PartReader(cache, lambda data: _message(data, limits, {}), "anthropic.message", limits)
    read = reader.list(wires, lambda index: f"messages.{index}")
    tools = _with_changes(read, tools, limits)
    opening: tuple[Message, ...] = ()
    system = fields.raw("system")
    if system is not None:
        prompt = PartReader(cache, lambda data: _system(data, limits), "anthropic.system", limits)
        one = prompt.value(system, "system")
        notes.on_part("system", one.notes)
        if one.message.blocks:
            opening = (one.message,)
    joined = read.folded(partial(_join, limits), _Joined(), _lasts)
    notes.on_part("", joined.notes.values())
    for key in list(joined.unknown)[:_MOST_KEYS]:
        notes.add("request.field_ignored", f"messages.*.{key[:64]}: not used")
    return ReadMessages((*opening, *joined.messages), tools, joined.effort)


def _with_changes(read: ReadList[_Decoded], tools: tuple[Tool, ...], limits: Limits) -> tuple[Tool, ...]:
    """The tools with those that messages define. A message that changes the tools depends on those before it, so it is
    decoded here once more, never from the cache."""
    if not any(map(_CHANGES_TOOLS, read.values)):
        return tools
    offered = {tool.name: tool for tool in tools}
    reader = PartReader(None, lambda data: _message(data, limits, offered))
    for index, one in enumerate(read.values):
        if one.changes_tools:
            place = read.known + index
            read.values[index] = reader.value(read.raws[place], f"messages.{place}")
    return tuple(offered.values())


def _lasts(decoded: Sequence[_Decoded]) -> bool:
    """Whether nothing that follows changes what these messages come to: none changes the tools, and what is shown only
    until the next user message has one after it."""
    if any(map(_CHANGES_TOOLS, decoded)):
        return False
    expires = False
    for one in decoded:
        expires = one.expires or (expires and one.message.role != "user")
    return not expires


def _join(limits: Limits, before: _Joined, decoded: Sequence[_Decoded], first: int) -> _Joined:
    """The messages one after another, each with what it takes from those before it. The first of `decoded` has this
    place among all."""
    messages, count, names, unknown = [*before.messages], before.count, {**before.names}, {**before.unknown}
    effort, notes = before.effort, before.notes
    last_user = -1
    if any(map(_EXPIRES, decoded)):
        last_user = max((place for place, one in enumerate(decoded, first) if one.message.role == "user"), default=-1)
    for index, one in enumerate(decoded, first):
        count += one.count
        if count > limits.blocks:
            raise invalid(f"messages.{index}.content", f"more than {limits.blocks} content blocks in one request")
        if one.notes:
            notes = first_cases(notes, f"messages.{index}", one.notes)
        if one.calls:
            names.update(one.calls)
        message = one.named(names) if one.results else one.message
        if one.expires and index < last_user:
            notes = first_cases(notes, f"messages.{index}", (_EXPIRED,))
        elif one.results and message.role == "assistant":
            messages += rounds_of(message)
        elif one.results and _begins_with_result(message) and messages and _only_results(messages[-1]):
            # Answers of tools that a gateway ran and of those that the client ran belong to one turn.
            messages[-1] = Message(role="user", blocks=(*messages[-1].blocks, *message.blocks))
        elif message.blocks or message.role not in ("system", "developer"):
            messages.append(message)
        effort = one.effort or effort
        if one.unknown and len(unknown) < _MOST_KEYS:
            unknown.update(dict.fromkeys(one.unknown))
    return _Joined(tuple(messages), count, names, unknown, effort, notes)


def rounds_of(message: Message) -> list[Message]:
    """An answer of several rounds as the turns that it was made of: what the model said, then the answers of the tools
    that a gateway ran, and so on."""
    found: list[Message] = []
    said: list[Block] = []
    results: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            results.append(block)
            continue
        if results:
            found += (Message(role="assistant", blocks=tuple(said)), Message(role="user", blocks=tuple(results)))
            said, results = [], []
        said.append(block)
    if said or results:
        found.append(Message(role="assistant", blocks=tuple(said)))
    return [*found, Message(role="user", blocks=tuple(results))] if results else found


def _only_results(message: Message) -> bool:
    return message.role == "user" and all(isinstance(block, ToolResultBlock) for block in message.blocks)


def _begins_with_result(message: Message) -> bool:
    return message.role == "user" and isinstance(message.blocks[0], ToolResultBlock)


def effort_of(config: JSON) -> str | None:
    """The effort in an `output_config`, if it is one we know."""
    effort = config.get("effort") if isinstance(config, dict) else None
    return effort if isinstance(effort, str) and effort in EFFORTS else None


def _message(data: bytes, limits: Limits, tools: dict[str, Tool]) -> _Decoded:
    wire = part(_MESSAGE, data, "")
    role = _role(wire)
    reader = BlockReader(limits, tools)
    blocks = reader.content(wire.get("content", _ABSENT), ".content")
    notes = reader.notes
    effort = None
    expires = False
    if role in ("system", "developer"):
        blocks = _cleaned(blocks, notes)
        expires = "clear_at" in wire and any_value(wire["clear_at"], ".clear_at", limits.depth) == "next_user_message"
    if "output_config" in wire:
        config = any_value(wire["output_config"], ".output_config", limits.depth)
        effort = effort_of(config)
        if effort is None and isinstance(config, dict) and config.get("effort") is not None:
            notes.append(PartNote("request.field_ignored", ".output_config.effort", "not a known effort", "effort"))
    return _Decoded(
        message=Message(role=role, blocks=blocks),
        count=reader.count,
        calls=tuple(reader.calls),
        results=tuple(block.call_id for block in blocks if isinstance(block, ToolResultBlock)),
        notes=tuple(notes),
        unknown=tuple(key for key in wire if key not in _KEYS),
        effort=effort,
        expires=expires,
        changes_tools=reader.changes_tools,
    )


def _system(data: bytes, limits: Limits) -> _Decoded:
    reader = BlockReader(limits, {})
    blocks = _cleaned(reader.content(data, ""), reader.notes)
    return _Decoded(message=Message(role="system", blocks=blocks), count=reader.count, notes=tuple(reader.notes))


def _role(wire: dict[str, msgspec.Raw]) -> Role:
    if "role" not in wire:
        raise invalid(".role", "this field is required")
    word = part(_STRING, wire["role"], ".role")
    role = _ROLES.get(word)
    if role is None:
        raise invalid(".role", f"{word[:64]!r} is none of user, assistant, system")
    return role


def _cleaned(blocks: tuple[Block, ...], notes: list[PartNote]) -> tuple[Block, ...]:
    """The blocks of a system message without billing lines."""
    kept: list[Block] = []
    dropped = False
    for block in blocks:
        if isinstance(block, TextBlock):
            text = without_billing(block.text)
            if text != block.text:
                dropped = True
                if not text:
                    continue
                block = TextBlock(text=text)
        kept.append(block)
    if dropped:
        notes.append(PartNote("system.billing_line_dropped", "", "a per-request billing line was left out"))
    return tuple(kept)
