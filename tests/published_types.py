"""Every stream and document that a test makes, held against the types that the vendors publish.

The encoders are wrapped for the whole test run: whatever one of them sends is validated with the models of the
`anthropic` and `openai` packages and of the open specification of Responses, strictly and not as leniently as the
packages themselves read it. A test that made something else fails when it ends.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, get_args

from pydantic import ValidationError

from turnwire.protocols import anthropic, chat, completions, responses
from turnwire.protocols.fields.table import RESPONSES

DELTAS = frozenset(
    {
        "content_block_delta",
        "response.output_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)
"""Events of which a stream has hundreds that differ in nothing but their text: one of each shape is validated."""

OPT_IN = frozenset({"tool_call_dispatch", "reasoning_dispatch"})
"""Events that no vendor has; a client gets them only when it asks for them."""

SPECIFIED = frozenset({"message", "reasoning", "function_call"})
"""Items that the open specification has; custom tools, tool search and hosted tools are the vendor's alone."""


CODES = frozenset({"context_length_exceeded"})
"""Codes of failed responses that the vendor sends and Codex reads, although the published type lists others."""


@cache
def adapters(api: str, kind: str) -> tuple[Any, ...]:
    """The published types of an API's documents or events; loaded when the first one is sent."""
    from pydantic import TypeAdapter

    def types() -> Iterator[Any]:
        if api == "messages":
            from anthropic.types import Message, RawMessageStreamEvent

            yield Message if kind == "document" else RawMessageStreamEvent
        elif api == "messages in beta":
            from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent

            yield BetaMessage if kind == "document" else BetaRawMessageStreamEvent
        elif api == "chat":
            from openai.types.chat import ChatCompletion, ChatCompletionChunk

            yield ChatCompletion if kind == "document" else ChatCompletionChunk
        elif api == "completions":
            from openai.types import Completion

            yield Completion
        else:
            from openai.types.responses import Response

            yield Response

    return tuple(TypeAdapter(each) for each in types())


@cache
def sdk_events() -> dict[str, Any]:
    """The events of the vendor's package by their `type`."""
    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

    models = get_args(get_args(ResponseStreamEvent)[0])
    return {get_args(model.model_fields["type"].annotation)[0]: TypeAdapter(model) for model in models}


@cache
def specified() -> dict[str, Any]:
    """The events of the open specification by their `type`."""
    import openresponses_types.types as spec
    from pydantic import TypeAdapter

    named = {
        member.value: model
        for name, model in vars(spec).items()
        if name.startswith("Response") and name.endswith("StreamingEvent")
        for member in model.model_fields["type"].annotation
    }
    return {kind: TypeAdapter(model) for kind, model in named.items()}


class PublishedTypes:
    """What was sent, counted, and what of it no published type allows."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._seen: set[tuple[object, ...]] = set()
        self._pending: list[tuple[str, str, bytes]] = []

    def sent(self, api: str, kind: str, data: bytes) -> None:
        """Take what an encoder sent; it is looked at when the test has ended, so that no test is slowed down."""
        self._pending.append((api, kind, data))

    def settle(self) -> list[str]:
        """Look at what was sent; what no published type allows."""
        pending, self._pending = self._pending, []
        for api, kind, data in pending:
            (self._frames if kind == "frames" else self._document)(api, data)
        problems, self.problems = self.problems, []
        return problems

    def _frames(self, api: str, data: bytes) -> None:
        name = b""
        for line in data.split(b"\n"):
            text = line[6:] if line.startswith(b"data: ") else line
            if line.startswith(b"event: "):
                name = line[7:]
            elif text[:1] == b"{" and name.decode() not in OPT_IN:
                self._event(api, json.loads(text))
            elif not line:
                name = b""

    def _document(self, api: str, data: bytes) -> None:
        value = json.loads(data)
        if "error" not in value or api == "responses":
            self.counts[f"{api} documents"] += 1
            self._hold(api, "document", value)

    def _event(self, api: str, event: dict[str, Any]) -> None:
        kind = event.get("type", event.get("object", ""))
        if kind in ("ping", "error", *OPT_IN) or ("error" in event and api in ("chat", "completions")):
            return
        self.counts[f"{api} events"] += 1
        if kind in ("message_start", "response.created"):
            self.counts[f"{api} streams"] += 1
        if kind in DELTAS or kind == "chat.completion.chunk":
            shape = (api, kind, _shape(event))
            if shape in self._seen:
                return
            self._seen.add(shape)
        self._hold(api, "event", event)

    def _hold(self, api: str, kind: str, value: dict[str, Any]) -> None:
        # Tools of MCP servers are in beta at this vendor's.
        beta = api == "messages" and "mcp_tool_" in json.dumps(value)
        told = value.get("type") or value.get("object")
        if api == "responses":
            value = _own_words(value)
        elif api == "completions" and kind == "event":
            # The vendor publishes one type for whole answers and for chunks, which end only once.
            value["choices"] = [{**choice, "finish_reason": "stop"} for choice in value["choices"]]
        if api == "responses" and kind == "event":
            types = [sdk_events()[told]] if told in sdk_events() else []
            if not types:
                self.problems.append(f"{api}: no such event: {told}")
            elif told in specified() and _is_specified(value):
                types.append(specified()[told])
        else:
            types = list(adapters("messages in beta" if beta else api, kind))
        for adapter in types:
            try:
                adapter.validate_python(value)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"]))
                self.problems.append(f"{api} {told}: {where}: {first['msg']}: {json.dumps(value)[:600]}")


@cache
def repeated() -> dict[str, Any]:
    """What a response repeats of a request that says nothing."""
    inbound = responses.decode(b'{"input": "x"}', {}, stored=responses.Stored(history=()))
    fields: dict[str, Any] = json.loads(b"{" + b"".join(inbound.echo.fields)[1:] + b"}")
    return fields


def _own_words(value: dict[str, Any]) -> dict[str, Any]:
    """A response without what it repeats of its request: those are the client's words, whatever they are, and tests of
    their own look at them."""
    if "response" in value:
        return {**value, "response": _own_words(value["response"])}
    if value.get("object") != "response":
        return value
    own = {name: told for name, told in value.items() if name == "model" or name not in RESPONSES} | repeated()
    if (value["error"] or {}).get("code") in CODES:
        own["error"] = {**value["error"], "code": "server_error"}
    return own


def _is_specified(event: dict[str, Any]) -> bool:
    """Whether the open specification has words for all that an event shows."""
    response = event.get("response") or {}
    items = (*response.get("output", ()), event.get("item") or {"type": "message"})
    return {item["type"] for item in items} <= SPECIFIED


def _shape(value: Any) -> Any:
    """A value without its texts and numbers, but for those that say what it is."""
    if isinstance(value, dict):
        return tuple((key, each if key in ("type", "finish_reason") else _shape(each)) for key, each in value.items())
    if isinstance(value, list):
        return tuple(_shape(each) for each in value)
    return type(value)


HELD = PublishedTypes()


def watch() -> None:
    """Wrap the encoders of every API."""
    for api, room in {"messages": anthropic, "chat": chat, "completions": completions, "responses": responses}.items():
        for method in ("start", "feed", "keepalive", "fail"):
            _wrap(room.StreamEncoder, method, lambda data, api=api: HELD.sent(api, "frames", data))
        _wrap(room.DocumentEncoder, "feed", lambda data, api=api: HELD.sent(api, "document", data))


def _wrap(encoder: Any, method: str, take: Callable[[bytes], None]) -> None:
    original = getattr(encoder, method)

    @wraps(original)
    def sent(*arguments: Any) -> bytes:
        data: bytes = original(*arguments)
        if data:
            take(data)
        return data

    setattr(encoder, method, sent)
