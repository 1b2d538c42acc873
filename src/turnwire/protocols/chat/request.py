"""A Chat Completions request becomes a conversation.

Promise: every field is either honoured or noted; only what cannot be understood at all is refused, with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from turnwire.protocols.chat.echo import Echo
from turnwire.protocols.chat.messages import read_messages
from turnwire.protocols.chat.switches import Switch
from turnwire.protocols.chat.tools import allowed_tools, read_tool_choice, read_tools
from turnwire.protocols.context import dispatch_opt_in, side_class, turn_context
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.fields.extensions import Extensions, read_extensions
from turnwire.protocols.fields.reader import Fields, whole
from turnwire.protocols.fields.sampling import read_logit_bias, read_sampling
from turnwire.protocols.fields.table import CHAT
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound
from turnwire.turns import Conversation, OutputFormat, Sampling, Thinking, ToolChoice

__all__ = ["decode", "wants_usage"]

_MOST_LOGPROBS = 20
_PARTS = frozenset({"messages", "tools"})


def decode(
    body: bytes, headers: Mapping[str, str], *, limits: Limits | None = None, cache: DecodedParts | None = None
) -> Inbound[Echo]:
    """Decode `POST /v1/chat/completions`. Header names are lower case. `cache` holds the parts of earlier requests."""
    return _Request(Fields(body, CHAT, limits or Limits()), headers, cache).inbound()


class _Settings(msgspec.Struct, frozen=True):
    """What a request says beside its messages and tools. `choice` is None where it depends on the tools, and a mode of
    `thinking` that is None on what the messages say; `dispatch` is the word for its form, if the body has one."""

    model: str
    format: OutputFormat | None
    extensions: Extensions
    stream: bool
    session: str | None
    dispatch: Any
    sampling: Sampling
    choice: ToolChoice | None
    thinking: Thinking
    template_args: dict[str, Any]
    choices: int
    usage: bool


class _Request:
    """One request while it is read."""

    def __init__(self, fields: Fields, headers: Mapping[str, str], cache: DecodedParts | None) -> None:
        self.fields = fields
        self.headers = headers
        self.limits = fields.limits
        self.cache = cache

    def inbound(self) -> Inbound[Echo]:
        fields = self.fields
        messages, switch = read_messages(fields, self.cache)
        tools = read_tools(fields, self.cache)
        asked = fields.settings(self.cache, "chat", _PARTS, self._settings)
        choice, extensions = asked.choice, asked.extensions
        if choice is None:
            tools = allowed_tools(fields, tools)
            choice = read_tool_choice(fields, tools)
        context = turn_context(
            self.headers,
            session=asked.session,
            turn_class=side_class(messages, tools, asked.format),
            hints=extensions.hints,
            cache_salt=extensions.cache_salt,
            limit=self.limits.header_chars,
        )
        wanted, form = self._dispatch(asked.dispatch)
        conversation = Conversation(
            model=asked.model,
            messages=messages,
            tools=tools,
            tool_choice=choice,
            sampling=asked.sampling,
            thinking=extensions.thinking(_switched(asked.thinking, switch)),
            format=asked.format,
            template_args=asked.template_args,
            context=context,
        )
        echo = Echo(choices=asked.choices, usage=asked.usage, dispatch=form, logprobs=asked.sampling.logprobs)
        return Inbound(
            conversation=conversation,
            stream=asked.stream,
            notes=fields.notes.all(),
            dispatch=wanted,
            echo=echo,
            report=extensions.report,
            annotations=extensions.annotations,
        )

    # --------------------------------------------------------------------------------------------------- settings

    def _settings(self) -> _Settings:
        fields = self.fields
        model, output, extensions = fields.model(), self._format(), read_extensions(fields)
        stream = fields.flag("stream")
        dispatch = (fields.object("turnwire") or {}).get("dispatch")
        fields.metadata("metadata")
        free = not fields.sent(("tool_choice", "function_call"))
        return _Settings(
            model=model,
            format=output,
            extensions=extensions,
            stream=stream,
            session=fields.text("prompt_cache_key") or None,
            dispatch=extensions.dispatch if dispatch is None else dispatch,
            sampling=extensions.sampling(self._sampling()),
            choice=read_tool_choice(fields, ()) if free else None,
            thinking=self._thinking(),
            template_args=fields.object("chat_template_kwargs") or {},
            choices=fields.whole("n", 1, self.limits.choices) or 1,
            usage=wants_usage(fields, stream),
        )

    def _sampling(self) -> Sampling:
        fields = self.fields
        rivals = fields.whole("top_logprobs", 0, _MOST_LOGPROBS)
        logprobs = fields.flag("logprobs")
        if rivals and not logprobs:
            raise invalid("top_logprobs", "needs `logprobs` to be true")
        limit = fields.whole("max_completion_tokens", 1) or fields.whole("max_tokens", 1)
        return read_sampling(
            fields,
            max_tokens=limit,
            stop=fields.stops("stop"),
            logprobs=rivals or 0 if logprobs else None,
            logit_bias=read_logit_bias(fields),
        )

    def _thinking(self) -> Thinking:
        fields = self.fields
        reasoning = fields.object("reasoning") or {}
        effort = fields.text("reasoning_effort")
        if effort is None:
            effort = reasoning.get("effort")
            if effort is not None and not isinstance(effort, str):
                raise invalid("reasoning.effort", "must be a string")
        wire = fields.value("thinking")
        budget = whole(reasoning.get("max_tokens"), "reasoning.max_tokens", 1)
        enabled = fields.value("enable_thinking")
        if isinstance(reasoning.get("enabled"), bool):
            enabled = reasoning["enabled"]
        if isinstance(wire, dict):
            enabled = wire.get("type") != "disabled"
            budget = whole(wire.get("budget_tokens"), "thinking.budget_tokens", 1) or budget
        mode: Literal["on", "off"] | None = "off" if effort == "none" else None
        if isinstance(enabled, bool):
            mode = "on" if enabled else "off"
        return Thinking(mode=mode, effort=effort, budget=budget if mode != "off" else None)

    def _format(self) -> OutputFormat | None:
        wire = self.fields.value("response_format")
        if wire is None:
            return None
        if not isinstance(wire, dict) or wire.get("type") not in ("text", "json_object", "json_schema"):
            raise invalid("response_format.type", "must be text, json_object or json_schema")
        if wire["type"] == "text":
            return None
        if wire["type"] == "json_object":
            return OutputFormat(kind="json_object")
        inner = wire.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        if not isinstance(schema, dict):
            raise invalid("response_format.json_schema.schema", "must be a JSON schema object")
        assert isinstance(inner, dict)
        name = inner.get("name")
        return OutputFormat(
            kind="json_schema",
            schema=schema,
            name=name if isinstance(name, str) else "output",
            strict=inner.get("strict") is not False,
        )

    def _dispatch(self, stated: Any) -> tuple[bool | None, Literal["event", "delta"]]:
        """The opt-in and its form: `x-turnwire-dispatch: 1`, or `delta` for the form that no client trips over; in the
        body (`stated`) `{"turnwire": {"dispatch": …}}` or Dynamo's `nvext`."""
        word = self.headers.get("x-turnwire-dispatch", "").strip().lower() or stated
        if word == "delta":
            return True, "delta"
        if isinstance(word, bool):
            return word, "event"
        return (dispatch_opt_in({"x-turnwire-dispatch": word}) if isinstance(word, str) else None), "event"


def wants_usage(fields: Fields, stream: bool) -> bool:
    """Whether a stream is to end with a usage chunk. The options of a stream make no sense without one."""
    options = fields.object("stream_options")
    if options is None:
        return False
    if not stream:
        raise invalid("stream_options", "needs `stream` to be true")
    return options.get("include_usage") is True


def _switched(thinking: Thinking, switch: Switch) -> Thinking:
    """The thinking that a request asks for, by its messages where its fields say nothing."""
    if not switch or thinking.mode is not None:
        return thinking
    return msgspec.structs.replace(thinking, mode=switch, budget=thinking.budget if switch != "off" else None)
