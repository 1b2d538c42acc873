"""A conversation as the JSON that an Anthropic Messages server takes.

Promise: blocks keep their order, and signed thoughts go back with their signatures unchanged. A thought that this
server did not sign cannot be shown to it and is left out with a note, as is everything else its wire has no place for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from turnwire.conventions import raw_input
from turnwire.engines.interface import GenerateRequest
from turnwire.engines.upstream.chat_body import schema_of, tool_arguments
from turnwire.turns import (
    Block,
    Conversation,
    ImageBlock,
    Message,
    Note,
    OpaqueBlock,
    ReasoningBlock,
    Sampling,
    TextBlock,
    Thinking,
    ToolCallBlock,
    ToolResultBlock,
)
from turnwire.unreadable import UNREADABLE

__all__ = ["REDACTED", "messages_body"]

REDACTED = "redacted:"
"""What marks the carrier of a thought that came without text, so that it goes back as it came."""

_OURS = ("tw1.", "rd1.")
"""How carriers of other kinds begin: turns sealed here, and the details of a Chat server."""

_DEFAULT_OUTPUT = 32_000
_LEAST_BUDGET = 1_024
_BUDGETS = {"minimal": 1_024, "low": 4_096, "medium": 12_288, "high": 24_576, "xhigh": 32_768, "max": 65_536}
_CHOICES = {"auto": "auto", "required": "any", "named": "tool", "none": "none"}
_UNSAID = ("min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs", "logit_bias")
_CACHED = {"cache_control": {"type": "ephemeral"}}


def messages_body(request: GenerateRequest, model: str | None) -> tuple[dict[str, object], list[Note]]:
    """The body of a streaming request, and notes on what could not be said."""
    conversation, notes = request.conversation, list[Note]()
    system, rest = _split(conversation.messages)
    body: dict[str, object] = {
        "model": model or conversation.model,
        "max_tokens": request.sampling.max_tokens or _DEFAULT_OUTPUT,
        "messages": _cached([each for message in rest for each in _message(message, notes)]),
        "stream": True,
    }
    if system:
        body["system"] = [*system[:-1], system[-1] | _CACHED]
    body |= _sampling(request.sampling, notes)
    body |= _tools(conversation)
    body |= _thinking(conversation.thinking, int(str(body["max_tokens"])), notes)
    output: dict[str, object] = {}
    if conversation.thinking.effort is not None and conversation.thinking.mode != "off":
        output["effort"] = conversation.thinking.effort
    if conversation.format is not None and conversation.format.schema is not None:
        output["format"] = {"type": "json_schema", "schema": conversation.format.schema}
    elif conversation.format is not None:
        notes.append(Note("upstream.option", "A Messages server takes no format without a schema."))
    if output:
        body["output_config"] = output
    return body, notes


def _split(messages: Sequence[Message]) -> tuple[list[dict[str, object]], Sequence[Message]]:
    """The system text before the conversation, and the conversation."""
    first = next((at for at, each in enumerate(messages) if each.role not in ("system", "developer")), len(messages))
    return [{"type": "text", "text": each.text} for each in messages[:first] if each.text], messages[first:]


def _cached(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The whole prefix up to the last block is worth caching: the next turn repeats it."""
    last = messages[-1]["content"] if messages else ()
    if last and last[-1]["type"] not in ("thinking", "redacted_thinking"):
        last[-1] = last[-1] | _CACHED
    return messages


def _message(message: Message, notes: list[Note]) -> Iterator[dict[str, Any]]:
    if message.role in ("system", "developer"):
        notes.append(Note("upstream.system", "System text inside the conversation is sent as the user's."))
    role = "assistant" if message.role == "assistant" else "user"
    content = [part for block in message.blocks for part in _block(block, notes)]
    if content:
        yield {"role": role, "content": content}


def _block(block: Block, notes: list[Note]) -> Iterator[dict[str, Any]]:
    match block:
        case TextBlock():
            if block.text:
                yield {"type": "text", "text": block.text}
        case ImageBlock():
            yield {"type": "image", "source": _image(block)}
        case ReasoningBlock():
            yield from _thought(block, notes)
        case ToolCallBlock():
            yield {"type": "tool_use", "id": block.id, "name": block.name, "input": _arguments(block, notes)}
        case ToolResultBlock():
            content = [part for each in block.content for part in _block(each, notes)]
            error = {"is_error": True} if block.is_error else {}
            yield {"type": "tool_result", "tool_use_id": block.call_id, "content": content, **error}
        case OpaqueBlock():
            notes.append(Note("upstream.block", f"A block of type {block.wire_type} cannot be sent upstream."))


def _thought(block: ReasoningBlock, notes: list[Note]) -> Iterator[dict[str, Any]]:
    seal = block.seal or ""
    if seal.startswith(REDACTED):
        yield {"type": "redacted_thinking", "data": seal.removeprefix(REDACTED)}
    elif not seal or seal.startswith(_OURS):
        notes.append(Note("upstream.unsigned_thought", "A thought without the server's signature was left out."))
    elif block.redacted:
        yield {"type": "redacted_thinking", "data": seal}
    else:
        yield {"type": "thinking", "thinking": block.text, "signature": seal}


def _arguments(block: ToolCallBlock, notes: list[Note]) -> dict[str, Any]:
    try:
        return msgspec.json.decode(tool_arguments(block), type=dict[str, Any])
    except UNREADABLE:
        notes.append(Note("upstream.arguments", f"The arguments of {block.name} are not a JSON object; sent as text."))
        return dict(raw_input(block.arguments))


def _image(block: ImageBlock) -> dict[str, object]:
    if block.url and not block.data:
        return {"type": "url", "url": block.url}
    return {"type": "base64", "media_type": block.media_type or "image/png", "data": block.data}


def _sampling(sampling: Sampling, notes: list[Note]) -> dict[str, object]:
    wishes = {
        "temperature": None if sampling.temperature is None else min(sampling.temperature, 1.0),
        "top_p": sampling.top_p,
        "top_k": sampling.top_k if sampling.top_k is not None and sampling.top_k > 0 else None,
        "stop_sequences": list(sampling.stop) or None,
    }
    notes += [
        Note("upstream.option", f"A Messages server takes no {name}.")
        for name in _UNSAID
        if getattr(sampling, name) not in (None, {})
    ]
    return {name: value for name, value in wishes.items() if value is not None}


def _tools(conversation: Conversation) -> dict[str, object]:
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": schema_of(tool),
            **({"strict": True} if tool.strict else {}),
        }
        for tool in conversation.tools_in_view
    ]
    if not tools:
        return {}
    wanted = conversation.tool_choice
    choice: dict[str, object] = {"type": _CHOICES[wanted.mode]}
    if wanted.mode == "named":
        choice["name"] = wanted.name
    if not wanted.parallel and wanted.mode != "none":
        choice["disable_parallel_tool_use"] = True
    return {"tools": tools, "tool_choice": choice}


def _thinking(thinking: Thinking, most: int, notes: list[Note]) -> dict[str, object]:
    if thinking.mode == "off":
        return {"thinking": {"type": "disabled"}}
    if thinking.mode == "adaptive":
        return {"thinking": {"type": "adaptive"}}
    if thinking.mode is None and thinking.budget is None:
        return {}
    budget = thinking.budget or _BUDGETS.get(thinking.effort or "medium", _BUDGETS["medium"])
    fitting = max(_LEAST_BUDGET, min(budget, most - 1))
    if fitting >= most:
        notes.append(
            Note("upstream.thinking_budget", f"max_tokens leaves no room for {_LEAST_BUDGET} tokens of thought.")
        )
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": fitting}}
