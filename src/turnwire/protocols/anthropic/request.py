"""A Messages request becomes a conversation.

Promise: every field is either honoured or noted; only what cannot be understood at all is refused, with its path. The
conversation depends on what is said, not on how: strings and one-block lists, with or without cache marks, are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.anthropic.blocks import BlockReader
from turnwire.protocols.anthropic.context_management import TokenCounter, apply_edits, estimate_tokens, read_edits
from turnwire.protocols.anthropic.echo import Echo, ThreadLink
from turnwire.protocols.anthropic.messages import effort_of, read_messages
from turnwire.protocols.anthropic.tools import read_tool_choice, read_tools
from turnwire.protocols.anthropic.vocabulary import turn_of
from turnwire.protocols.context import agent_hints, dispatch_opt_in, side_class, turn_context
from turnwire.protocols.json_body import JsonBody, any_value, first_byte, invalid, nesting, open_body, part
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import (
    Conversation,
    Message,
    Note,
    OutputFormat,
    Sampling,
    Thinking,
    Tool,
    ToolChoice,
    TurnContext,
)

__all__ = ["decode", "decode_count"]

_HONOURED = frozenset(
    {
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "max_tokens",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "thinking",
        "context_management",
        "output_config",
        "output_format",
        "metadata",
        "thread",
        "betas",
        "diagnostics",
        "nvext",
        "chat_template_kwargs",
        "cache_control",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
    }
)


class _WireThinking(msgspec.Struct):
    type: str
    budget_tokens: int | None = None
    display: str | None = None


class _WireThread(msgspec.Struct):
    type: str
    previous_message_id: str | None = None


_THINKING = msgspec.json.Decoder(_WireThinking)
_THREAD = msgspec.json.Decoder(_WireThread)
_STRING = msgspec.json.Decoder(str)
_STRINGS = msgspec.json.Decoder(list[str])
_BOOL = msgspec.json.Decoder(bool | None)
_INT = msgspec.json.Decoder(int | None)
_FLOAT = msgspec.json.Decoder(float | None)


def decode(
    body: bytes,
    headers: Mapping[str, str],
    *,
    limits: Limits | None = None,
    count_tokens: TokenCounter = estimate_tokens,
) -> Inbound[Echo]:
    """Decode `POST /v1/messages`. Header names are lower case. `count_tokens` is asked only by context edits whose
    trigger is a number of tokens."""
    bounds = limits or Limits()
    request = _Request(open_body(body, bounds), headers, bounds)
    if "compaction" in request.fields:
        raise invalid("compaction", "compaction on request is not offered; ask for a summary in a message instead")
    return request.inbound(count_tokens)


def decode_count(body: bytes, headers: Mapping[str, str], *, limits: Limits | None = None) -> Inbound[Echo]:
    """Decode `POST /v1/messages/count_tokens`: the same conversation, never streamed."""
    bounds = limits or Limits()
    inbound = _Request(open_body(body, bounds), headers, bounds).inbound(estimate_tokens)
    inbound.stream = False
    return inbound


class _Request:
    """One request while it is read."""

    def __init__(self, body: JsonBody, headers: Mapping[str, str], limits: Limits) -> None:
        self.fields = {name: raw for name, raw in body.fields.items() if first_byte(raw) != "n"}
        self.headers = headers
        self.limits = limits
        self.notes: list[Note] = list(body.notes)

    def inbound(self, count_tokens: TokenCounter) -> Inbound[Echo]:
        # A request that names no model gets the gateway's default.
        model = self._scalar("model", _STRING) or ""
        thread = self._thread()
        offered, hosted = self._tools()
        reader = BlockReader(self.limits, {tool.name: tool for tool in offered})
        read = read_messages(self._required("messages"), self.fields.get("system"), reader, self.limits, self.notes)
        if not read.messages and thread is None:
            raise invalid("messages", "at least one message is needed")
        messages = read.messages
        self.notes += reader.notes
        tools = tuple(reader.tools.values())
        thinking, display = self._thinking()
        config = self._object("output_config")
        effort = read.effort or effort_of(config, "output_config", self.notes)
        if effort is not None:
            thinking = msgspec.structs.replace(thinking, effort=effort)
        output = self._format(config)
        managed = self._object("context_management")
        edits = read_edits(managed, self.notes) if managed is not None else ()
        conversation = Conversation(
            model=model,
            messages=messages,
            tools=tools,
            tool_choice=self._tool_choice(tools, hosted, thread),
            sampling=self._sampling(),
            thinking=thinking,
            format=output,
            template_args=self._object("chat_template_kwargs") or {},
            context=self._context(messages, tools, bool(hosted), output),
        )
        applied: tuple[dict[str, Any], ...] = ()
        if edits and (thread is None or thread.type == "create"):
            conversation, applied = apply_edits(conversation, edits, count_tokens)
        self._ignored()
        return Inbound(
            conversation=conversation,
            stream=bool(self._scalar("stream", _BOOL)),
            notes=tuple(self.notes),
            dispatch=dispatch_opt_in(self.headers),
            previous_turn=self._previous_turn(),
            echo=Echo(
                thinking=thinking.mode in ("on", "adaptive"),
                omit_thinking=display == "omitted",
                edits=edits,
                applied_edits=applied if managed is not None else None,
                thread=thread,
                history=messages if thread is not None else None,
                betas=self._betas(),
                diagnostics="diagnostics" in self.fields,
            ),
        )

    # ------------------------------------------------------------------------------------------ the fields

    def _tools(self) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
        if "tools" not in self.fields:
            return (), ()
        return read_tools(self.fields["tools"], self.limits, self.notes)

    def _tool_choice(self, tools: tuple[Tool, ...], hosted: tuple[str, ...], thread: ThreadLink | None) -> ToolChoice:
        if "tool_choice" not in self.fields:
            return ToolChoice()
        continued = thread is not None and thread.type == "continue"
        return read_tool_choice(self.fields["tool_choice"], tools, hosted, self.notes, continued=continued)

    def _thinking(self) -> tuple[Thinking, str | None]:
        if "thinking" not in self.fields:
            return Thinking(), None
        wire = part(_THINKING, self.fields["thinking"], "thinking")
        match wire.type:
            case "enabled":
                return Thinking(mode="on", budget=wire.budget_tokens), wire.display
            case "adaptive" | "between_tools":
                return Thinking(mode="adaptive", budget=wire.budget_tokens), wire.display
            case "disabled":
                return Thinking(mode="off"), None
        self.notes.append(Note("request.field_ignored", f"thinking.type: {wire.type!r} is not known"))
        return Thinking(), None

    def _format(self, config: dict[str, Any] | None) -> OutputFormat | None:
        path = "output_config.format" if config and config.get("format") is not None else "output_format"
        wanted = config.get("format") if config else None
        if wanted is None:
            wanted = self._object("output_format")
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
            self.notes.append(Note("request.field_ignored", f"{path}.type: {kind!r} is not known"))
        return None

    def _sampling(self) -> Sampling:
        limit = self._scalar("max_tokens", _INT)
        if limit is not None and limit < 1:
            raise invalid("max_tokens", "must be at least 1")
        stop: list[str] = []
        if "stop_sequences" in self.fields:
            stop = part(_STRINGS, self.fields["stop_sequences"], "stop_sequences")
            if len(stop) > self.limits.stop_sequences:
                raise invalid("stop_sequences", f"more than {self.limits.stop_sequences} stop sequences")
        return Sampling(
            max_tokens=limit,
            temperature=self._scalar("temperature", _FLOAT),
            top_p=self._scalar("top_p", _FLOAT),
            top_k=self._scalar("top_k", _INT),
            min_p=self._scalar("min_p", _FLOAT),
            presence_penalty=self._scalar("presence_penalty", _FLOAT),
            frequency_penalty=self._scalar("frequency_penalty", _FLOAT),
            repetition_penalty=self._scalar("repetition_penalty", _FLOAT),
            seed=self._scalar("seed", _INT),
            stop=tuple(text for text in stop if text),
        )

    def _context(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], hosted: bool, output: OutputFormat | None
    ) -> TurnContext:
        turn_class = side_class(messages, tools, output)
        if turn_class is None and hosted and not tools:
            turn_class = "auxiliary"
        hints = agent_hints(self._object("nvext"))
        self.notes += (Note("request.field_ignored", f"{name}: not used") for name in hints.unknown)
        return turn_context(
            self.headers,
            session=_metadata_session(self._object("metadata")),
            turn_class=turn_class,
            priority=hints.priority,
            limit=self.limits.header_chars,
        )

    def _thread(self) -> ThreadLink | None:
        if "thread" not in self.fields:
            return None
        wire = part(_THREAD, self.fields["thread"], "thread")
        if wire.type == "create":
            return ThreadLink(type="create")
        if wire.type != "continue":
            raise invalid("thread.type", f"{wire.type!r} is none of create, continue")
        if not wire.previous_message_id:
            raise invalid("thread.previous_message_id", "needed with type 'continue'")
        for name in ("system", "tools"):
            if name in self.fields:
                raise TurnFailure(
                    "invalid_request",
                    f"{name}: a request that continues a thread takes this from the thread; leave it out",
                    param=name,
                    code="thread_fingerprint_mismatch",
                )
        return ThreadLink(type="continue", previous_message_id=wire.previous_message_id)

    def _previous_turn(self) -> str | None:
        """The turn behind `diagnostics.previous_message_id`; null opts in with nothing to compare yet."""
        named = (self._object("diagnostics") or {}).get("previous_message_id")
        if named is not None and not isinstance(named, str):
            raise invalid("diagnostics.previous_message_id", "must be a message id or null")
        return turn_of(named) if named else None

    def _betas(self) -> tuple[str, ...]:
        names = self.headers.get("anthropic-beta", "").split(",")
        listed = part(_STRINGS, self.fields["betas"], "betas") if "betas" in self.fields else []
        return tuple(name.strip() for name in (*names, *listed) if name.strip())

    def _ignored(self) -> None:
        unknown = [name for name in self.fields if name not in _HONOURED]
        self.notes += (Note("request.field_ignored", f"{name[:64]}: not used") for name in unknown[:64])

    # ---------------------------------------------------------------------------------------------- access

    def _required(self, name: str) -> msgspec.Raw:
        raw = self.fields.get(name)
        if raw is None:
            raise invalid(name, "this field is required")
        return raw

    def _scalar(self, name: str, decoder: msgspec.json.Decoder[Any]) -> Any:
        raw = self.fields.get(name)
        return None if raw is None else part(decoder, raw, name)

    def _object(self, name: str) -> dict[str, Any] | None:
        raw = self.fields.get(name)
        if raw is None:
            return None
        if nesting(raw, self.limits.depth):
            raise invalid(name, f"nested deeper than {self.limits.depth}")
        value = any_value(raw, name)
        if not isinstance(value, dict):
            raise invalid(name, "must be an object")
        return value


def _metadata_session(metadata: dict[str, Any] | None) -> str | None:
    """The session id inside `metadata.user_id`, which harnesses fill with a JSON string; older ones with words that end
    in `_session_<id>`."""
    user = metadata.get("user_id") if metadata else None
    if not isinstance(user, str):
        return None
    if user.startswith("{"):
        try:
            value = msgspec.json.decode(user)
        except (msgspec.DecodeError, RecursionError):
            return None
        session = value.get("session_id")
        return session if isinstance(session, str) and session else None
    _, found, session = user.rpartition("_session_")
    return session if found and session else None
