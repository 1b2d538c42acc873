"""A Responses request, decoded: bytes and headers in, a conversation and its echo out.

Promise: no field is lost. What shapes the turn goes into the conversation, what OpenAI repeats goes into the echo, and
what is not used here is noted by name. Only a request that cannot be answered truly is refused, with the path of the
field and what to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.context import agent_hints, dispatch_opt_in, turn_context
from turnwire.protocols.json_body import any_value, invalid, nesting, open_body
from turnwire.protocols.limits import Limits
from turnwire.protocols.responses.compaction import summary_request
from turnwire.protocols.responses.echo import Echo, echoed_fields
from turnwire.protocols.responses.items import ItemWalk
from turnwire.protocols.responses.options import flag, object_field, output_format, sampling, string, thinking
from turnwire.protocols.responses.stored import Stored, referred, resolved
from turnwire.protocols.responses.tools import Toolbox
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import (
    Conversation,
    Message,
    Note,
    TextBlock,
    ToolChoice,
    TurnContext,
)

__all__ = ["RequestBody", "decode", "decode_request", "is_codex", "read_fields", "read_request"]

USED = frozenset(
    {
        "background",
        "chat_template_kwargs",
        "client_metadata",
        "frequency_penalty",
        "generate",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "min_p",
        "model",
        "nvext",
        "parallel_tool_calls",
        "presence_penalty",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_options",
        "reasoning",
        "repetition_penalty",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "type",
    }
)
"""Fields that shape the turn or its answer."""

ECHOED = frozenset(
    {
        "max_tool_calls",
        "prompt_cache_retention",
        "safety_identifier",
        "top_logprobs",
        "truncation",
        "user",
    }
)
"""Fields that are repeated in the response object and change nothing else."""

QUIET: Mapping[str, tuple[Any, ...]] = {
    "max_tool_calls": (None,),
    "prompt_cache_retention": (None,),
    "safety_identifier": (None,),
    "stream_options": (None,),
    "top_logprobs": (None, 0),
    "truncation": (None, "disabled"),
    "user": (None,),
}
"""Values of unused fields that ask for nothing, so that there is nothing to note."""

REFUSED: Mapping[str, str] = {
    "prompt": "stored prompt templates are not kept here; send the text in `instructions` and `input`",
    "conversation": "conversation objects are not kept here; use `previous_response_id` or send the items in `input`",
}
"""Fields that name content we do not have: an answer without it would be an answer to something else."""

DEFAULT_LIMITS = Limits()
INCLUDABLE = frozenset({"reasoning.encrypted_content"})
PRIORITY_OF_TIER = {"priority": 1, "fast": 1, "flex": -1}


class RequestBody(msgspec.Struct, frozen=True):
    """A request body, read but not yet understood. `references` are the ids that only a store can resolve."""

    fields: dict[str, Any]
    previous_response_id: str | None
    references: tuple[str, ...]
    notes: tuple[Note, ...]


def read_request(body: bytes, limits: Limits = DEFAULT_LIMITS) -> RequestBody:
    """Open a body and say what it refers to, so that the caller can fetch it before `decode_request`."""
    opened = open_body(body, limits)
    tools = opened.fields.get("tools")
    if tools is not None and nesting(tools, limits.depth):
        raise invalid("tools", f"nested deeper than {limits.depth} levels")
    fields = {name: any_value(raw, name) for name, raw in opened.fields.items()}
    return read_fields(fields, opened.notes, limits)


def read_fields(fields: dict[str, Any], notes: tuple[Note, ...] = (), limits: Limits = DEFAULT_LIMITS) -> RequestBody:
    """The same for a body that is already decoded (a WebSocket message)."""
    items = fields.get("input")
    if isinstance(items, list) and len(items) > limits.messages:
        raise invalid("input", f"has {len(items)} items; the limit is {limits.messages}")
    tools = fields.get("tools")
    if isinstance(tools, list) and len(tools) > limits.tools:
        raise invalid("tools", f"has {len(tools)} tools; the limit is {limits.tools}")
    previous = fields.get("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise invalid("previous_response_id", "must be a string")
    return RequestBody(fields, previous or None, referred(items), notes)


def decode(
    body: bytes, headers: Mapping[str, str], *, stored: Stored | None = None, limits: Limits = DEFAULT_LIMITS
) -> Inbound[Echo]:
    """A request's conversation and echo; header names are lower case."""
    return decode_request(read_request(body, limits), headers, stored=stored, limits=limits)


def decode_request(
    request: RequestBody, headers: Mapping[str, str], *, stored: Stored | None = None, limits: Limits = DEFAULT_LIMITS
) -> Inbound[Echo]:
    """The same for a body that was read before; `stored` holds what its references name."""
    fields = request.fields
    notes = [*request.notes, *_unused(fields)]
    # A request that names no model gets the gateway's default.
    model = string(fields, "model") or ""
    if request.previous_response_id and (stored is None or stored.history is None):
        raise TurnFailure(
            "invalid_request",
            f"Previous response with id '{request.previous_response_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    toolbox = Toolbox()
    toolbox.add(fields.get("tools"), "tools")
    walk = ItemWalk(toolbox)
    items = _input_items(fields, bool(request.previous_response_id))
    if stored is not None and request.references:
        items = resolved(items, stored.items)
    if stored is not None and request.previous_response_id:
        walk.walk(stored.history or (), "previous")
    walk.walk(items, "input")
    messages = walk.close()
    instructions = _instructions(fields)
    if instructions:
        messages = (Message(role="developer", blocks=(TextBlock(text=instructions),)), *messages)
    choice = _tool_choice(fields, toolbox, notes)
    if not toolbox.client_search and any(tool.deferred for tool in toolbox.tools):
        toolbox.load_all()
    context, context_notes = _context(fields, headers, limits)
    conversation = Conversation(
        model=model,
        messages=messages,
        tools=tuple(toolbox.tools),
        tool_choice=choice,
        sampling=sampling(fields, limits),
        thinking=thinking(fields),
        format=output_format(fields),
        template_args=object_field(fields, "chat_template_kwargs"),
        context=context,
    )
    if walk.compaction_requested:
        conversation = summary_request(conversation)
    previous_turn = _compared_with(fields)
    echo = Echo(
        fields=echoed_fields(fields, model),
        toolbox=toolbox,
        summaries=object_field(fields, "reasoning").get("summary") != "none",
        store=flag(fields, "store", True),
        background=flag(fields, "background", False),
        previous_response_id=request.previous_response_id,
        input_items=items,
        compaction=walk.compaction_requested,
        codex=is_codex(headers, fields),
        stateless="reasoning.encrypted_content" in (fields.get("include") or ()),
    )
    return Inbound(
        conversation=conversation,
        stream=flag(fields, "stream", False),
        notes=(*notes, *context_notes, *toolbox.notes, *walk.notes),
        dispatch=dispatch_opt_in(headers),
        echo=echo,
        previous_turn=previous_turn,
    )


def is_codex(headers: Mapping[str, str], fields: Mapping[str, Any]) -> bool:
    """Whether the request speaks Codex's own dialect of headers and metadata (which no other client sends)."""
    if headers.get("originator", "").startswith("codex") or any(name.startswith("x-codex-") for name in headers):
        return True
    metadata = fields.get("client_metadata")
    return isinstance(metadata, dict) and any(str(key).startswith("x-codex-") for key in metadata)


# ---------------------------------------------------------------------------------------------------------- fields


def _unused(fields: Mapping[str, Any]) -> list[Note]:
    notes = []
    for name, value in fields.items():
        if name in REFUSED and value is not None:
            raise invalid(name, REFUSED[name])
        if name in USED or value is None or value in QUIET.get(name, ()):
            continue
        code = "request.field_echoed" if name in ECHOED else "request.field_ignored"
        notes.append(Note(code, f"`{name}` is not used by this gateway"))
    text = fields.get("text")
    if isinstance(text, dict) and text.get("verbosity") not in (None, "medium"):
        notes.append(Note("request.field_echoed", "`text.verbosity` is not used by this gateway"))
    include = fields.get("include")
    if include is not None and not isinstance(include, list):
        raise invalid("include", "must be a list of strings")
    notes += [
        Note("request.field_ignored", f"`include`: '{what}' is not available here")
        for what in include or ()
        if not isinstance(what, str) or what not in INCLUDABLE
    ]
    return notes


def _input_items(fields: Mapping[str, Any], continues: bool) -> list[dict[str, Any]]:
    value = fields.get("input")
    if value is None:
        if continues or fields.get("instructions") or fields.get("generate") is False:
            return []
        raise invalid("input", "give a string or a list of items")
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise invalid("input", "must be a string or a list of items")
    return value


def _compared_with(fields: Mapping[str, Any]) -> str | None:
    """The turn behind `prompt_cache_options.comparison_response_id`."""
    named = object_field(fields, "prompt_cache_options").get("comparison_response_id")
    if named is not None and not isinstance(named, str):
        raise invalid("prompt_cache_options.comparison_response_id", "must be a response id or null")
    return named.removeprefix("resp_") if named else None


def _instructions(fields: Mapping[str, Any]) -> str:
    """The base prompt. It becomes the same leading developer message that newer clients send in `input`."""
    value = fields.get("instructions")
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n\n".join(v for part in value if isinstance(part, dict) and isinstance(v := part.get("text"), str))
    raise invalid("instructions", "must be a string")


def _tool_choice(fields: Mapping[str, Any], toolbox: Toolbox, notes: list[Note]) -> ToolChoice:
    value = fields.get("tool_choice")
    parallel = flag(fields, "parallel_tool_calls", True)
    if value is None:
        return ToolChoice(parallel=parallel)
    if isinstance(value, str):
        if value not in ("auto", "none", "required"):
            raise invalid("tool_choice", "must be auto, none, required or an object that names a tool")
        return ToolChoice(mode=value, parallel=parallel)  # type: ignore[arg-type]
    if not isinstance(value, dict):
        raise invalid("tool_choice", "must be a string or an object")
    kind = value.get("type")
    if kind == "allowed_tools":
        return _allowed(value, toolbox, parallel, notes)
    if kind in ("function", "custom"):
        name = _chosen(value, toolbox)
        if name not in {tool.name for tool in toolbox.tools}:
            raise invalid("tool_choice.name", f"no tool '{value.get('name')}' is in `tools`")
        return ToolChoice(mode="named", name=name, parallel=parallel)
    notes.append(
        Note("tools.choice_ignored", f"tool_choice '{kind}' names a tool that cannot be run here; auto is used")
    )
    return ToolChoice(parallel=parallel)


def _allowed(value: dict[str, Any], toolbox: Toolbox, parallel: bool, notes: list[Note]) -> ToolChoice:
    listed = value.get("tools")
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        raise invalid("tool_choice.tools", "must be a list of tools")
    toolbox.keep(_chosen(tool, toolbox) for tool in listed)
    notes.append(Note("tools.allowed_only", "only the allowed tools are shown; changing the list changes the prompt"))
    return ToolChoice(mode="required" if value.get("mode") == "required" else "auto", parallel=parallel)


def _chosen(value: dict[str, Any], toolbox: Toolbox) -> str:
    name, namespace = value.get("name"), value.get("namespace")
    if not isinstance(name, str):
        return ""
    return toolbox.name_of(name, namespace if isinstance(namespace, str) and namespace else None)


def _context(fields: Mapping[str, Any], headers: Mapping[str, str], limits: Limits) -> tuple[TurnContext, list[Note]]:
    metadata = fields.get("client_metadata")
    told = {str(k).lower(): v for k, v in metadata.items() if isinstance(v, str)} if isinstance(metadata, dict) else {}
    # Codex repeats its headers in client_metadata; on a WebSocket only the latter is fresh.
    merged = {**headers, **{name: value for name, value in told.items() if name.startswith("x-codex-") and value}}
    for header, field in (("session-id", "session_id"), ("thread-id", "thread_id")):
        if told.get(field):
            merged[header] = told[field]
    hints = agent_hints(fields.get("nvext"))
    key = fields.get("prompt_cache_key")
    context = turn_context(
        merged,
        session=key if isinstance(key, str) and key else None,
        priority=hints.priority
        if hints.priority is not None
        else PRIORITY_OF_TIER.get(str(fields.get("service_tier"))),
        limit=limits.header_chars,
    )
    return context, [Note("request.field_ignored", f"`{name}` is not used by this gateway") for name in hints.unknown]
