"""The upstream adapter for Anthropic Messages servers: blocks out, events in, order and signatures kept both ways.

Promise: as for the other upstream servers (mapped, never parsed again). A thought's signature travels as the block's
seal and goes back unchanged; counts are the server's own, cached tokens among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.engines.failures import KeyRefused
from turnwire.engines.http.completions import failed_with
from turnwire.engines.http.engine import Call, HTTPEngine, Reading
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    GenerateRequest,
)
from turnwire.engines.upstream.events import BlockReading
from turnwire.engines.upstream.messages_body import REDACTED, messages_body
from turnwire.turns import Conversation, FinishReason

__all__ = ["MessagesEngine", "MessagesReading"]

_VERSION = "2023-06-01"
_FINISH: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    data: str = ""
    input: dict[str, Any] | None = None


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: dict[str, Any] | None = None


_EVENTS = msgspec.json.Decoder(list[_Event])


class MessagesReading(BlockReading[_Event]):
    """A Messages stream."""

    def __init__(self, engine: str, conversation: Conversation | None = None) -> None:
        super().__init__(_EVENTS, conversation)
        self._engine = engine
        self._signature: list[str] = []
        self._prompt = self._cached = self._output = 0
        self._reason: FinishReason | None = None
        self._stop: str | None = None

    def _event(self, event: _Event) -> None:
        kind = event.type
        if kind == "content_block_delta" and event.delta is not None:
            self._delta(event.index, event.delta)
        elif kind == "content_block_start" and event.content_block is not None:
            self._opened(event.index, event.content_block)
        elif kind == "content_block_stop":
            self._closed()
        elif kind == "message_start" and event.message is not None:
            self._count(event.message.usage)
        elif kind == "message_delta":
            self._count(event.usage)
            self._ending(event.delta or _Delta())
        elif kind == "message_stop":
            if self._reason is None:
                self.error = failed_with(self._engine, "the message ended without a stop_reason")
            else:
                self.end = Completion(self._reason, self._prompt, self._output, self._cached, self._stop)
        elif kind == "error":
            self.error = failed_with(self._engine, event.error or "the message failed")

    def _opened(self, index: int, block: _Block) -> None:
        if block.type == "tool_use":
            self._blocks.call(index, name=block.name, call_id=block.id)
            if block.input:
                self._blocks.call(index, arguments=msgspec.json.encode(block.input).decode())
        elif block.type == "redacted_thinking":
            self._blocks.seal(REDACTED + block.data)
        elif block.type == "text" and block.text:
            self._blocks.text("text", block.text)
        elif block.type == "thinking" and block.thinking:
            self._blocks.text("reasoning", block.thinking)

    def _delta(self, index: int, delta: _Delta) -> None:
        if delta.text:
            self._blocks.text("text", delta.text)
        elif delta.thinking:
            self._blocks.text("reasoning", delta.thinking)
        elif delta.partial_json:
            self._blocks.call(index, arguments=delta.partial_json)
        elif delta.signature:
            self._signature.append(delta.signature)

    def _closed(self) -> None:
        signature, self._signature = "".join(self._signature), []
        if signature:
            self._blocks.seal(signature)
        self._blocks.close()

    def _ending(self, delta: _Delta) -> None:
        if delta.stop_reason is None:
            return
        self._reason, self._stop = _FINISH.get(delta.stop_reason), delta.stop_sequence
        if self._reason is None:
            self.error = failed_with(self._engine, f"the turn ended with stop_reason {delta.stop_reason!r}")

    def _count(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        if usage.input_tokens is not None:
            self._cached = usage.cache_read_input_tokens or 0
            self._prompt = usage.input_tokens + self._cached + (usage.cache_creation_input_tokens or 0)
        if usage.output_tokens is not None:
            self._output = usage.output_tokens


class _Model(msgspec.Struct):
    id: str
    max_input_tokens: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class MessagesEngine(HTTPEngine):
    """A Messages server. The address is its base, with or without `/v1`."""

    name = "the upstream server"
    capabilities = Capabilities(yields="events", guided=frozenset({"json_schema"}), cached_tokens=True, images=True)

    def __init__(self, base_url: str, *, model: str | None = None, api_key: str | None = None) -> None:
        base = base_url.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        super().__init__(f"{base}/v1", model=model, api_key=api_key)

    def _headers(self) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": self._key} if self._key else {})}

    async def _discover(self) -> EngineInfo:
        warnings = []
        models: list[_Model] = []
        try:
            models = (await self._ask("/models", _Models)).data
        except EngineError as error:
            if error.kind == "unreachable" or isinstance(error, KeyRefused):
                raise
            warnings.append(f"the upstream server does not list its models ({error.message})")
        if self._model is None and len(models) != 1:
            names = ", ".join(model.id for model in models[:20]) or "it lists none"
            raise EngineError("invalid_request", f"name the model with --model: {names}")
        self._model = self._model or models[0].id
        known = next((model for model in models if model.id == self._model), None)
        if models and known is None:
            warnings.append(f"the upstream server does not list the model {self._model!r}")
        window = known.max_input_tokens if known else None
        return EngineInfo(name="anthropic", model=self._model, window=window, warnings=tuple(warnings))

    def _call(self, request: GenerateRequest) -> Call:
        body, notes = messages_body(request, self._model)
        return Call("/messages", body, tuple(notes))

    def _reading(self, request: GenerateRequest) -> Reading:
        return MessagesReading(self.name, request.conversation)

    async def health(self) -> bool:
        """Whether the model list answers; hosted servers have no health route."""
        return 0 < await self._status("/models") < 500
