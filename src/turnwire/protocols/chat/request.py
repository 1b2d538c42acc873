"""A Chat Completions request becomes a conversation.

Promise: every field is either honoured or noted; only what cannot be understood at all is refused, with its path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from turnwire.protocols.chat.echo import Echo
from turnwire.protocols.chat.fields import SAMPLING_FIELDS, Fields
from turnwire.protocols.chat.messages import read_messages
from turnwire.protocols.chat.tools import read_tool_choice, read_tools
from turnwire.protocols.context import agent_hints, dispatch_opt_in, side_class, turn_context
from turnwire.protocols.json_body import invalid
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound
from turnwire.turns import Conversation, Message, Note, OutputFormat, Sampling, Thinking

__all__ = ["decode"]

_HONOURED = frozenset(
    {
        *SAMPLING_FIELDS,
        "model",
        "messages",
        "tools",
        "functions",
        "tool_choice",
        "function_call",
        "parallel_tool_calls",
        "response_format",
        "n",
        "logprobs",
        "top_logprobs",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "reasoning_effort",
        "reasoning",
        "chat_template_kwargs",
        "enable_thinking",
        "thinking",
        "nvext",
        "turnwire",
        "user",
        "metadata",
        "store",
        "prompt_cache_key",
        "safety_identifier",
    }
)
_MOST_LOGPROBS = 20


def decode(body: bytes, headers: Mapping[str, str], *, limits: Limits | None = None) -> Inbound[Echo]:
    """Decode `POST /v1/chat/completions`. Header names are lower case."""
    return _Request(Fields(body, limits or Limits()), headers).inbound()


class _Request:
    """One request while it is read."""

    def __init__(self, fields: Fields, headers: Mapping[str, str]) -> None:
        self.fields = fields
        self.headers = headers
        self.limits = fields.limits
        self.notes = fields.notes

    def inbound(self) -> Inbound[Echo]:
        model = self.fields.model()
        wires = self.fields.get("messages")
        if not isinstance(wires, list) or not wires:
            raise invalid("messages", "must be a list with at least one message")
        if len(wires) > self.limits.messages:
            raise invalid("messages", f"{len(wires)} messages; the limit is {self.limits.messages}")
        messages = read_messages(wires, self.notes)
        tools = read_tools(self.fields.get("tools"), self.fields.get("functions"), self.limits, self.notes)
        choice = self.fields.get("tool_choice", self.fields.get("function_call"))
        output = self._format()
        hints = agent_hints(self.fields.get("nvext"))
        self.notes += [Note("request.field_ignored", name) for name in hints.unknown if name != "nvext.dispatch"]
        self.fields.note_unknown(_HONOURED)
        context = turn_context(
            self.headers,
            session=_text(self.fields.get("prompt_cache_key")),
            turn_class=side_class(messages, tools, output),
            priority=hints.priority,
            limit=self.limits.header_chars,
        )
        wanted, form = self._dispatch()
        return Inbound(
            conversation=Conversation(
                model=model,
                messages=messages,
                tools=tools,
                tool_choice=read_tool_choice(choice, self.fields.get("parallel_tool_calls"), tools),
                sampling=self._sampling(),
                thinking=self._thinking(messages),
                format=output,
                template_args=self._template_args(),
                context=context,
            ),
            stream=self.fields.boolean("stream"),
            notes=tuple(self.notes),
            dispatch=wanted,
            echo=Echo(
                choices=self.fields.count("n", 1, self.limits.choices) or 1,
                usage=self.fields.wants_usage(),
                dispatch=form,
                logprobs=self.fields.boolean("logprobs"),
            ),
        )

    # ------------------------------------------------------------------------------------------------------ parts

    def _sampling(self) -> Sampling:
        logprobs = None
        if self.fields.boolean("logprobs"):
            logprobs = self.fields.count("top_logprobs", 0, _MOST_LOGPROBS) or 0
        limit = self.fields.count("max_completion_tokens", 1) or self.fields.count("max_tokens", 1)
        return self.fields.sampling(max_tokens=limit, logprobs=logprobs)

    def _thinking(self, messages: tuple[Message, ...]) -> Thinking:
        effort = self.fields.get("reasoning_effort")
        reasoning = self.fields.get("reasoning")
        if effort is None and isinstance(reasoning, dict):
            effort = reasoning.get("effort")
        if effort is not None and not isinstance(effort, str):
            raise invalid("reasoning_effort", "must be a string")
        mode: Literal["on", "off"] | None = None
        enabled = self.fields.get("enable_thinking")
        wire = self.fields.get("thinking")
        if isinstance(wire, dict):
            enabled = wire.get("type") != "disabled"
        if isinstance(enabled, bool):
            mode = "on" if enabled else "off"
        elif effort == "none":
            mode = "off"
        else:
            mode = _soft_switch(messages)
        return Thinking(mode=mode, effort=effort)

    def _format(self) -> OutputFormat | None:
        wire = self.fields.get("response_format")
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

    def _template_args(self) -> dict[str, Any]:
        args = self.fields.get("chat_template_kwargs", {})
        if not isinstance(args, dict):
            raise invalid("chat_template_kwargs", "must be an object")
        return args

    def _dispatch(self) -> tuple[bool | None, Literal["event", "delta"]]:
        """The opt-in and its form: `x-turnwire-dispatch: 1`, or `delta` for the form that no client trips over; in the
        body `{"turnwire": {"dispatch": …}}` or Dynamo's `nvext`."""
        header = self.headers.get("x-turnwire-dispatch", "").strip().lower()
        word: Any = header or None
        for name in ("turnwire", "nvext"):
            wire = self.fields.get(name)
            if word is None and isinstance(wire, dict):
                word = wire.get("dispatch")
        if word == "delta":
            return True, "delta"
        if isinstance(word, bool):
            return word, "event"
        return (dispatch_opt_in({"x-turnwire-dispatch": word}) if isinstance(word, str) else None), "event"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# The words as they stand between blanks; long texts are searched, not split.
_SWITCH = re.compile(r"(?<!\S)/(?:no_)?think(?!\S)")


def _soft_switch(messages: tuple[Message, ...]) -> Literal["on", "off"] | None:
    """`/no_think` and `/think` in the last user text or the system prompt, as Qwen and Nemotron models read them."""
    user = next((m for m in reversed(messages) if m.role == "user" and m.text), None)
    system = next((m for m in messages if m.role in ("system", "developer")), None)
    for message in (user, system):
        text = message.text if message is not None else ""
        if "think" not in text:
            continue
        words = {found[0] for found in _SWITCH.finditer(text)}
        if words:
            return "off" if "/no_think" in words else "on"
    return None
