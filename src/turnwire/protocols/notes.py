"""The stable codes that the protocols may put into a Note, each with what it means for a reader of the log.

Promise: every code of this room is here, and no other; a test reads the sources.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NOTES"]

NOTES: Final[dict[str, str]] = {
    "codex.generic_metadata": "Codex does not read the gateway's catalog and uses a generic record of the model",
    "compaction.foreign": "a compaction item made elsewhere cannot be read; it was left out",
    "content.opaque": "a content part of an unknown type was kept, but is not understood",
    "item.arguments_object": "the arguments of a call came as an object; they were taken as its JSON text",
    "item.opaque": "an input item of an unknown type was kept, but is not understood",
    "item.reference_missing": "an item that was only referred to is not stored here; it was left out",
    "logprobs.prompt_unscored": "the tokens of a prompt have no log probabilities here",
    "messages.result_without_id": "a tool result names no call; it was matched by its place",
    "reasoning.from_text": "a thought that came as assistant text was read as a thought",
    "request.block_opaque": "a content block of an unknown type was kept, but is not understood",
    "request.field_echoed": "a field is repeated in the answer and has no other effect",
    "request.field_ignored": "a field has no effect here",
    "request.input_string": "the arguments of a call came as a string",
    "request.input_unparsed": "the arguments of a call are not JSON; they were kept as the model wrote them",
    "request.surrogate_replaced": "half of a surrogate pair was replaced; it is not a character",
    "system.billing_line_dropped": "a billing line was kept out of the conversation",
    "system.message_expired": "a system message that the client marked as expired was left out",
    "tools.allowed_only": "only the allowed tools are offered to the model",
    "tools.approval_needed": "calls of an MCP server that must be approved are not run here; its tools were left out",
    "tools.choice_ignored": "the choice of a tool cannot be met; the model decides",
    "tools.custom_as_function": "a tool with raw input is shown to the model as a function with one text",
    "tools.duplicate": "a tool was offered twice; one of them counts",
    "tools.hosted_ignored": "a tool that the vendor runs is not run here; it was left out",
    "tools.option_ignored": "a member of a tool's definition has no effect here",
    "tools.search_replaced": "the vendor's tool search was replaced by one of our own",
    "tools.type_ignored": "a tool of an unknown type was left out",
    "turn.unfinished": "a thought that led to nothing at the end of the conversation was left out",
}
