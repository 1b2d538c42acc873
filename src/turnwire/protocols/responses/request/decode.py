"""A Responses request, decoded: bytes and headers in, a conversation and its echo out.

Promise: no field is lost. What shapes the turn goes into the conversation, what OpenAI repeats goes into the echo, and
what is not used here is noted by name. Only a request that cannot be answered truly is refused, with the path of the
field and what to change.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec

from turnwire.protocols.context import AgentHints, dispatch_opt_in, turn_context
from turnwire.protocols.fields.body import any_value, elements, first_byte, invalid
from turnwire.protocols.fields.decoded import DecodedParts, PartNote, PartReader, ReadList
from turnwire.protocols.fields.extensions import Extensions, read_extensions
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.fields.sampling import read_sampling
from turnwire.protocols.fields.table import RESPONSES
from turnwire.protocols.hosted.offer import NOTHING, HostedOffer
from turnwire.protocols.limits import Limits
from turnwire.protocols.responses.compaction.summary import summary_request
from turnwire.protocols.responses.echo import Echo, EchoedFields, echoed_fields, echoed_tools
from turnwire.protocols.responses.request.choice import read_tool_choice
from turnwire.protocols.responses.request.items import DecodedItem, decode_item, read_item
from turnwire.protocols.responses.request.walk import ItemWalk
from turnwire.protocols.responses.stored import Stored
from turnwire.protocols.responses.tools import Toolbox
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import (
    Conversation,
    HostedUse,
    Message,
    OutputFormat,
    Sampling,
    TextBlock,
    Thinking,
    ToolChoice,
    TurnContext,
)

__all__ = ["RequestBody", "decode", "decode_request", "is_codex", "read_request"]

INCLUDABLE = frozenset(
    {
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
        "file_search_call.results",
    }
)
"""What a client may ask to be included; results of tools that the gateway runs always are."""

PRIORITY_OF_TIER = {"priority": 1, "fast": 1, "flex": -1}

_PARTS = frozenset({"client_metadata", "input", "previous_response_id", "tools"})
"""Fields that are others with each request of a conversation, or that are read by themselves."""
_DEFERRED = attrgetter("deferred")


class RequestBody(msgspec.Struct, frozen=True):
    """A request body, read but not yet understood. `references` are the ids that only a store can resolve; `type` and
    `generate` are what a WebSocket message says of itself."""

    fields: Fields
    input: ReadList[DecodedItem]
    previous_response_id: str | None
    references: tuple[str, ...]
    type: str | None
    generate: bool
    cache: DecodedParts | None


def read_request(body: bytes, limits: Limits | None = None, *, cache: DecodedParts | None = None) -> RequestBody:
    """Open a body and say what it refers to, so that the caller can fetch it before `decode_request`. `cache` holds the
    parts of earlier requests."""
    fields = Fields(body, RESPONSES, limits or Limits())
    items = _items(fields, cache)
    return RequestBody(
        fields=fields,
        input=items,
        previous_response_id=fields.text("previous_response_id") or None,
        references=tuple([item.name for item in items.values if item.place == "reference"]),
        type=fields.text("type"),
        generate=fields.flag("generate", default=True),
        cache=cache,
    )


def decode(
    body: bytes,
    headers: Mapping[str, str],
    *,
    stored: Stored | None = None,
    limits: Limits | None = None,
    cache: DecodedParts | None = None,
    offer: HostedOffer = NOTHING,
) -> Inbound[Echo]:
    """A request's conversation and echo; header names are lower case. `offer` are the hosted tools that the gateway
    runs."""
    return decode_request(read_request(body, limits, cache=cache), headers, stored=stored, offer=offer)


def decode_request(
    request: RequestBody, headers: Mapping[str, str], *, stored: Stored | None = None, offer: HostedOffer = NOTHING
) -> Inbound[Echo]:
    """The same for a body that was read before; `stored` holds what its references name."""
    fields = request.fields
    earlier = _earlier(request, stored)
    offered = _tools(fields, request.cache, offer)
    walked = _walked(request, stored, earlier, offered)
    if not walked.items and not earlier and request.generate and not fields.has("instructions"):
        raise invalid("input", "give a string or a list of items")
    walk = walked.walk
    messages, toolbox = walk.close(), walk.toolbox
    fields.notes.on_part("", walk.notes.values())
    if walk.unfinished:
        fields.notes.add("turn.unfinished", "a thought that led to nothing at the end of `input` is left out")
    asked = fields.settings(request.cache, "responses", _PARTS, lambda: _settings(fields))
    extensions = asked.extensions
    choice = read_tool_choice(fields, toolbox) if asked.choice is None else asked.choice
    if not toolbox.client_search and any(map(_DEFERRED, toolbox.tools)):
        toolbox.load_all()
    metadata = fields.object("client_metadata") or {}
    conversation = Conversation(
        model=asked.model,
        messages=(*asked.opening, *messages),
        tools=tuple(toolbox.tools),
        tool_choice=choice,
        sampling=asked.sampling,
        thinking=asked.thinking,
        format=asked.format,
        template_args=asked.template_args,
        context=_context(asked, headers, metadata, fields.limits.header_chars),
    )
    if walk.compaction_requested:
        conversation = summary_request(conversation)
    echo = Echo(
        fields=asked.echoed.around(offered.echoed, request.previous_response_id),
        toolbox=toolbox,
        summaries=asked.summaries,
        store=asked.store,
        background=asked.background,
        previous_response_id=request.previous_response_id,
        input_items=[item.item for item in walked.items],
        compaction=walk.compaction_requested,
        codex=is_codex(headers, metadata),
        stateless=asked.stateless,
    )
    if echo.codex and _is_generic(toolbox):
        fields.notes.add("codex.generic_metadata", "Codex does not know this model and leaves out apply_patch")
    stated = dispatch_opt_in(headers)
    return Inbound(
        conversation=conversation,
        stream=asked.stream,
        notes=fields.notes.all(),
        dispatch=stated if stated is not None or not isinstance(extensions.dispatch, bool) else extensions.dispatch,
        echo=echo,
        hosted=_uses(asked.most_calls, toolbox),
        report=extensions.report,
        annotations=extensions.annotations,
        previous_turn=asked.previous_turn,
    )


class _Settings(msgspec.Struct, frozen=True):
    """What a request says beside its input and its tools. `opening` are its instructions as a message; `choice` is None
    where it depends on the tools; `stateless` and `summaries` are what it wants of reasoning, `previous_turn` is the
    turn that it wants to be compared with."""

    model: str
    opening: tuple[Message, ...]
    choice: ToolChoice | None
    extensions: Extensions
    hints: AgentHints
    session: str | None
    sampling: Sampling
    thinking: Thinking
    format: OutputFormat | None
    template_args: dict[str, Any]
    echoed: EchoedFields
    summaries: bool
    store: bool
    background: bool
    stateless: bool
    stream: bool
    most_calls: int | None
    previous_turn: str | None


def _settings(fields: Fields) -> _Settings:
    model, instructions = fields.model(), _instructions(fields)
    opening = (Message(role="developer", blocks=(TextBlock(text=instructions),)),) if instructions else ()
    several = fields.flag("parallel_tool_calls", default=True)
    extensions = read_extensions(fields)
    sampling = read_sampling(fields, max_tokens=fields.whole("max_output_tokens", 1), stop=fields.stops("stop"))
    fields.metadata("metadata")
    fields.object("stream_options")
    return _Settings(
        model=model,
        opening=opening,
        choice=None if fields.has("tool_choice") else ToolChoice(parallel=several),
        extensions=extensions,
        hints=_hints(fields, extensions),
        session=fields.text("prompt_cache_key") or None,
        sampling=extensions.sampling(sampling),
        thinking=extensions.thinking(_thinking(fields)),
        format=_format(fields),
        template_args=fields.object("chat_template_kwargs") or {},
        echoed=echoed_fields(fields),
        summaries=(fields.object("reasoning") or {}).get("summary") != "none",
        store=fields.flag("store", default=True),
        background=fields.flag("background"),
        stateless=_wants_seals(fields),
        stream=fields.flag("stream"),
        most_calls=fields.whole("max_tool_calls", 1),
        previous_turn=_compared_with(fields),
    )


def _uses(most: int | None, toolbox: Toolbox) -> Mapping[str, HostedUse]:
    """How the tools are used that the gateway runs, and how often at most."""
    if most is None:
        return toolbox.hosted
    return {name: msgspec.structs.replace(use, most=most) for name, use in toolbox.hosted.items()}


def _is_generic(toolbox: Toolbox) -> bool:
    """Whether Codex offers the tools of its generic record: those for files and shells, but no patches."""
    names = {tool.name for tool in toolbox.tools}
    return bool(names & {"exec_command", "shell", "shell_command"}) and "apply_patch" not in names


def is_codex(headers: Mapping[str, str], metadata: Mapping[str, Any] | None) -> bool:
    """Whether the request speaks Codex's own dialect of headers and metadata (which no other client sends)."""
    if headers.get("originator", "").startswith("codex"):
        return True
    return bool([name for name in (*headers, *(metadata or ())) if name.startswith("x-codex-")])


# ----------------------------------------------------------------------------------------------------------- items


def _items(fields: Fields, cache: DecodedParts | None) -> ReadList[DecodedItem]:
    raw, limits = fields.raw("input"), fields.limits
    reader = PartReader(cache, lambda data: decode_item(data, limits), "responses.item", limits)
    if raw is None:
        return reader.list([], str)
    if first_byte(raw) == '"':
        message = read_item({"type": "message", "role": "user", "content": fields.text("input")})
        return ReadList([], None, 0, [message], None, 0)
    wires = elements(raw, "input", "must be a string or a list of items")
    if len(wires) > limits.messages:
        raise invalid("input", f"has {len(wires)} items; the limit is {limits.messages}")
    return reader.list(wires, lambda index: f"input[{index}]")


class _Walked(msgspec.Struct, frozen=True):
    """The items of a request so far, and what walking them gave with the tools that were `offered`."""

    items: tuple[DecodedItem, ...]
    walk: ItemWalk
    offered: Hashable


_UNWALKED = _Walked((), ItemWalk(Toolbox()), None)


def _walked(
    request: RequestBody, stored: Stored | None, earlier: Sequence[Mapping[str, Any]], offered: _ReadTools
) -> _Walked:
    """The items of a request, walked after those of earlier ones. What the first items came to is known where they,
    and the tools, are those of an earlier request."""

    def walked(before: _Walked, values: Sequence[DecodedItem], first: int) -> _Walked:
        items = _resolved(values, stored)
        if before.offered == offered.mark and not earlier:
            walk = before.walk.copy()
        else:
            walk = ItemWalk(offered.toolbox.copy())
            walk.walk([read_item(item) for item in earlier], "previous")
            walk.walk(before.items, "input")
        walk.walk(items, "input", first)
        return _Walked((*before.items, *items), walk, offered.mark)

    return request.input.folded(walked, _UNWALKED, lambda _: not earlier and not request.references)


def _resolved(items: Sequence[DecodedItem], stored: Stored | None) -> Sequence[DecodedItem]:
    """The items with every reference that is known replaced by what it names."""
    known = stored.items if stored is not None else None
    if not known:
        return items
    return [
        read_item(dict(known[item.name])) if item.place == "reference" and item.name in known else item
        for item in items
    ]


def _earlier(request: RequestBody, stored: Stored | None) -> tuple[Mapping[str, Any], ...]:
    """The items of the responses that a request continues."""
    wanted = request.previous_response_id
    if wanted is None:
        return ()
    if stored is not None and stored.history is not None:
        return stored.history
    if stored is not None and stored.unfinished is not None:
        raise TurnFailure(
            "invalid_request",
            f"Previous response with id '{wanted}' is {stored.unfinished}; only one that is completed or incomplete "
            "can be continued.",
            param="previous_response_id",
            code="previous_response_not_finished",
        )
    missing = stored.missing if stored is not None else None
    raise TurnFailure(
        "invalid_request",
        f"Previous response with id '{missing or wanted}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


class _ReadTools(msgspec.Struct, frozen=True):
    """The tools of a request, and how its response states them. Those with the same mark are the same."""

    toolbox: Toolbox
    echoed: bytes
    notes: tuple[PartNote, ...]
    mark: Hashable


def _tools(fields: Fields, cache: DecodedParts | None, offer: HostedOffer) -> _ReadTools:
    """The tools of a request. A list that was seen before is not decoded again."""
    raw, limits = fields.raw("tools"), fields.limits
    if raw is None:
        return _ReadTools(Toolbox(offer), b"[]", (), offer.mark)
    reader = PartReader(cache, lambda data: _read_tools(data, limits, offer), "responses.tools", limits, offer.mark)
    read = reader.value(raw, "tools")
    fields.notes.on_part("tools", read.notes)
    return read


def _read_tools(data: bytes, limits: Limits, offer: HostedOffer) -> _ReadTools:
    definitions = [
        any_value(item, f"[{index}]", limits.depth)
        for index, item in enumerate(elements(data, "", "must be a list of tools"))
    ]
    if len(definitions) > limits.tools:
        raise invalid("", f"has {len(definitions)} tools; the limit is {limits.tools}")
    toolbox = Toolbox(offer)
    _, notes = toolbox.add(definitions)
    return _ReadTools(toolbox, echoed_tools(definitions), notes, object())


# ---------------------------------------------------------------------------------------------------------- fields


def _wants_seals(fields: Fields) -> bool:
    """Whether the client carries its reasoning itself; what else it wants included is not available."""
    include = fields.texts("include") or []
    for what in include:
        if what not in INCLUDABLE:
            fields.notes.add("request.field_ignored", f"include: '{what[:64]}' is not available here")
    return "reasoning.encrypted_content" in include


def _compared_with(fields: Fields) -> str | None:
    """The turn named by `prompt_cache_options.comparison_response_id`."""
    named = (fields.object("prompt_cache_options") or {}).get("comparison_response_id")
    if named is not None and not isinstance(named, str):
        raise invalid("prompt_cache_options.comparison_response_id", "must be a response id or null")
    return named.removeprefix("resp_") if named else None


def _instructions(fields: Fields) -> str:
    """The base prompt. It becomes the same leading developer message that newer clients send in `input`."""
    value = fields.value("instructions")
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n\n".join(v for part in value if isinstance(part, dict) and isinstance(v := part.get("text"), str))
    raise invalid("instructions", "must be a string")


def _thinking(fields: Fields) -> Thinking:
    """What is wanted of reasoning; effort `none` turns it off."""
    reasoning = fields.object("reasoning") or {}
    effort = reasoning.get("effort")
    if effort is not None and not isinstance(effort, str):
        raise invalid("reasoning.effort", "must be a string")
    history: Literal["keep"] | None = "keep" if reasoning.get("context") == "all_turns" else None
    if effort is None:
        return Thinking(history=history)
    return Thinking(mode="off" if effort == "none" else "on", effort=effort, history=history)


def _format(fields: Fields) -> OutputFormat | None:
    """The structured output that is asked for, if any."""
    form = (fields.object("text") or {}).get("format")
    if form is None:
        return None
    if not isinstance(form, dict):
        raise invalid("text.format", "must be an object")
    kind = form.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return OutputFormat(kind="json_object")
    if kind != "json_schema":
        raise invalid("text.format.type", "must be text, json_object or json_schema")
    schema = form.get("schema")
    if not isinstance(schema, dict):
        raise invalid("text.format.schema", "must be a JSON schema object")
    name = form.get("name")
    return OutputFormat(
        kind="json_schema",
        schema=schema,
        name=name if isinstance(name, str) and name else "output",
        strict=form.get("strict") is not False,
    )


def _hints(fields: Fields, extensions: Extensions) -> AgentHints:
    """The hints, with the priority of the service tier unless they have one."""
    hints = extensions.hints
    if hints.priority is None and (urgent := PRIORITY_OF_TIER.get(str(fields.value("service_tier")))) is not None:
        return msgspec.structs.replace(hints, priority=urgent)
    return hints


def _context(asked: _Settings, headers: Mapping[str, str], metadata: Mapping[str, Any], limit: int) -> TurnContext:
    if metadata:
        said = {key.lower(): value for key, value in metadata.items() if isinstance(value, str)}
        # Codex repeats its headers in client_metadata; on a WebSocket only the latter is fresh.
        headers = {**headers, **{name: value for name, value in said.items() if name.startswith("x-codex-") and value}}
        for header, field in (("session-id", "session_id"), ("thread-id", "thread_id")):
            if said.get(field):
                headers[header] = said[field]
    return turn_context(
        headers, session=asked.session, hints=asked.hints, cache_salt=asked.extensions.cache_salt, limit=limit
    )
