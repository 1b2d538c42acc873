"""A Chat Completions request becomes a conversation.

Promise: every field is either honoured or noted; only what cannot be understood at all is refused, with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from turnwire.protocols.chat.echo import Echo
from turnwire.protocols.chat.messages import read_messages
from turnwire.protocols.chat.tools import read_tool_choice, read_tools
from turnwire.protocols.context import agent_hints, dispatch_opt_in, side_class, turn_context
from turnwire.protocols.json_body import any_value, invalid, nesting, open_body
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound
from turnwire.turns import Conversation, Message, Note, OutputFormat, Sampling, Thinking

__all__ = ["decode"]

_SAMPLING: Mapping[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "repetition_penalty": float,
    "seed": int,
}
_HONOURED = frozenset(
    {
        *_SAMPLING,
        "model",
        "messages",
        "tools",
        "functions",
        "tool_choice",
        "function_call",
        "parallel_tool_calls",
        "response_format",
        "n",
        "stop",
        "logprobs",
        "top_logprobs",
        "logit_bias",
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
_MOST_CHOICES = 16
_MOST_LOGPROBS = 20


def decode(body: bytes, headers: Mapping[str, str], *, limits: Limits | None = None) -> Inbound:
    """Decode `POST /v1/chat/completions`. Header names are lower case."""
    bounds = limits or Limits()
    opened = open_body(body, bounds)
    for name, raw in opened.fields.items():
        if nesting(raw, bounds.depth):
            raise invalid(name, f"nested deeper than {bounds.depth}")
    fields = {name: value for name, raw in opened.fields.items() if (value := any_value(raw, name)) is not None}
    return _Request(fields, headers, bounds, list(opened.notes)).inbound()


class _Request:
    """One request while it is read."""

    def __init__(self, fields: dict[str, Any], headers: Mapping[str, str], limits: Limits, notes: list[Note]) -> None:
        self.fields = fields
        self.headers = headers
        self.limits = limits
        self.notes = notes

    def inbound(self) -> Inbound:
        model = self.fields.get("model")
        if not isinstance(model, str) or not model:
            raise invalid("model", "must name a model")
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
        self.notes += [Note("request.field_ignored", name) for name in self.fields if name not in _HONOURED]
        context = turn_context(
            self.headers,
            session=_text(self.fields.get("prompt_cache_key")),
            turn_class=side_class(messages, tools, output),
            priority=hints.priority,
            limit=self.limits.header_chars,
        )
        wanted, form = self._dispatch()
        options = self.fields.get("stream_options")
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
            stream=self._bool("stream"),
            notes=tuple(self.notes),
            dispatch=wanted,
            echo=Echo(
                choices=self._count("n", 1, _MOST_CHOICES) or 1,
                usage=isinstance(options, dict) and options.get("include_usage") is True,
                dispatch=form,
                logprobs=self._bool("logprobs"),
            ),
        )

    # ------------------------------------------------------------------------------------------------------ parts

    def _sampling(self) -> Sampling:
        values: dict[str, Any] = {}
        for name, kind in _SAMPLING.items():
            value = self.fields.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise invalid(name, "must be a number")
            values[name] = kind(value)
        stop = self.fields.get("stop", [])
        stops = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list) else None
        if stops is None or not all(isinstance(text, str) for text in stops):
            raise invalid("stop", "must be a string or a list of strings")
        if len(stops) > self.limits.stop_sequences:
            raise invalid("stop", f"{len(stops)} stop strings; the limit is {self.limits.stop_sequences}")
        bias = self.fields.get("logit_bias", {})
        if not isinstance(bias, dict) or not all(isinstance(v, (int, float)) for v in bias.values()):
            raise invalid("logit_bias", "must map token ids to numbers")
        logprobs = None
        if self._bool("logprobs"):
            logprobs = self._count("top_logprobs", 0, _MOST_LOGPROBS) or 0
        limit = self._count("max_completion_tokens", 1, None) or self._count("max_tokens", 1, None)
        return Sampling(
            max_tokens=limit,
            stop=tuple(text for text in stops if text),
            logit_bias={str(key): float(value) for key, value in bias.items()},
            logprobs=logprobs,
            **values,
        )

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

    # ----------------------------------------------------------------------------------------------------- values

    def _bool(self, name: str) -> bool:
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            raise invalid(name, "must be true or false")
        return value

    def _count(self, name: str, least: int, most: int | None) -> int | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most and value > most):
            raise invalid(name, f"must be a whole number from {least}" + (f" to {most}" if most else ""))
        return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _soft_switch(messages: tuple[Message, ...]) -> Literal["on", "off"] | None:
    """`/no_think` and `/think` in the last user text or the system prompt, as Qwen and Nemotron models read them."""
    user = next((m for m in reversed(messages) if m.role == "user" and m.text), None)
    system = next((m for m in messages if m.role in ("system", "developer")), None)
    for message in (user, system):
        words = message.text.split() if message is not None else []
        if "/no_think" in words:
            return "off"
        if "/think" in words:
            return "on"
    return None
