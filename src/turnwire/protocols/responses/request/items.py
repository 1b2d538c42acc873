"""Input items of a Responses request, each decoded by itself.

Promise: an item's value depends on the item alone. Ids, status and other bookkeeping of items never reach a message, so
they cannot break a prompt's prefix; an item that is not understood is kept whole in an opaque block and noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from turnwire.conventions import letters_and_digits
from turnwire.protocols.fields.body import any_value, invalid
from turnwire.protocols.fields.contents import ITEM, content_notes
from turnwire.protocols.fields.decoded import PartNote
from turnwire.protocols.hosted.answers import CarriedCall
from turnwire.protocols.hosted.response_items import HOSTED_ITEMS, read_call
from turnwire.protocols.limits import Limits
from turnwire.protocols.responses.compaction.summary import COMPACTION_TYPES, read_summary, summary_text
from turnwire.protocols.responses.request.content import Part, opaque, parts, plain_text
from turnwire.turns import Block, Message, ReasoningBlock, Role, TextBlock, ToolCallBlock, ToolResultBlock

__all__ = ["DecodedItem", "decode_item", "read_item"]

ROLES: Mapping[str, Role] = {"user": "user", "system": "system", "developer": "developer", "assistant": "assistant"}

Place: TypeAlias = Literal[
    "assistant", "message", "call", "result", "bare", "hosted", "loaded_tools", "tools", "trigger", "reference"
]
"""What an item is to the conversation: more of the assistant's turn, a message of its own, a call, a tool's answer, a
call that a gateway ran together with its answer, such a call without the answer, a search's answer that loads tools,
tools, the wish for a compaction, or the name of an item kept elsewhere."""


class DecodedItem(msgspec.Struct, gc=False):
    """One item. `item` is the item itself, for the store and for references; `name` and `namespace` are the client's
    name of the tool that a call names; `call_id` is the call that is made or answered, `key` the form of that id
    which is compared. `hosted` is a call with its answer. `block` is the call or result with the model's name of the
    tool as it was last found (`shown`); `message` is the item as a message of its own."""

    item: dict[str, Any]
    place: Place
    role: Role = "user"
    blocks: tuple[Block, ...] = ()
    content: tuple[Part, ...] = ()
    call_id: str = ""
    key: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    custom: bool = False
    notes: tuple[PartNote, ...] = ()
    shown: str | None = None
    block: Block | None = None
    hosted: CarriedCall | None = None
    message: Message | None = None

    def alone(self) -> Message:
        """The item as a message of its own."""
        if self.message is None:
            self.message = Message(role=self.role, blocks=self.blocks)
        return self.message

    def call(self, shown: str) -> Block:
        """The call under the model's name of its tool."""
        if self.block is None or self.shown != shown:
            self.shown = shown
            self.block = ToolCallBlock(
                id=self.call_id,
                name=shown,
                arguments=self.arguments,
                namespace=self.namespace,
                kind="custom" if self.custom else "function",
            )
        return self.block

    def result(self, shown: str | None) -> Block:
        """The result under the model's name of the tool that gave it."""
        if self.block is None or self.shown != shown:
            self.shown = shown
            self.block = ToolResultBlock(call_id=self.call_id, content=self.content, name=shown)
        return self.block


def decode_item(data: bytes, limits: Limits) -> DecodedItem:
    """An item from its JSON."""
    return read_item(any_value(data, "", limits.depth))


def read_item(item: Any) -> DecodedItem:
    """An item from its value. Paths in its notes and failures start at the item."""
    if not isinstance(item, dict):
        raise invalid("", "must be an input item object")
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference" if "id" in item else None
    if not isinstance(kind, str):
        raise invalid(".type", "an input item needs a type such as 'message'")
    carried = read_call(item) if kind == "reasoning" else None
    if carried is not None:
        return DecodedItem(
            item, "hosted", call_id=carried.call_id, key=letters_and_digits(carried.call_id), hosted=carried
        )
    if kind in HOSTED_ITEMS:
        return DecodedItem(item, "bare")
    reader = _READERS.get(kind)
    if reader is None:
        decoded = _unknown(item, kind)
    else:
        decoded = reader(item)
        decoded.notes += tuple(content_notes(ITEM, item, ""))
    if decoded.call_id:
        decoded.key = letters_and_digits(decoded.call_id)
    return decoded


def _message(item: dict[str, Any]) -> DecodedItem:
    role = ROLES.get(_string(item, "role"))
    if role is None:
        raise invalid(".role", "must be user, assistant, developer or system")
    notes: list[PartNote] = []
    blocks = parts(item.get("content"), ".content", notes)
    if role != "assistant":
        return DecodedItem(item, "message", role, blocks, notes=tuple(notes))
    said: list[Block] = []
    ours = _string(item, "id").startswith("msg_")  # what we sent as text was not a thought
    for block in blocks:
        thought = _thought_as_text(block.text) if isinstance(block, TextBlock) and not ours else None
        if thought is not None:
            notes.append(PartNote("reasoning.from_text", "", "a thought sent as assistant text"))
            if thought:
                said.append(ReasoningBlock(text=thought))
        elif not isinstance(block, TextBlock) or block.text:
            said.append(block)
    return DecodedItem(item, "assistant", blocks=tuple(said), notes=tuple(notes))


def _reasoning(item: dict[str, Any]) -> DecodedItem:
    text = plain_text(item.get("content"), ".content") or plain_text(item.get("summary"), ".summary")
    seal = item.get("encrypted_content")
    if seal is not None and not isinstance(seal, str):
        raise invalid(".encrypted_content", "must be a string or null")
    thought = (ReasoningBlock(text=text, seal=seal or None, redacted=not text),) if text or seal else ()
    return DecodedItem(item, "assistant", blocks=thought)


def _function_call(item: dict[str, Any]) -> DecodedItem:
    arguments = item.get("arguments")
    notes: tuple[PartNote, ...] = ()
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        # The wire says a JSON string; an object means the same and is taken.
        arguments = msgspec.json.encode(arguments).decode()
        notes = (PartNote("item.arguments_object", ".arguments", "an object, taken as its JSON text"),)
    return _call(item, arguments, notes=notes)


def _custom_call(item: dict[str, Any]) -> DecodedItem:
    return _call(item, _string(item, "input"), custom=True)


def _search_call(item: dict[str, Any]) -> DecodedItem:
    arguments = item.get("arguments")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    call = _call({**item, "name": "tool_search", "namespace": None}, text)
    call.item = item
    return call


def _call(
    item: dict[str, Any], arguments: str, *, custom: bool = False, notes: tuple[PartNote, ...] = ()
) -> DecodedItem:
    name, namespace = _string(item, "name"), item.get("namespace")
    if not name:
        raise invalid(".name", "a call needs the name of its tool")
    if namespace is not None and not isinstance(namespace, str):
        raise invalid(".namespace", "must be a string")
    return DecodedItem(
        item,
        "call",
        call_id=_string(item, "call_id") or _string(item, "id"),
        name=name,
        namespace=namespace or None,
        arguments=arguments,
        custom=custom,
        notes=notes,
    )


def _output(item: dict[str, Any]) -> DecodedItem:
    notes: list[PartNote] = []
    content = parts(item.get("output"), ".output", notes)
    return DecodedItem(item, "result", content=content, call_id=_string(item, "call_id"), notes=tuple(notes))


def _search_output(item: dict[str, Any]) -> DecodedItem:
    return DecodedItem(item, "loaded_tools", call_id=_string(item, "call_id"))


def _additional_tools(item: dict[str, Any]) -> DecodedItem:
    return DecodedItem(item, "tools")


def _compaction(item: dict[str, Any]) -> DecodedItem:
    summary = read_summary(_string(item, "encrypted_content"))
    if summary is not None:
        return DecodedItem(item, "message", blocks=(TextBlock(text=summary_text(summary)),))
    notes = (PartNote("compaction.foreign", "", "a compaction made elsewhere cannot be read"),)
    return DecodedItem(item, "message", blocks=(opaque(item, "compaction"),), notes=notes)


def _trigger(item: dict[str, Any]) -> DecodedItem:
    return DecodedItem(item, "trigger")


def _agent_message(item: dict[str, Any]) -> DecodedItem:
    author, recipient = _string(item, "author"), _string(item, "recipient")
    head = TextBlock(text=f"Message from {author or 'another agent'} to {recipient or 'you'}:\n")
    notes: list[PartNote] = []
    blocks = (head, *parts(item.get("content"), ".content", notes))
    return DecodedItem(item, "message", blocks=blocks, notes=tuple(notes))


def _reference(item: dict[str, Any]) -> DecodedItem:
    wanted = _string(item, "id")
    notes = (PartNote("item.reference_missing", "", f"no stored item '{wanted[:128]}'; it was left out", wanted[:128]),)
    return DecodedItem(item, "reference", name=wanted, notes=notes)


def _unknown(item: dict[str, Any], kind: str) -> DecodedItem:
    shown = kind[:64]
    notes = (PartNote("item.opaque", "", f"a '{shown}' item is kept but not shown to the model", shown),)
    answers = kind.endswith(("_output", "_response"))
    call_id = item.get("call_id")
    return DecodedItem(
        item,
        "message" if answers else "assistant",
        blocks=(opaque(item, kind),),
        call_id=call_id if isinstance(call_id, str) and not answers else "",
        notes=notes,
    )


_READERS: Mapping[str, Callable[[dict[str, Any]], DecodedItem]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "tool_search_call": _search_call,
    "tool_search_output": _search_output,
    "additional_tools": _additional_tools,
    "compaction_trigger": _trigger,
    "agent_message": _agent_message,
    "item_reference": _reference,
    **dict.fromkeys(COMPACTION_TYPES, _compaction),
}


def _string(item: Mapping[str, Any], field: str) -> str:
    value = item.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid(f".{field}", "must be a string")
    return value


def _thought_as_text(text: str) -> str | None:
    """The thought in an assistant message that is nothing but a `<think>` element: some clients replay reasoning so."""
    body = text.strip()
    if body.startswith("<think>") and body.endswith("</think>") and body.count("<think>") == 1:
        return body[len("<think>") : -len("</think>")].strip("\n")
    return None
