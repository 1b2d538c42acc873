"""The upstream adapter: any Chat Completions server, either trusted to separate its output or read as raw text.

Promise: structured deltas (`reasoning_content` or `reasoning`, `content`, `tool_calls`) are mapped one to one and never
parsed again; in raw mode only `content` is read and handed on as model text. Nothing is added to what upstream said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from turnwire.engines.failures import KeyRefused, failure
from turnwire.engines.http.completions import UsageCounts, failed_with
from turnwire.engines.http.engine import Call, HTTPEngine, Reading
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    EventBatch,
    GenerateRequest,
    TokenBatch,
    TokenLogprob,
    Vectors,
)
from turnwire.engines.upstream.chat_body import chat_body
from turnwire.engines.upstream.details import Details, readable
from turnwire.engines.upstream.events import BlockWriter
from turnwire.engines.upstream.thinking import Switches
from turnwire.turns import Conversation, FinishReason

__all__ = ["ChatReading", "OpenAIEngine"]

_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: list[_Part] | str = ""


class _Delta(msgspec.Struct, gc=False):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Rival(msgspec.Struct, gc=False):
    token: str = ""
    logprob: float = 0.0
    top_logprobs: list[_Rival] = []


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Rival] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: _Logprobs | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    usage: UsageCounts | None = None
    error: dict[str, Any] | str | None = None


_CHUNKS = msgspec.json.Decoder(list[_Chunk])


class ChatReading(Reading):
    """A Chat Completions stream. `learn` is called with the name under which thoughts came."""

    def __init__(
        self,
        engine: str,
        prompt_tokens: int,
        mode: Literal["events", "text"],
        learn: Callable[[str], None] | None = None,
        conversation: Conversation | None = None,
    ) -> None:
        self._engine = engine
        self._prompt = prompt_tokens
        self._raw = mode == "text"
        self._blocks = BlockWriter(conversation)
        self._details = Details()
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._calls = 0
        self._reason: FinishReason | None = None
        self._stop: str | None = None
        self._usage: UsageCounts | None = None
        self._learn = learn

    def feed(self, events: bytes) -> TokenBatch | EventBatch | None:
        for chunk in _CHUNKS.decode(events):
            if chunk.error is not None:
                self.error = failed_with(self._engine, chunk.error)
                break
            if chunk.usage is not None:
                self._usage = chunk.usage
            if chunk.choices:
                try:
                    self._choice(chunk.choices[0])
                except EngineError as error:
                    self.error = error
                    break
        if self._reason is not None and not self._raw:
            if self._details:
                self._blocks.seal(self._details.carrier())
            self._blocks.close()
        if self._raw:
            text, logprobs = "".join(self._texts), tuple(self._logprobs)
            self._texts.clear()
            self._logprobs.clear()
            return TokenBatch(text, (), logprobs) if text else None
        taken = self._blocks.take()
        return EventBatch(taken) if taken else None

    def close(self) -> Completion | None:
        """The completion. Usage comes in a chunk of its own after the finish, where the server reports it at all."""
        if self.end is None and self._reason is not None:
            reason = "tool_calls" if self._reason == "stop" and self._blocks.called else self._reason
            usage = self._usage or UsageCounts(self._prompt, 0)
            details, output = usage.prompt_tokens_details, usage.completion_tokens_details
            self.end = Completion(
                reason,
                usage.prompt_tokens,
                usage.completion_tokens or 0,
                (details.cached_tokens or 0) if details else 0,
                self._stop,
                reasoning_tokens=(output.reasoning_tokens or 0) if output else 0,
            )
        return self.end

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if self._raw:
            self._raw_delta(delta)
        else:
            self._delta(delta)
        if choice.logprobs is not None and choice.logprobs.content:
            self._logprobs += map(_logprob, choice.logprobs.content)
        if choice.finish_reason is not None:
            self._reason = _FINISH.get(choice.finish_reason)
            if self._reason is None:
                self.error = failure(self._engine, f"the turn ended with finish_reason {choice.finish_reason!r}")
            if isinstance(choice.stop_reason, str) and self._reason == "stop":
                self._reason, self._stop = "stop_sequence", choice.stop_reason

    def _delta(self, delta: _Delta) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if delta.reasoning_details:
            self._details.add(delta.reasoning_details)
            thought = thought or readable(delta.reasoning_details)
        elif self._details and not thought and (delta.content or delta.tool_calls):
            self._blocks.seal(self._details.carrier())
        if thought:
            if self._learn is not None:
                self._learn("reasoning_content" if delta.reasoning_content else "reasoning")
                self._learn = None
            self._blocks.text("reasoning", thought)
        if isinstance(delta.content, list):
            for part in delta.content:
                thinking = part.thinking if isinstance(part.thinking, str) else "".join(p.text for p in part.thinking)
                if thinking:
                    self._blocks.text("reasoning", thinking)
                if part.text:
                    self._blocks.text("text", part.text)
        elif delta.content:
            self._blocks.text("text", delta.content)
        if delta.refusal:
            self._blocks.text("text", delta.refusal)
        for call in delta.tool_calls or ():
            self._call(call)

    def _call(self, call: _ToolCall) -> None:
        function = call.function or _Function()
        if call.index is None:
            # Servers that give whole calls may leave the index out; a name begins the next one.
            self._calls += bool(function.name)
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        key = self._calls if call.index is None else ("index", call.index)
        self._blocks.call(key, name=function.name or "", call_id=call.id or "", arguments=arguments)

    def _raw_delta(self, delta: _Delta) -> None:
        if delta.tool_calls or delta.reasoning_content or delta.reasoning:
            raise EngineError(
                "internal",
                f"{self._engine} separates reasoning or tool calls by itself; name it openai: instead of openai-raw:",
            )
        if isinstance(delta.content, str):
            self._texts.append(delta.content)


def _logprob(entry: _Rival) -> TokenLogprob:
    return TokenLogprob(entry.token, entry.logprob, tuple((rival.token, rival.logprob) for rival in entry.top_logprobs))


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    max_input_tokens: int | None = None

    @property
    def window(self) -> int | None:
        """The context length, under whichever name this server gives it."""
        return self.max_model_len or self.context_length or self.context_window or self.max_input_tokens


class _Models(msgspec.Struct):
    data: list[_Model]


def _names(models: Sequence[_Model], most: int = 20) -> str:
    more = f" and {len(models) - most} more" if len(models) > most else ""
    return ", ".join(model.id for model in models[:most]) + more


class _Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class _EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]
    usage: _EmbeddingUsage = msgspec.field(default_factory=_EmbeddingUsage)


class OpenAIEngine(HTTPEngine):
    """A Chat Completions server. The address is its base, with or without `/v1`. `server` is which one it is, and
    `switches` says what a model's template calls thinking."""

    name = "the upstream server"

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        mode: Literal["events", "text"] = "events",
        server: str = "openai",
        switches: Callable[[str], Switches | None] | None = None,
    ) -> None:
        self._server = server
        self._switches_of = switches
        self._switches: Switches | None = None
        base = base_url.rstrip("/").removesuffix("/chat/completions")
        super().__init__(base if base.endswith("/v1") else f"{base}/v1", model=model, api_key=api_key)
        self._mode = mode
        self._reasoning_field = "reasoning_content"
        self.capabilities = Capabilities(
            yields=mode,
            guided=frozenset({"json_schema"}),
            cached_tokens=True,
            images=True,
        )

    async def _discover(self) -> EngineInfo:
        models, warnings = await self._listed()
        known = next((model for model in models if model.id == self._model), None)
        if self._model is None:
            if len(models) > 1:
                raise EngineError(
                    "invalid_request", f"it serves several models; name one with --model: {_names(models)}"
                )
            if not models:
                raise EngineError("invalid_request", f"{warnings[0]}; name the model with --model")
            known = models[0]
            self._model = known.id
        elif models and known is None:
            warnings.append(f"the upstream server does not list the model {self._model!r} but {_names(models)}")
        self._window = known.window if known else None
        self._switches = self._switches_of(self._model) if self._switches_of is not None else None
        return EngineInfo(name=self._server, model=self._model, window=self._window, warnings=tuple(warnings))

    async def _listed(self) -> tuple[list[_Model], list[str]]:
        """The models that the server lists, and what it said where it lists none. A refused key is an error."""
        try:
            models = (await self._ask("/models", _Models)).data
        except EngineError as error:
            if error.kind == "unreachable" or isinstance(error, KeyRefused):
                raise
            hint = "" if self._key else "; if it wants a key, give it with --engine-key-env NAME"
            return [], [f"the upstream server does not list its models ({error.message}){hint}"]
        return models, [] if models else ["the upstream server lists no models"]

    def _call(self, request: GenerateRequest) -> Call:
        body, notes = chat_body(request, self._model, self._reasoning_field, self._server, self._switches)
        return Call("/chat/completions", body, tuple(notes))

    def _reading(self, request: GenerateRequest) -> Reading:
        return ChatReading(self.name, len(request.prompt_ids), self._mode, self._learn, request.conversation)

    def _learn(self, reasoning_field: str) -> None:
        """Thoughts go back under the name under which they came."""
        self._reasoning_field = reasoning_field

    async def health(self) -> bool:
        """Whether the model list answers; hosted servers have no health route."""
        return 0 < await self._status("/models") < 500

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Embeddings by the same server."""
        answer = await self._ask("/embeddings", _Embeddings, {"model": self._model, "input": list(inputs)})
        made = (entry.embedding for entry in sorted(answer.data, key=lambda entry: entry.index))
        return Vectors(made, answer.usage.prompt_tokens)
