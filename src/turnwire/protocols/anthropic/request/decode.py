"""A Messages request becomes a conversation.

Promise: every field is either honoured or noted; only what cannot be understood at all is refused, with its path. The
conversation depends on what is said, not on how: strings and one-block lists, with or without cache marks, are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.anthropic.echo import Echo, ThreadLink
from turnwire.protocols.anthropic.hosted import ANSWERED, HostedToolUnavailable, is_only_for_search
from turnwire.protocols.anthropic.request.context_management import (
    TokenCounter,
    apply_edits,
    estimate_tokens,
    read_edits,
)
from turnwire.protocols.anthropic.request.messages import effort_of, read_messages
from turnwire.protocols.anthropic.request.tools import demanded_hosted, read_tool_choice, read_tools
from turnwire.protocols.anthropic.vocabulary import turn_of
from turnwire.protocols.context import dispatch_opt_in, side_class, turn_context
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.fields.extensions import Extensions, read_extensions
from turnwire.protocols.fields.reader import Fields, whole
from turnwire.protocols.fields.sampling import read_sampling
from turnwire.protocols.fields.table import MESSAGES
from turnwire.protocols.hosted.offer import NOTHING, HostedOffer
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Conversation, Message, OutputFormat, Sampling, Thinking, Tool, ToolChoice, TurnContext
from turnwire.unreadable import UNREADABLE

__all__ = ["decode", "decode_count"]

_PARTS = frozenset({"diagnostics", "messages", "system", "thread", "tools"})


def decode(
    body: bytes,
    headers: Mapping[str, str],
    *,
    limits: Limits | None = None,
    count_tokens: TokenCounter = estimate_tokens,
    cache: DecodedParts | None = None,
    offer: HostedOffer = NOTHING,
) -> Inbound[Echo]:
    """Decode `POST /v1/messages`. Header names are lower case. `count_tokens` is asked only by context edits whose
    trigger is a number of tokens. `cache` holds the parts of earlier requests; `offer` are the hosted tools that the
    gateway runs."""
    return _Request(Fields(body, MESSAGES, limits or Limits()), headers, cache, offer).inbound(count_tokens)


def decode_count(
    body: bytes,
    headers: Mapping[str, str],
    *,
    limits: Limits | None = None,
    cache: DecodedParts | None = None,
    offer: HostedOffer = NOTHING,
) -> Inbound[Echo]:
    """Decode `POST /v1/messages/count_tokens`: the same conversation, never streamed."""
    fields = Fields(body, MESSAGES, limits or Limits(), refuse=False)
    inbound = _Request(fields, headers, cache, offer, runs=False).inbound(estimate_tokens)
    inbound.stream = False
    return inbound


class _Settings(msgspec.Struct, frozen=True):
    """What a request says beside its messages, its tools and the turns that it refers to. `display` is how thoughts
    shall be shown, `effort` what `output_config` says (`odd_effort`: nothing that is known), `edits` are None where the
    context is not managed. `choice` is None where it depends on the tools."""

    model: str
    extensions: Extensions
    thinking: Thinking
    display: str | None
    effort: str | None
    odd_effort: bool
    format: OutputFormat | None
    edits: tuple[dict[str, Any], ...] | None
    sampling: Sampling
    choice: ToolChoice | None
    template_args: dict[str, Any]
    session: str | None
    stream: bool


class _Request:
    """One request while it is read; `runs` is false where its turn is only counted."""

    def __init__(
        self,
        fields: Fields,
        headers: Mapping[str, str],
        cache: DecodedParts | None,
        offer: HostedOffer,
        *,
        runs: bool = True,
    ) -> None:
        self.fields = fields
        self.offer = offer
        self.runs = runs
        self.headers = headers
        self.limits = fields.limits
        self.cache = cache

    def inbound(self, count_tokens: TokenCounter) -> Inbound[Echo]:
        fields = self.fields
        thread = self._thread()
        continued = thread is not None and thread.type == "continue"
        offered = read_tools(fields, self.cache, self.offer)
        read = read_messages(fields, offered.tools, self.cache)
        if not read.messages and thread is None:
            raise invalid("messages", "at least one message is needed")
        asked = fields.settings(self.cache, "messages", _PARTS, self._settings)
        extensions, thinking, choice, edits = asked.extensions, asked.thinking, asked.choice, asked.edits
        if read.effort is None and asked.odd_effort:
            fields.notes.add("request.field_ignored", "output_config.effort: not a known effort")
        effort = read.effort or asked.effort
        if effort is not None:
            thinking = msgspec.structs.replace(thinking, effort=effort)
        if choice is None:
            choice = read_tool_choice(fields, read.tools, offered.hosted, continued=continued)
        conversation = Conversation(
            model=asked.model,
            messages=read.messages,
            tools=read.tools,
            tool_choice=choice,
            sampling=asked.sampling,
            thinking=thinking,
            format=asked.format,
            template_args=asked.template_args,
            context=self._context(read.messages, read.tools, bool(offered.hosted), asked),
        )
        self._refuse_unavailable(conversation, offered.hosted, asked.stream)
        applied: tuple[dict[str, Any], ...] = ()
        if edits and not continued:
            conversation, applied = apply_edits(conversation, edits, count_tokens)
        echo = Echo(
            thinking=thinking.mode in ("on", "adaptive"),
            omit_thinking=asked.display == "omitted",
            edits=edits or (),
            applied_edits=applied if edits is not None else None,
            thread=thread,
            history=read.messages if thread is not None else None,
            diagnostics=fields.has("diagnostics"),
        )
        previous = self._previous_turn()
        return Inbound(
            conversation=conversation,
            stream=asked.stream,
            notes=fields.notes.all(),
            dispatch=self._dispatch(extensions),
            previous_turn=previous,
            echo=echo,
            hosted=offered.uses,
            report=extensions.report,
            annotations=extensions.annotations,
        )

    def _refuse_unavailable(self, conversation: Conversation, hosted: tuple[str, ...], stream: bool) -> None:
        """A request made only to search, or one that demands a hosted call, gets the tool's error: a model would
        answer it with inventions."""
        if not self.runs or not hosted:
            return
        demanded = demanded_hosted(self.fields, conversation.tools, hosted)
        if demanded is not None and demanded in ANSWERED:
            raise HostedToolUnavailable(demanded, "", model=conversation.model, stream=stream)
        if conversation.tools:
            return
        query = is_only_for_search(conversation.messages, hosted, conversation.tool_choice)
        if query is not None:
            raise HostedToolUnavailable("web_search", query, model=conversation.model, stream=stream)

    # ------------------------------------------------------------------------------------------ the settings

    def _settings(self) -> _Settings:
        fields = self.fields
        model, extensions = fields.model(), read_extensions(fields)
        thinking, display = self._thinking_wish()
        config = fields.object("output_config") or {}
        effort = effort_of(config)
        output = self._format()
        managed = fields.object("context_management")
        edits = read_edits(managed, fields.notes) if managed is not None else None
        sampling = read_sampling(fields, max_tokens=fields.whole("max_tokens", 1), stop=fields.stops("stop_sequences"))
        return _Settings(
            model=model,
            extensions=extensions,
            thinking=extensions.thinking(thinking),
            display=display,
            effort=effort,
            odd_effort=effort is None and config.get("effort") is not None,
            format=output,
            edits=edits,
            sampling=extensions.sampling(sampling),
            choice=None if fields.has("tool_choice") else ToolChoice(),
            template_args=fields.object("chat_template_kwargs") or {},
            session=_metadata_session(fields.object("metadata")),
            stream=fields.flag("stream"),
        )

    def _thinking_wish(self) -> tuple[Thinking, str | None]:
        wire = self.fields.object("thinking")
        if wire is None:
            return Thinking(), None
        kind, display = wire.get("type"), wire.get("display")
        if not isinstance(kind, str):
            raise invalid("thinking.type", "must be enabled, adaptive or disabled")
        if display is not None and not isinstance(display, str):
            raise invalid("thinking.display", "must be a string")
        budget = whole(wire.get("budget_tokens"), "thinking.budget_tokens", 1)
        match kind:
            case "enabled":
                return Thinking(mode="on", budget=budget), display
            case "adaptive" | "between_tools":
                return Thinking(mode="adaptive", budget=budget), display
            case "disabled":
                return Thinking(mode="off"), None
        self.fields.notes.add("request.field_ignored", f"thinking.type: {kind[:64]!r} is not known")
        return Thinking(), None

    def _format(self) -> OutputFormat | None:
        config = self.fields.object("output_config") or {}
        path = "output_config.format" if config.get("format") is not None else "output_format"
        wanted = config.get("format")
        if wanted is None:
            wanted = self.fields.object("output_format")
        if wanted is None:
            return None
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        if kind == "json_schema":
            schema = wanted.get("schema")
            if not isinstance(schema, dict):
                raise invalid(f"{path}.schema", "must be a JSON schema object")
            name = wanted.get("name")
            return OutputFormat(kind="json_schema", schema=schema, name=name if isinstance(name, str) else "output")
        if kind == "json_object":
            return OutputFormat(kind="json_object")
        if kind != "text":
            self.fields.notes.add("request.field_ignored", f"{path}.type: {str(kind)[:64]!r} is not known")
        return None

    def _context(
        self,
        messages: tuple[Message, ...],
        tools: tuple[Tool, ...],
        hosted: bool,
        asked: _Settings,
    ) -> TurnContext:
        turn_class = side_class(messages, tools, asked.format)
        if turn_class is None and hosted and not tools:
            turn_class = "auxiliary"
        return turn_context(
            self.headers,
            session=asked.session,
            turn_class=turn_class,
            hints=asked.extensions.hints,
            cache_salt=asked.extensions.cache_salt,
            limit=self.limits.header_chars,
        )

    def _dispatch(self, extensions: Extensions) -> bool | None:
        stated = dispatch_opt_in(self.headers)
        return stated if stated is not None or not isinstance(extensions.dispatch, bool) else extensions.dispatch

    def _thread(self) -> ThreadLink | None:
        wire = self.fields.object("thread")
        if wire is None:
            return None
        kind, previous = wire.get("type"), wire.get("previous_message_id")
        if kind == "create":
            return ThreadLink(type="create")
        if kind != "continue":
            raise invalid("thread.type", f"{str(kind)[:64]!r} is none of create, continue")
        if not isinstance(previous, str) or not previous:
            raise invalid("thread.previous_message_id", "a message id is needed with type 'continue'")
        for name in ("system", "tools"):
            if self.fields.has(name):
                raise TurnFailure(
                    "invalid_request",
                    f"{name}: a request that continues a thread takes this from the thread; leave it out",
                    param=name,
                    code="thread_fingerprint_mismatch",
                )
        return ThreadLink(type="continue", previous_message_id=previous)

    def _previous_turn(self) -> str | None:
        """The turn named by `diagnostics.previous_message_id`; null opts in with nothing to compare yet."""
        named = (self.fields.object("diagnostics") or {}).get("previous_message_id")
        if named is not None and not isinstance(named, str):
            raise invalid("diagnostics.previous_message_id", "must be a message id or null")
        return turn_of(named) if named else None


def _metadata_session(metadata: dict[str, Any] | None) -> str | None:
    """The session id inside `metadata.user_id`, which harnesses fill with a JSON string; older ones with words that end
    in `_session_<id>`."""
    user = metadata.get("user_id") if metadata else None
    if not isinstance(user, str):
        return None
    if user.startswith("{"):
        try:
            value = msgspec.json.decode(user)
        except UNREADABLE:
            return None
        session = value.get("session_id")
        return session if isinstance(session, str) and session else None
    _, found, session = user.rpartition("_session_")
    return session if found and session else None
