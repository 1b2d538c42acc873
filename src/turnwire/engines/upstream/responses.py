"""The upstream adapter for Responses servers: items out, events in, order kept both ways.

Promise: as for Chat Completions upstream (mapped, never parsed again), and the order of thoughts, text and calls is
kept, because this API can express it. Opaque reasoning (`encrypted_content`) travels as the block's seal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from turnwire.engines.http.completions import failed_with
from turnwire.engines.http.engine import Call, Reading
from turnwire.engines.images import image_url
from turnwire.engines.interface import Completion, GenerateRequest
from turnwire.engines.upstream.chat import OpenAIEngine
from turnwire.engines.upstream.chat_body import schema_of, tool_arguments
from turnwire.engines.upstream.events import BlockReading
from turnwire.engines.upstream.thinking import thinking_fields
from turnwire.turns import (
    Conversation,
    FinishReason,
    ImageBlock,
    Message,
    Note,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["ResponsesEngine", "ResponsesReading", "responses_body"]


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    encrypted_content: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int = 0


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int = 0


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _Details | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str = ""


class _Response(msgspec.Struct, gc=False):
    usage: _Usage | None = None
    error: dict[str, Any] | None = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: str = ""
    output_index: int = 0
    summary_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    message: str | None = None
    code: str | int | None = None
    error: dict[str, Any] | str | None = None


_EVENTS = msgspec.json.Decoder(list[_Event])
_TEXTS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}


class ResponsesReading(BlockReading[_Event]):
    """A Responses stream."""

    def __init__(self, engine: str, prompt_tokens: int, conversation: Conversation | None = None) -> None:
        super().__init__(_EVENTS, conversation)
        self._engine = engine
        self._prompt = prompt_tokens
        self._told: set[int] = set()

    def _event(self, event: _Event) -> None:
        kind = event.type
        block = _TEXTS.get(kind)
        if block is not None:
            if event.delta:
                self._blocks.text("text" if block == "text" else "reasoning", event.delta)
        elif kind == "response.function_call_arguments.delta":
            self._told.add(event.output_index)
            self._blocks.call(event.output_index, arguments=event.delta)
        elif kind == "response.reasoning_summary_part.added":
            if event.summary_index:
                self._blocks.text("reasoning", "\n\n")
        elif kind == "response.output_item.added" and event.item is not None:
            if event.item.type == "function_call":
                self._blocks.call(event.output_index, name=event.item.name, call_id=event.item.call_id)
        elif kind == "response.output_item.done" and event.item is not None:
            self._item_done(event.output_index, event.item)
        elif kind in ("response.completed", "response.incomplete"):
            self._finish(event.response or _Response())
        elif kind == "response.failed":
            self.error = failed_with(self._engine, (event.response and event.response.error) or "the response failed")
        elif kind == "error" or event.error is not None:
            self.error = failed_with(self._engine, event.error or {"message": event.message or "", "type": event.code})

    def _item_done(self, index: int, item: _Item) -> None:
        if item.type == "function_call" and index not in self._told:
            self._blocks.call(index, name=item.name, call_id=item.call_id, arguments=item.arguments)
        if item.type == "reasoning" and item.encrypted_content:
            self._blocks.seal(item.encrypted_content)
        self._blocks.close()

    def _finish(self, response: _Response) -> None:
        self._blocks.close()
        usage = response.usage or _Usage(self._prompt)
        reason: FinishReason = "tool_calls" if self._blocks.called else "stop"
        if response.incomplete_details is not None:
            reason = "content_filter" if response.incomplete_details.reason == "content_filter" else "length"
        details, output = usage.input_tokens_details, usage.output_tokens_details
        self.end = Completion(
            reason,
            usage.input_tokens,
            usage.output_tokens,
            details.cached_tokens if details else 0,
            reasoning_tokens=output.reasoning_tokens if output else 0,
        )


def responses_body(request: GenerateRequest, model: str | None) -> tuple[dict[str, object], list[Note]]:
    """The body of a streaming request, and notes on what could not be said."""
    conversation, sampling = request.conversation, request.sampling
    notes: list[Note] = []
    body: dict[str, object] = {
        "model": model or conversation.model,
        "input": [item for message in conversation.messages for item in _items(message, notes)],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    wishes = {
        "max_output_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    body.update((name, value) for name, value in wishes.items() if value is not None)
    notes += [
        Note("upstream.option", f"a Responses server takes no {name}")
        for name in ("top_k", "min_p", "seed", "stop", "logprobs")
        if getattr(sampling, name) not in (None, ())
    ]
    body.update(_tools(conversation))
    if conversation.format is not None:
        form = conversation.format
        body["text"] = {
            "format": {"type": "json_object"}
            if form.schema is None
            else {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": form.strict}
        }
    fields, unsaid = thinking_fields("openai", conversation.thinking)
    if "reasoning_effort" in fields:
        body["reasoning"] = {"effort": fields["reasoning_effort"]}
    return body, notes + unsaid


def _tools(conversation: Conversation) -> dict[str, object]:
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": schema_of(tool),
            "strict": tool.strict,
        }
        for tool in conversation.tools_in_view
    ]
    if not tools:
        return {}
    choice = conversation.tool_choice
    return {
        "tools": tools,
        "tool_choice": {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode,
        "parallel_tool_calls": choice.parallel,
    }


def _items(message: Message, notes: list[Note]) -> Iterator[dict[str, object]]:
    """The items of a message, in its order; neighbouring text and images are one message item."""
    parts: list[dict[str, object]] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            kind = "output_text" if message.role == "assistant" else "input_text"
            parts.append({"type": kind, "text": block.text})
            continue
        if isinstance(block, ImageBlock):
            parts.append({"type": "input_image", "image_url": image_url(block), "detail": block.detail or "auto"})
            continue
        if parts:
            yield {"type": "message", "role": message.role, "content": parts}
            parts = []
        if isinstance(block, ReasoningBlock):
            yield _thought(block)
        elif isinstance(block, ToolCallBlock):
            yield {
                "type": "function_call",
                "call_id": block.id,
                "name": block.name,
                "arguments": tool_arguments(block),
            }
        elif isinstance(block, ToolResultBlock):
            yield {"type": "function_call_output", "call_id": block.call_id, "output": _output(block, notes)}
        else:
            notes.append(Note("upstream.block", f"a block of type {block.wire_type} cannot be sent upstream"))
    if parts:
        yield {"type": "message", "role": message.role, "content": parts}


def _thought(block: ReasoningBlock) -> dict[str, object]:
    if block.seal:
        summary = [{"type": "summary_text", "text": block.text}] if block.text else []
        return {"type": "reasoning", "summary": summary, "encrypted_content": block.seal}
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": block.text}]}


def _output(block: ToolResultBlock, notes: list[Note]) -> object:
    if all(isinstance(part, TextBlock) for part in block.content):
        return "".join(part.text for part in block.content if isinstance(part, TextBlock))
    parts: list[dict[str, object]] = []
    for part in block.content:
        if isinstance(part, TextBlock):
            parts.append({"type": "input_text", "text": part.text})
        elif isinstance(part, ImageBlock):
            parts.append({"type": "input_image", "image_url": image_url(part), "detail": part.detail or "auto"})
        else:
            notes.append(Note("upstream.block", f"a block of type {part.wire_type} cannot be sent upstream"))
    return parts


class ResponsesEngine(OpenAIEngine):
    """A Responses server. The address is its base, or the whole address of its `/responses` route."""

    def __init__(self, base_url: str, *, model: str | None = None, api_key: str | None = None) -> None:
        super().__init__(base_url.rstrip("/").removesuffix("/responses"), model=model, api_key=api_key)

    def _call(self, request: GenerateRequest) -> Call:
        body, notes = responses_body(request, self._model)
        return Call("/responses", body, tuple(notes))

    def _reading(self, request: GenerateRequest) -> Reading:
        return ResponsesReading(self.name, len(request.prompt_ids), request.conversation)
