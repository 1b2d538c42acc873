"""The messages of a Chat Completions request become messages of a conversation.

Promise: nothing said is lost. Thoughts are read in every spelling that servers and clients use; tool results in a row
become one message, as the other APIs write them; arguments stay the text that was sent. A message is decoded from its
own bytes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.protocols.chat.switches import Switch, switch_in
from turnwire.protocols.fields.body import any_value, elements, invalid
from turnwire.protocols.fields.contents import PART, TOOL_CALL, content_notes
from turnwire.protocols.fields.decoded import DecodedParts, PartNote, PartReader, first_cases
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.limits import Limits
from turnwire.turns import (
    Block,
    ImageBlock,
    Message,
    OpaqueBlock,
    ReasoningBlock,
    Role,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["SEAL_FORMAT", "read_messages"]

SEAL_FORMAT = "turnwire-v1"
"""How our entries in `reasoning_details` are distinguished from those of other servers."""

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
}
_MEMBERS = frozenset(
    {
        "role",
        "content",
        "refusal",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "annotations",
        "cache_control",
        "id",
        "type",
        "status",
    }
)
"""Members of a message that are read, or that clients repeat from answers and that ask for nothing. A `name` is read of
a tool's result alone: chat templates have no place for the names of speakers."""

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_UNDERSTOOD = frozenset({*_TEXT_PARTS, "image_url", "thinking", "reasoning"})
"""Parts of other types are kept whole, with a note on the part."""


class _Decoded(msgspec.Struct, frozen=True, gc=False):
    """One message by itself: a message, or the result of a tool. `switch` is what it says of thinking, None where it
    has no say in it."""

    message: Message | None = None
    result: ToolResultBlock | None = None
    notes: tuple[PartNote, ...] = ()
    switch: Switch | None = None


class _Joined(msgspec.Struct, frozen=True, gc=False):
    """The messages so far, the results of tools that are not a message yet, the notes on all of them, and what the last
    question and the first system prompt say of thinking."""

    messages: tuple[Message, ...] = ()
    results: tuple[Block, ...] = ()
    notes: Mapping[tuple[str, str], PartNote] = {}
    asked: Switch = ""
    system: Switch | None = None


def read_messages(fields: Fields, cache: DecodedParts | None) -> tuple[tuple[Message, ...], Switch]:
    """The messages, in order, and what the last question, or else the system prompt, says of thinking."""
    raw, limits = fields.raw("messages"), fields.limits
    wires = elements(raw or b"", "messages", "must be a list with at least one message")
    if not wires:
        raise invalid("messages", "must be a list with at least one message")
    if len(wires) > limits.messages:
        raise invalid("messages", f"{len(wires)} messages; the limit is {limits.messages}")
    reader = PartReader(cache, lambda data: _message(data, limits), "chat.message", limits)
    joined = reader.list(wires, lambda index: f"messages.{index}").folded(_join, _Joined(), lambda _: True)
    fields.notes.on_part("", joined.notes.values())
    return _ended(joined), joined.asked or joined.system or ""


def _join(before: _Joined, decoded: Sequence[_Decoded], first: int) -> _Joined:
    """What was joined before and the messages after it, the first of which has this place."""
    messages, results, notes = [*before.messages], [*before.results], before.notes
    asked, system = before.asked, before.system
    for index, one in enumerate(decoded, first):
        if one.notes:
            notes = first_cases(notes, f"messages.{index}", one.notes)
        if one.result is not None:
            results.append(one.result)
            continue
        if results:
            messages.append(Message(role="user", blocks=tuple(results)))
            results = []
        if one.message is not None:
            messages.append(one.message)
            if one.switch is None:
                continue
            if one.message.role == "user":
                asked = one.switch
            elif system is None:
                system = one.switch
    return _Joined(tuple(messages), tuple(results), notes, asked, system)


def _ended(joined: _Joined) -> tuple[Message, ...]:
    """The messages with the results of tools that come last."""
    return (*joined.messages, Message(role="user", blocks=joined.results)) if joined.results else joined.messages


def _message(data: bytes, limits: Limits) -> _Decoded:
    wire = any_value(data, "", limits.depth)
    if not isinstance(wire, dict):
        raise invalid("", "must be an object with a role")
    role = wire.get("role")
    notes = _unused(wire)
    if role in ("tool", "function"):
        return _Decoded(result=_result(wire, notes), notes=tuple(notes))
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid(".role", f"must be one of {', '.join(_ROLES)} or tool, not {role!r}")
    kind = _ROLES[role]
    blocks = _said(wire, notes) if kind == "assistant" else parts(wire.get("content"), notes)
    message = Message(role=kind, blocks=tuple(blocks))
    speaks = kind in ("system", "developer") or (kind == "user" and bool(message.text))
    return _Decoded(message=message, notes=tuple(notes), switch=switch_in(message.text) if speaks else None)


def _unused(wire: dict[str, Any]) -> list[PartNote]:
    """A note for each member of a message that has no effect here."""
    known = _MEMBERS | {"name"} if wire.get("role") in ("tool", "function") else _MEMBERS
    unused = [name for name, value in wire.items() if name not in known and value not in (None, [], {})]
    return [PartNote("request.field_ignored", "", f"{name[:64]}: not used", name[:64]) for name in unused[:16]]


def parts(content: Any, notes: list[PartNote]) -> list[Block]:
    """The blocks of a `content` value: a string, nothing, or a list of parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [TextBlock(text=content)] if content else []
    if not isinstance(content, list):
        raise invalid(".content", "must be a string or a list of parts")
    return [_part(value, f".content.{index}", notes) for index, value in enumerate(content)]


def _part(value: Any, path: str, notes: list[PartNote]) -> Block:
    if isinstance(value, str):
        return TextBlock(text=value)
    if not isinstance(value, dict):
        raise invalid(path, "must be a content part with a type")
    kind = value.get("type", "text")
    if not isinstance(kind, str):
        raise invalid(f"{path}.type", "must be a string")
    if kind in _UNDERSTOOD:
        notes += content_notes(PART, value, path)
    if kind in _TEXT_PARTS:
        text = value.get(_TEXT_PARTS[kind])
        if not isinstance(text, str):
            raise invalid(f"{path}.{_TEXT_PARTS[kind]}", "must be a string")
        return TextBlock(text=text)
    if kind == "image_url":
        image = value.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if not isinstance(url, str):
            raise invalid(f"{path}.image_url.url", "must be a string")
        detail = image.get("detail") if isinstance(image, dict) else None
        return _image(url, detail if isinstance(detail, str) else None)
    if kind in ("thinking", "reasoning"):
        text = value.get("thinking") or value.get("text") or ""
        return ReasoningBlock(text=text if isinstance(text, str) else _joined(text))
    shown = kind[:64]
    text = f"a part of type {shown!r} is kept but cannot be shown to the model"
    notes.append(PartNote("content.opaque", path, text, shown))
    return OpaqueBlock(wire_type=str(kind), payload=msgspec.json.encode(value).decode())


def _image(url: str, detail: str | None) -> ImageBlock:
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return ImageBlock(media_type=head[5:-7], data=data, detail=detail)
    return ImageBlock(url=url, detail=detail)


def _result(wire: dict[str, Any], notes: list[PartNote]) -> ToolResultBlock:
    content = tuple(
        block for block in parts(wire.get("content"), notes) if isinstance(block, (TextBlock, ImageBlock, OpaqueBlock))
    )
    call_id, name = wire.get("tool_call_id"), wire.get("name")
    if not isinstance(call_id, str):
        call_id = name if isinstance(name, str) else ""
        notes.append(PartNote("messages.result_without_id", "", "a tool result names no tool_call_id"))
    return ToolResultBlock(call_id=call_id, content=content, name=name if isinstance(name, str) else None)


# ------------------------------------------------------------------------------------------------ assistant turns


def _said(wire: dict[str, Any], notes: list[PartNote]) -> list[Block]:
    blocks: list[Block] = _thoughts(wire)
    blocks += parts(wire.get("content"), notes)
    if not blocks and isinstance(wire.get("refusal"), str):
        blocks.append(TextBlock(text=wire["refusal"]))
    calls = wire.get("tool_calls")
    if calls is None and isinstance(wire.get("function_call"), dict):
        calls = [{"id": wire["function_call"].get("name"), "function": wire["function_call"]}]
    if calls is not None and not isinstance(calls, list):
        raise invalid(".tool_calls", "must be a list")
    for index, call in enumerate(calls or ()):
        blocks.append(_call(call, f".tool_calls.{index}", notes))
    return blocks


def _thoughts(wire: dict[str, Any]) -> list[Block]:
    """A turn's thoughts: the carriers of `reasoning_details`, which know the order. Where they hold no words of their
    own, the text beside them goes with the first, for the case that it cannot be opened."""
    details = wire.get("reasoning_details")
    entries = details if isinstance(details, list) else []
    found = [block for entry in entries if isinstance(entry, dict) if (block := _detail(entry)) is not None]
    if any(block.text for block in found):
        return [*found]
    words = _words(wire)
    if not words:
        return [*found]
    seal = found[0].seal if found else None
    return [ReasoningBlock(text=words, seal=seal), *found[1:]]


def _words(wire: dict[str, Any]) -> str:
    """The first spelling of a message's thoughts that holds any."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        if text := _joined(wire.get(name)):
            return text
    return ""


def _detail(entry: dict[str, Any]) -> ReasoningBlock | None:
    kind, text, data = entry.get("type"), entry.get("text"), entry.get("data")
    if kind == "reasoning.encrypted" and isinstance(data, str):
        return ReasoningBlock(text="", seal=data, redacted=True)
    if not isinstance(text, str):
        text = entry.get("summary")
    if isinstance(text, str):
        seal = entry.get("signature")
        return ReasoningBlock(text=text, seal=seal if isinstance(seal, str) and seal else None)
    return None


def _joined(value: Any) -> str:
    """The text inside a list or object of thoughts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_joined(item) for item in value)
    if isinstance(value, dict):
        return _joined(value.get("text") or value.get("content") or value.get("thinking") or "")
    return ""


def _call(call: Any, path: str, notes: list[PartNote]) -> ToolCallBlock:
    if not isinstance(call, dict):
        raise invalid(path, "must be an object")
    notes += content_notes(TOOL_CALL, call, path)
    function = call.get("function") or call.get("custom")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(f"{path}.function.name", "must be a string")
    arguments = function.get("arguments", function.get("input"))
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    call_id = call.get("id")
    return ToolCallBlock(
        id=call_id if isinstance(call_id, str) else "",
        name=function["name"],
        arguments=arguments,
        kind="custom" if "custom" in call else "function",
    )
