"""The members of content blocks, input items and calls that are known here, and what becomes of each.

Promise: of what a conversation is made of no member is forgotten in silence: one that asks for what is not done, or
that nobody knows, is noted. One table holds for all blocks of an API, so a known member in a block that has no use for
it is not noted. docs/fields.md prints these tables too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwire.protocols.fields.decoded import PartNote
from turnwire.protocols.fields.members import member_notes
from turnwire.protocols.fields.table import Field, FieldTable

__all__ = ["CONTENTS", "ITEM", "MESSAGE_BLOCK", "PART", "RESPONSE_PART", "TOOL_CALL", "content_notes"]

_CACHE_MARK = Field("accepted", "prefixes are cached without marks")
_DIRECT = ({"type": "direct"},)
_CALLER = Field("noted", "calls are the model's own, never a program's", _DIRECT)

MESSAGE_BLOCK: FieldTable = {
    "type": Field("honoured", "what kind of block it is"),
    "text": Field("honoured", "the text"),
    "thinking": Field("honoured", "the thought"),
    "signature": Field("honoured", "what carries the thought's own tokens"),
    "data": Field("honoured", "what carries a thought that is not shown"),
    "id": Field("honoured", "of a call"),
    "name": Field("honoured", "of the tool that is called"),
    "input": Field("honoured", "the arguments of a call, as written"),
    "tool_use_id": Field("honoured", "the call that is answered"),
    "content": Field("honoured", "of a result, a document or a summary"),
    "is_error": Field("honoured", "whether the tool failed"),
    "source": Field("honoured", "of an image or a document"),
    "title": Field("honoured", "of a document"),
    "context": Field("honoured", "of a document"),
    "tool_name": Field("honoured", "the tool that a search has found"),
    "tool": Field("honoured", "the tool that comes or goes"),
    "server_name": Field("honoured", "of the MCP server that is called"),
    "citations": Field("honoured", "noted where a document asks for them; of an answer's text repeated from it"),
    "cache_control": _CACHE_MARK,
    "caller": _CALLER,
    "toolset_name": Field("noted", "tools are known by their names alone"),
    "transformations": Field("noted", "images are passed on as they are", ([],)),
}
"""Content blocks of Messages."""

PART: FieldTable = {
    "type": Field("honoured", "what kind of part it is"),
    "text": Field("honoured", "the text"),
    "refusal": Field("honoured", "the text of a refusal"),
    "thinking": Field("honoured", "the thought"),
    "reasoning": Field("honoured", "the thought"),
    "image_url": Field("honoured", "the image"),
    "cache_control": _CACHE_MARK,
    "copilot_cache_control": _CACHE_MARK,
    "prompt_cache_breakpoint": _CACHE_MARK,
    "annotations": Field("accepted", "repeated from an answer"),
}
"""Content parts of Chat Completions."""

TOOL_CALL: FieldTable = {
    "id": Field("honoured", "by which a result names it"),
    "type": Field("accepted", "a call with `custom` is a custom one"),
    "index": Field("accepted", "the order of the list is the order of the calls"),
    "function": Field("honoured", "name and arguments, as written"),
    "custom": Field("honoured", "name and input, as written"),
}
"""Entries of `tool_calls` in Chat Completions."""

ITEM: FieldTable = {
    "type": Field("honoured", "what kind of item it is"),
    "role": Field("honoured", "of a message"),
    "content": Field("honoured", "of a message or a thought"),
    "summary": Field("honoured", "of a thought that has no content"),
    "encrypted_content": Field("honoured", "what carries a thought's own tokens, or a compaction"),
    "call_id": Field("honoured", "of a call and of its output"),
    "name": Field("honoured", "of the tool that is called"),
    "namespace": Field("honoured", "of the tool that is called"),
    "arguments": Field("honoured", "of a call, as written"),
    "input": Field("honoured", "of a custom call, as written"),
    "output": Field("honoured", "of a tool"),
    "tools": Field("honoured", "that a search has found, or that are added"),
    "execution": Field("honoured", "who ran a tool search"),
    "author": Field("honoured", "of another agent's message"),
    "recipient": Field("honoured", "of another agent's message"),
    "id": Field("honoured", "of a reference; never part of a prompt"),
    "status": Field("accepted", "repeated from an answer"),
    "phase": Field("accepted", "the order of the items says where a message was said"),
    "metadata": Field("accepted", "the client's own"),
    "internal_chat_message_metadata_passthrough": Field("accepted", "the client's own"),
    "caller": _CALLER,
    "async": Field("noted", "a call is answered before the next turn", (False,)),
}
"""Input items of Responses."""

RESPONSE_PART: FieldTable = {
    "type": Field("honoured", "what kind of part it is"),
    "text": Field("honoured", "the text"),
    "refusal": Field("honoured", "the text of a refusal"),
    "image_url": Field("honoured", "the image"),
    "detail": Field("honoured", "of an image, where the engine takes it"),
    "annotations": Field("accepted", "repeated from an answer"),
    "logprobs": Field("accepted", "repeated from an answer"),
    "prompt_cache_breakpoint": _CACHE_MARK,
    "file_id": Field("honoured", "an image that is only named is kept, but not shown to the model"),
}
"""Content parts of Responses."""

CONTENTS: Mapping[str, FieldTable] = {
    "Messages: members of a content block": MESSAGE_BLOCK,
    "Chat Completions: members of a content part": PART,
    "Chat Completions: members of a tool call": TOOL_CALL,
    "Responses: members of an input item": ITEM,
    "Responses: members of a content part": RESPONSE_PART,
}
"""Every table here under its heading in the docs."""


def content_notes(table: FieldTable, given: Mapping[str, Any], path: str) -> list[PartNote]:
    """A note for each member of `given` that has no effect here."""
    return member_notes(table, given, path, "request.field_ignored")
