"""Vocabulary messages, dressed the way a template reads them.

Promise: the order of blocks is kept as far as the template's message shape can say it; ids, metadata and carriers
(seals, cache marks) never get in; what has no place in a template is a Note, not a silent loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from turnwire.conventions import RAW_INPUT, raw_input, raw_input_schema
from turnwire.prompts.notes import noted
from turnwire.prompts.templates.template import TemplateMessage
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import (
    ImageBlock,
    Message,
    Note,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["CallNames", "calls_of", "dress", "dress_tools", "questions_of"]


class CallNames:
    """The ids calls go by in the prompt, those of a conversation's `calls` in their order. Some models expect their own
    form and imitate any other they see; all other ids stay, and then nothing has to be counted."""

    def __init__(self, style: str, calls: Sequence[ToolCallBlock] = ()) -> None:
        self._style = style
        self._counts = style in ("kimi", "nine")
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        # Those whose names nobody has asked for yet: a long conversation has hundreds, and a turn asks for one or two.
        self._unread = calls
        if self._counts:
            for call in calls:
                self.call(call)

    def call(self, block: ToolCallBlock) -> str:
        """The id of a call, in the order calls are met."""
        self._names[block.id] = block.name
        if not self._counts:
            return block.id
        known = self._ids.get(block.id)
        if known is None:
            known = self._ids[block.id] = self._minted(block)
        return known

    def result(self, call_id: str) -> str:
        return self._ids.get(call_id, call_id)

    def name(self, call_id: str) -> str | None:
        if self._unread and call_id not in self._names:
            self._names = {call.id: call.name for call in self._unread} | self._names
            self._unread = ()
        return self._names.get(call_id)

    def _minted(self, block: ToolCallBlock) -> str:
        if self._style == "kimi":
            if block.id.startswith("functions."):
                return block.id
            return f"functions.{block.name}:{len(self._ids)}"
        return f"c{len(self._ids):08d}"


def calls_of(messages: Iterable[Message]) -> list[ToolCallBlock]:
    """Every call in the messages, in order."""
    return [block for message in messages for block in message.blocks if type(block) is ToolCallBlock]


def questions_of(messages: Iterable[Message], first: int = 0) -> list[int]:
    """The places of the user's messages that bring no results, where the first message has the place `first`."""
    return [
        place
        for place, message in enumerate(messages, first)
        if message.role == "user" and ToolResultBlock not in map(type, message.blocks)
    ]


def dress(
    messages: Sequence[Message], traits: TemplateTraits, names: CallNames, notes: list[Note]
) -> list[TemplateMessage]:
    """Template messages for `messages`. Call ids are numbered through `names` in the order they are met."""
    dressed: list[TemplateMessage] = []
    for message in messages:
        blocks = message.blocks
        if len(blocks) == 1 and type(blocks[0]) is TextBlock and message.role in ("user", "assistant"):
            dressed.append({"role": message.role, "content": _said(blocks[0].text, traits)})
        elif message.role == "assistant":
            dressed.append(_assistant(message, traits, names, notes))
        elif message.role == "user":
            dressed.extend(_user(message, traits, names, notes))
        else:
            role = traits.mid_system if dressed and traits.mid_system else message.role
            dressed.append({"role": role, "content": _content(message.blocks, traits, notes)})
    if not traits.parallel_calls:
        dressed = _one_call_each(dressed)
    return _neighbourly(dressed, traits)


def dress_tools(tools: Iterable[Tool], *, simple: bool = False) -> list[dict[str, Any]]:
    """Tools in the form every template knows. A tool that takes raw text is shown as one text parameter; `simple` is
    for templates that stumble over nested schemas."""
    return [{"type": "function", "function": _function(tool, simple)} for tool in tools]


def _one_call_each(dressed: list[TemplateMessage]) -> list[TemplateMessage]:
    """For templates that know one call per turn: each call, then its result."""
    split: list[TemplateMessage] = []
    position = 0
    while position < len(dressed):
        message = dressed[position]
        position += 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            split.append(message)
            continue
        results: list[TemplateMessage] = []
        while position < len(dressed) and dressed[position]["role"] == "tool":
            results.append(dressed[position])
            position += 1
        for number, call in enumerate(calls):
            own = {**message, "tool_calls": [call]}
            split.append(own if number == 0 else {"role": "assistant", "content": "", "tool_calls": [call]})
            split.extend(result for result in results if result["tool_call_id"] == call["id"])
        known = {call["id"] for call in calls}
        split.extend(result for result in results if result["tool_call_id"] not in known)
    return split


def _neighbourly(dressed: list[TemplateMessage], traits: TemplateTraits) -> list[TemplateMessage]:
    """Messages that a template does not take side by side become one."""
    if traits.user_after_user and traits.user_after_tool and traits.tool_role:
        return dressed
    joined: list[TemplateMessage] = []
    for message in dressed:
        if message["role"] == "tool" and not traits.tool_role:
            message = {"role": "user", "content": _wrapped(message["content"])}
        before = joined[-1]["role"] if joined else ""
        if message["role"] == "user" and (
            (before == "user" and not traits.user_after_user) or (before == "tool" and not traits.user_after_tool)
        ):
            joined[-1] = {**joined[-1], "content": _added(joined[-1]["content"], message["content"])}
        else:
            joined.append(message)
    return joined


def _wrapped(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return f"<tool_response>\n{content}\n</tool_response>"
    return [{"type": "text", "text": "<tool_response>\n"}, *content, {"type": "text", "text": "\n</tool_response>"}]


def _added(first: str | list[dict[str, Any]], second: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_listed(first), {"type": "text", "text": "\n\n"}, *_listed(second)]


def _listed(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _function(tool: Tool, simple: bool) -> dict[str, Any]:
    schema: dict[str, Any] = tool.schema or {"type": "object", "properties": {}}
    if simple:
        schema = _simplified(schema)
    description = tool.description
    if tool.kind == "custom":
        schema = raw_input_schema()
        if tool.grammar:
            syntax = tool.grammar_syntax or "lark"
            description = f"{description}\n\nThe input follows this {syntax} grammar:\n{tool.grammar}"
    return {"name": tool.name, "description": description, "parameters": schema}


def _simplified(schema: dict[str, Any]) -> dict[str, Any]:
    """Every parameter as a plain one; what has parts of its own is text."""
    given = schema.get("properties")
    properties: dict[str, Any] = {}
    for name, field in given.items() if isinstance(given, dict) else ():
        kind = field.get("type") if isinstance(field, dict) else None
        properties[name] = {
            "type": kind if kind in ("integer", "number", "boolean") else "string",
            "description": str(field.get("description", "")) if isinstance(field, dict) else "",
        }
    required = schema.get("required")
    return {"type": "object", "properties": properties, "required": required if isinstance(required, list) else []}


def _user(message: Message, traits: TemplateTraits, names: CallNames, notes: list[Note]) -> list[TemplateMessage]:
    results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
    rest = tuple(block for block in message.blocks if not isinstance(block, ToolResultBlock))
    dressed: list[TemplateMessage] = [
        {
            "role": "tool",
            "tool_call_id": names.result(result.call_id),
            "name": result.name or names.name(result.call_id) or "",
            "content": _content(result.content, traits, notes),
        }
        for result in results
    ]
    if rest or not results:
        dressed.append({"role": "user", "content": _content(rest, traits, notes)})
    return dressed


def _assistant(message: Message, traits: TemplateTraits, names: CallNames, notes: list[Note]) -> TemplateMessage:
    thought = "\n".join(block.text for block in message.blocks if isinstance(block, ReasoningBlock) and block.text)
    words = tuple(block for block in message.blocks if isinstance(block, TextBlock | ImageBlock | OpaqueBlock))
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if calls and message.text.strip() and not traits.text_with_calls:
        if traits.reasoning_field is not None:
            thought = f"{thought}\n\n{message.text}" if thought else message.text
            words = ()
        else:
            notes.append(noted("replay.text_unrendered"))
    dressed: TemplateMessage = {"role": "assistant", "content": _content(words, traits, notes)}
    if thought and traits.reasoning_field == "parts":
        dressed["content"] = [{"type": "thinking", "thinking": thought}, *_parts(words, traits, notes)]
    elif thought and traits.reasoning_field is not None:
        dressed[traits.reasoning_field] = thought
    elif thought:
        notes.append(noted("replay.reasoning_unrendered"))
    if calls and not traits.turn_ends.calls:
        notes.append(noted("replay.calls_as_text"))
        dressed["content"] = _added(dressed["content"], "\n".join(_call_text(call) for call in calls))
    elif calls:
        dressed["tool_calls"] = [
            {
                "id": names.call(call),
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call, traits, notes)},
            }
            for call in calls
        ]
    return dressed


def _call_text(call: ToolCallBlock) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}\n</tool_call>'


def _arguments(call: ToolCallBlock, traits: TemplateTraits, notes: list[Note]) -> Any:
    text = call.arguments
    if call.kind == "custom":
        text = json.dumps(raw_input(call.arguments), ensure_ascii=False)
    if traits.arguments == "text":
        return text or "{}"
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError:
        notes.append(noted("replay.arguments_not_json", call.name))
        return raw_input(text)
    return value if isinstance(value, dict) else {RAW_INPUT: value}


def _content(blocks: Sequence[object], traits: TemplateTraits, notes: list[Note]) -> str | list[dict[str, Any]]:
    parts = _parts(blocks, traits, notes)
    if traits.content == "parts":
        return parts or [{"type": "text", "text": ""}]
    return "".join(part["text"] for part in parts)


def _said(text: str, traits: TemplateTraits) -> str | list[dict[str, Any]]:
    """The content of a message that is one text."""
    return [{"type": "text", "text": text}] if traits.content == "parts" else text


def _parts(blocks: Sequence[object], traits: TemplateTraits, notes: list[Note]) -> list[dict[str, Any]]:
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ImageBlock) and traits.image is not None:
            texts.append(traits.image)
        elif isinstance(block, ImageBlock):
            notes.append(noted("content.image_omitted"))
            texts.append("[image]")
        elif isinstance(block, OpaqueBlock):
            notes.append(noted("content.opaque_omitted", block.wire_type))
    return [{"type": "text", "text": "".join(texts)}] if texts else []
