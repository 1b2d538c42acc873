"""Input items of a Responses request, walked once into messages.

Promise: the order is the client's. Items of the assistant's side (reasoning, calls, messages) that stand together are
one assistant turn with its blocks in that order; tool outputs that stand together are one user message. Ids, status
and other bookkeeping of items never reach a message, so they cannot break a prompt's prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from turnwire.protocols.json_body import invalid
from turnwire.protocols.responses.compaction import COMPACTION_TYPES, read_summary, summary_text
from turnwire.protocols.responses.content import opaque, parts, plain_text
from turnwire.protocols.responses.tools import Toolbox
from turnwire.turns import (
    Block,
    Message,
    Note,
    ReasoningBlock,
    Role,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["ItemWalk", "call_key"]

ROLES: Mapping[str, Role] = {"user": "user", "system": "system", "developer": "developer", "assistant": "assistant"}


def call_key(call_id: str) -> str:
    """A call id without what some clients strip from it: the form under which ids are compared."""
    return "".join(c for c in call_id if c.isalnum())


class ItemWalk:
    """Walks items into `messages`. References were resolved before; one that is still there has no item behind it."""

    def __init__(self, toolbox: Toolbox) -> None:
        self.messages: list[Message] = []
        self.notes: list[Note] = []
        self.compaction_requested = False
        self._toolbox = toolbox
        self._assistant: list[Block] = []
        self._results: list[Block] = []
        self._call_names: dict[str, str] = {}

    def walk(self, items: Sequence[Any], path: str) -> None:
        """Take in items in order. May be called several times (earlier turns first); `close` ends the walk."""
        for index, item in enumerate(items):
            self._item(item, f"{path}[{index}]")

    def close(self) -> tuple[Message, ...]:
        """The messages of the whole walk."""
        self._end_assistant()
        self._end_results()
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "assistant" and all(isinstance(b, ReasoningBlock) for b in last.blocks):
            # A client whose stream broke sends the thought that it had received and asks again: without it the
            # prompt is the one that was asked before, and the engine's cache still holds it.
            self.messages.pop()
            self.notes.append(
                Note("turn.unfinished", "a thought that led to nothing at the end of `input` is left out")
            )
        return tuple(self.messages)

    def _item(self, item: Any, path: str) -> None:
        if not isinstance(item, dict):
            raise invalid(path, "must be an input item object")
        kind = item.get("type")
        if kind is None:
            kind = "message" if "role" in item else "item_reference" if "id" in item else None
        if not isinstance(kind, str):
            raise invalid(f"{path}.type", "an input item needs a type such as 'message'")
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, item, path)
        else:
            self._unknown(item, kind, path)

    # ------------------------------------------------------------------------------------------------- the turns

    def _say(self, block: Block) -> None:
        self._end_results()
        self._assistant.append(block)

    def _answer(self, block: ToolResultBlock) -> None:
        self._end_assistant()
        self._results.append(block)

    def _add(self, role: Role, blocks: tuple[Block, ...]) -> None:
        self._end_assistant()
        self._end_results()
        self.messages.append(Message(role=role, blocks=blocks))

    def _end_assistant(self) -> None:
        if self._assistant:
            self.messages.append(Message(role="assistant", blocks=tuple(self._assistant)))
            self._assistant.clear()

    def _end_results(self) -> None:
        if self._results:
            self.messages.append(Message(role="user", blocks=tuple(self._results)))
            self._results.clear()

    # ------------------------------------------------------------------------------------------------- the items

    def _message(self, item: dict[str, Any], path: str) -> None:
        role = ROLES.get(_string(item, "role", path))
        if role is None:
            raise invalid(f"{path}.role", "must be user, assistant, developer or system")
        blocks = parts(item.get("content"), f"{path}.content", self.notes)
        if role != "assistant":
            self._add(role, blocks)
            return
        ours = _string(item, "id", path).startswith("msg_")  # what we sent as text was no thought
        for block in blocks:
            if isinstance(block, TextBlock):
                thought = None if ours else _thought_as_text(block.text)
                if thought is not None:
                    self.notes.append(Note("reasoning.from_text", f"{path}: a thought sent as assistant text"))
                    if thought:
                        self._say(ReasoningBlock(text=thought))
                    continue
                if not block.text:
                    continue
            self._say(block)

    def _reasoning(self, item: dict[str, Any], path: str) -> None:
        text = plain_text(item.get("content"), f"{path}.content") or plain_text(item.get("summary"), f"{path}.summary")
        seal = item.get("encrypted_content")
        if seal is not None and not isinstance(seal, str):
            raise invalid(f"{path}.encrypted_content", "must be a string or null")
        if text or seal:
            self._say(ReasoningBlock(text=text, seal=seal or None, redacted=not text))

    def _function_call(self, item: dict[str, Any], path: str) -> None:
        arguments = item.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            # The wire says a JSON string; an object means the same and is taken.
            arguments = msgspec.json.encode(arguments).decode()
            self.notes.append(Note("item.arguments_object", f"{path}.arguments: an object, taken as its JSON text"))
        self._call(item, path, arguments, "function")

    def _custom_call(self, item: dict[str, Any], path: str) -> None:
        self._call(item, path, _string(item, "input", path), "custom")

    def _search_call(self, item: dict[str, Any], path: str) -> None:
        arguments = item.get("arguments")
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
        self._call({**item, "name": "tool_search", "namespace": None}, path, text, "function")

    def _call(self, item: dict[str, Any], path: str, arguments: str, kind: Any) -> None:
        name, namespace = _string(item, "name", path), item.get("namespace")
        if not name:
            raise invalid(f"{path}.name", "a call needs the name of its tool")
        if namespace is not None and not isinstance(namespace, str):
            raise invalid(f"{path}.namespace", "must be a string")
        call_id = _string(item, "call_id", path) or _string(item, "id", path)
        shown = self._toolbox.name_of(name, namespace or None)
        self._call_names[call_key(call_id)] = shown
        self._say(ToolCallBlock(id=call_id, name=shown, arguments=arguments, namespace=namespace or None, kind=kind))

    def _output(self, item: dict[str, Any], path: str) -> None:
        call_id = _string(item, "call_id", path)
        content = parts(item.get("output"), f"{path}.output", self.notes)
        self._answer(ToolResultBlock(call_id=call_id, content=content, name=self._call_names.get(call_key(call_id))))

    def _search_output(self, item: dict[str, Any], path: str) -> None:
        names = self._toolbox.add(item.get("tools"), f"{path}.tools", deferred=True)
        text = "Loaded tools: " + ", ".join(names) if names else "No tools were found."
        call_id = _string(item, "call_id", path)
        self._answer(
            ToolResultBlock(
                call_id=call_id,
                content=(TextBlock(text=text),),
                name=self._call_names.get(call_key(call_id), "tool_search"),
                references=names,
            )
        )

    def _additional_tools(self, item: dict[str, Any], path: str) -> None:
        self._toolbox.add(item.get("tools"), f"{path}.tools")

    def _compaction(self, item: dict[str, Any], path: str) -> None:
        carried = _string(item, "encrypted_content", path)
        summary = read_summary(carried)
        if summary is None:
            self.notes.append(Note("compaction.foreign", f"{path}: a compaction made elsewhere cannot be read"))
            self._add("user", (opaque(item, "compaction"),))
        else:
            self._add("user", (TextBlock(text=summary_text(summary)),))

    def _trigger(self, item: dict[str, Any], path: str) -> None:
        self.compaction_requested = True

    def _agent_message(self, item: dict[str, Any], path: str) -> None:
        author, recipient = _string(item, "author", path), _string(item, "recipient", path)
        head = TextBlock(text=f"Message from {author or 'another agent'} to {recipient or 'you'}:\n")
        self._add("user", (head, *parts(item.get("content"), f"{path}.content", self.notes)))

    def _reference(self, item: dict[str, Any], path: str) -> None:
        wanted = _string(item, "id", path)
        self.notes.append(Note("item.reference_missing", f"{path}: no stored item '{wanted}'; it was left out"))

    def _unknown(self, item: dict[str, Any], kind: str, path: str) -> None:
        self.notes.append(Note("item.opaque", f"{path}: a '{kind}' item is kept but not shown to the model"))
        block = opaque(item, kind)
        if kind.endswith(("_output", "_response")):
            self._add("user", (block,))
        else:
            self._say(block)


_HANDLERS: Mapping[str, Callable[[ItemWalk, dict[str, Any], str], None]] = {
    "message": ItemWalk._message,
    "reasoning": ItemWalk._reasoning,
    "function_call": ItemWalk._function_call,
    "function_call_output": ItemWalk._output,
    "custom_tool_call": ItemWalk._custom_call,
    "custom_tool_call_output": ItemWalk._output,
    "tool_search_call": ItemWalk._search_call,
    "tool_search_output": ItemWalk._search_output,
    "additional_tools": ItemWalk._additional_tools,
    "compaction_trigger": ItemWalk._trigger,
    "agent_message": ItemWalk._agent_message,
    "item_reference": ItemWalk._reference,
    **dict.fromkeys(COMPACTION_TYPES, ItemWalk._compaction),
}


def _string(item: Mapping[str, Any], field: str, path: str) -> str:
    value = item.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid(f"{path}.{field}", "must be a string")
    return value


def _thought_as_text(text: str) -> str | None:
    """The thought in an assistant message that is nothing but a `<think>` element: some clients replay reasoning so."""
    body = text.strip()
    if body.startswith("<think>") and body.endswith("</think>") and body.count("<think>") == 1:
        return body[len("<think>") : -len("</think>")].strip("\n")
    return None
