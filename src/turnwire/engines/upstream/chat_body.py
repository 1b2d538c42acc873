"""A conversation as the JSON that an upstream Chat Completions server takes.

Promise: everything Chat Completions can say is said, arguments byte for byte; what it cannot say is a note, never a
silent loss. The order of thoughts among calls inside one assistant message is what this API has no words for: a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from turnwire.conventions import raw_input
from turnwire.engines.http.wishes import made, sampling_wishes
from turnwire.engines.images import image_url
from turnwire.engines.interface import GenerateRequest
from turnwire.engines.upstream.details import carried
from turnwire.engines.upstream.thinking import Switches, thinking_fields
from turnwire.turns import (
    Block,
    ImageBlock,
    Message,
    Note,
    OpaqueBlock,
    ReasoningBlock,
    Sampling,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolChoice,
    ToolResultBlock,
)

__all__ = ["chat_body", "limits", "schema_of", "tool_arguments"]


def chat_body(
    request: GenerateRequest,
    model: str | None,
    reasoning_field: str,
    server: str = "openai",
    switches: Switches | None = None,
) -> tuple[dict[str, object], list[Note]]:
    """The body of a streaming request, and notes on what could not be said. `server` is whose words for thinking are
    used, `switches` what the model's template calls them."""
    conversation = request.conversation
    notes: list[Note] = []
    body: dict[str, object] = {
        "model": model or conversation.model,
        "messages": [message for told in conversation.messages for message in _messages(told, reasoning_field, notes)],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    visible = conversation.tools_in_view
    if visible:
        body["tools"] = [_tool(tool) for tool in visible]
        body["tool_choice"] = _choice(conversation.tool_choice)
        if not conversation.tool_choice.parallel:
            body["parallel_tool_calls"] = False
    body.update(limits(request.sampling))
    if request.sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.sampling.logprobs}
    if conversation.format is not None:
        form = conversation.format
        body["response_format"] = (
            {"type": "json_object"}
            if form.schema is None
            else {
                "type": "json_schema",
                "json_schema": {"name": form.name, "schema": form.schema, "strict": form.strict},
            }
        )
    fields, unsaid = thinking_fields(server, conversation.thinking, switches)
    body |= fields
    notes += unsaid
    if conversation.template_args:
        said = body.get("chat_template_kwargs")
        body["chat_template_kwargs"] = (said if isinstance(said, dict) else {}) | conversation.template_args
    return body, notes


def limits(sampling: Sampling) -> dict[str, object]:
    """The sampling wishes that were made, under Chat Completions' names."""
    return made(
        {
            "max_tokens": sampling.max_tokens,
            **sampling_wishes(sampling),
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
        }
    )


def tool_arguments(call: ToolCallBlock) -> str:
    """A call's arguments as JSON text; the raw text of a custom call is its one argument `input`."""
    if call.kind == "custom":
        return msgspec.json.encode(raw_input(call.arguments)).decode()
    return call.arguments or "{}"


def schema_of(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments; one without any takes an object."""
    return tool.schema or {"type": "object", "properties": {}}


def _tool(tool: Tool) -> dict[str, object]:
    function: dict[str, object] = {"name": tool.name, "parameters": schema_of(tool)}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> object:
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _messages(message: Message, reasoning_field: str, notes: list[Note]) -> Iterator[dict[str, object]]:
    if message.role == "assistant":
        yield _assistant(message, reasoning_field, notes)
        return
    pending: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            if pending:
                yield {"role": message.role, "content": _content(pending, notes)}
                pending = []
            yield from _result(block, notes)
        else:
            pending.append(block)
    if pending or not message.blocks:
        yield {"role": message.role, "content": _content(pending, notes)}


def _result(block: ToolResultBlock, notes: list[Note]) -> Iterator[dict[str, object]]:
    content = _content([part for part in block.content if not isinstance(part, ImageBlock)], notes)
    yield {"role": "tool", "tool_call_id": block.call_id, "content": content}
    images = [part for part in block.content if isinstance(part, ImageBlock)]
    if images:
        # Tool messages are text on this wire; what a tool shows follows as the user's.
        yield {"role": "user", "content": _content(images, notes)}


def _assistant(message: Message, reasoning_field: str, notes: list[Note]) -> dict[str, object]:
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    thoughts = [block for block in message.blocks if isinstance(block, ReasoningBlock)]
    answer: dict[str, object] = {"role": "assistant", "content": message.text or (None if calls else "")}
    told = "".join(block.text for block in thoughts if not block.redacted)
    if told:
        answer[reasoning_field] = told
    details = [piece for block in thoughts for piece in carried(block.seal) or ()]
    if details:
        answer["reasoning_details"] = details
    if _out_of_order(message):
        notes.append(Note("upstream.order", "Thoughts and text come before all calls on this wire, in whatever order."))
    if calls:
        answer["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": tool_arguments(call)}}
            for call in calls
        ]
    notes += [
        Note("upstream.block", f"an assistant block of type {_kind(block)} cannot be sent upstream")
        for block in message.blocks
        if isinstance(block, (OpaqueBlock, ImageBlock))
    ]
    return answer


def _out_of_order(message: Message) -> bool:
    """Whether a thought or text follows a call, or a thought follows text: a message here has one place for each."""
    ranks = {ReasoningBlock: 0, TextBlock: 1, ToolCallBlock: 2}
    order = [ranks[type(block)] for block in message.blocks if type(block) in ranks]
    return order != sorted(order)


def _content(blocks: list[Any], notes: list[Note]) -> object:
    """Text as one string, and parts only where there is more than text."""
    parts: list[dict[str, object]] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ImageBlock):
            url: dict[str, object] = {"url": image_url(block)}
            if block.detail is not None:
                url["detail"] = block.detail
            parts.append({"type": "image_url", "image_url": url})
        else:
            notes.append(Note("upstream.block", f"a block of type {_kind(block)} cannot be sent upstream"))
    if all(part["type"] == "text" for part in parts):
        return "".join(str(part["text"]) for part in parts)
    return parts


def _kind(block: Block) -> str:
    return block.wire_type if isinstance(block, OpaqueBlock) else type(block).__name__
