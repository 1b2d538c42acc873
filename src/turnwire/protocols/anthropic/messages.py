"""The messages of a request, system prompt first, in the order sent.

Promise: a message's value depends on what it says, not on its shape. Billing lines never get in, an expired system
message stays out, and both are noted, as is every key of a message that is not understood.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnwire.protocols.anthropic.blocks import BlockReader
from turnwire.protocols.json_body import any_value, invalid, part
from turnwire.protocols.limits import Limits
from turnwire.turns import JSON, Block, Message, Note, Role, TextBlock

__all__ = ["ReadMessages", "effort_of", "read_messages"]

BILLING_PREFIX = "x-anthropic-billing-header:"
"""The head of a line that some harnesses put into the system prompt; it varies between requests, so a prompt that
keeps it never shares a cached prefix."""

_ABSENT = msgspec.Raw(b"")
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}
_KEYS = frozenset({"role", "content", "output_config", "clear_at"})
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_MESSAGES = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_STRING = msgspec.json.Decoder(str)


class ReadMessages(msgspec.Struct, frozen=True):
    """The messages, and the effort that the last message with an `output_config` asks for."""

    messages: tuple[Message, ...]
    effort: str | None = None


def read_messages(
    raw: msgspec.Raw, system: msgspec.Raw | None, reader: BlockReader, limits: Limits, notes: list[Note]
) -> ReadMessages:
    """Read `messages` and `system`; what the reader notes is for its owner to collect."""
    wires = part(_MESSAGES, raw, "messages")
    if len(wires) > limits.messages:
        raise invalid("messages", f"{len(wires)} messages; the limit is {limits.messages}")
    roles = [_role(wire, f"messages.{index}.role") for index, wire in enumerate(wires)]
    last_user = max((index for index, role in enumerate(roles) if role == "user"), default=-1)
    messages: list[Message] = []
    effort: str | None = None
    if system is not None:
        messages += _cleaned(Message(role="system", blocks=reader.content(system, "system")), notes)
    for index, (role, wire) in enumerate(zip(roles, wires, strict=True)):
        path = f"messages.{index}"
        message = Message(role=role, blocks=reader.content(wire.get("content", _ABSENT), f"{path}.content"))
        if role not in ("system", "developer"):
            messages.append(message)
        elif index < last_user and "clear_at" in wire and any_value(wire["clear_at"], path) == "next_user_message":
            notes.append(Note("system.message_expired", f"{path}: shown only until the next user message"))
        else:
            messages += _cleaned(message, notes)
        if "output_config" in wire:
            config = any_value(wire["output_config"], f"{path}.output_config")
            effort = effort_of(config, f"{path}.output_config", notes) or effort
    unknown = dict.fromkeys(key for wire in wires if len(wire) > 2 for key in wire if key not in _KEYS)
    notes += (Note("request.field_ignored", f"messages.*.{key[:64]}: not used") for key in list(unknown)[:16])
    return ReadMessages(tuple(messages), effort)


def effort_of(config: JSON, path: str, notes: list[Note]) -> str | None:
    """The effort in an `output_config`, if it is one we know."""
    effort = config.get("effort") if isinstance(config, dict) else None
    if effort is None:
        return None
    if isinstance(effort, str) and effort in _EFFORTS:
        return effort
    notes.append(Note("request.field_ignored", f"{path}.effort: not a known effort"))
    return None


def _role(wire: dict[str, msgspec.Raw], path: str) -> Role:
    if "role" not in wire:
        raise invalid(path, "this field is required")
    word = part(_STRING, wire["role"], path)
    role = _ROLES.get(word)
    if role is None:
        raise invalid(path, f"{word[:64]!r} is none of user, assistant, system")
    return role


def _cleaned(message: Message, notes: list[Note]) -> tuple[Message, ...]:
    """A system message without billing lines; nothing where nothing is left."""
    if BILLING_PREFIX in message.text:
        blocks: list[Block] = []
        for block in message.blocks:
            if not isinstance(block, TextBlock):
                blocks.append(block)
            elif text := _without_billing_line(block.text):
                blocks.append(TextBlock(text=text))
        message = Message(role=message.role, blocks=tuple(blocks))
        notes.append(Note("system.billing_line_dropped", "a per-request billing line was left out"))
    return (message,) if message.blocks else ()


def _without_billing_line(text: str) -> str:
    if BILLING_PREFIX not in text:
        return text
    cleaned = "\n".join(line for line in text.split("\n") if not line.startswith(BILLING_PREFIX))
    return cleaned.lstrip("\n") if text.startswith(BILLING_PREFIX) else cleaned
