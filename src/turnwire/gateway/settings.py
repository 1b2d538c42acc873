"""Every setting of the gateway in one frozen value, and every setting of one served model in another.

Promise: the type, the bounds, the default and the one-line description of a setting are written here and nowhere else;
flags, the config file, `turnwire config` and the checks are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from turnwire.turns import HistoryThinking

__all__ = ["ModelDefaults", "ModelSettings", "Role", "Settings", "SettingsError", "ToolSettings", "described", "sizes"]

Role: TypeAlias = Literal["default", "opus", "sonnet", "haiku", "fable", "background", "subagent", "review"]

_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=7 * 86_400)]
_Wait: TypeAlias = Annotated[float, Meta(gt=0, le=7 * 86_400)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=10_000_000)]
_Some: TypeAlias = Annotated[int, Meta(ge=1, le=10_000_000)]
# What marks a setting as a size: it may be written with a unit.
_SIZE = {"unit": "bytes"}
_Bytes: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 40, extra=_SIZE)]
_Characters: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 40)]
_Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 31)]
_Layers: TypeAlias = Annotated[int, Meta(ge=-1, le=100_000)]
_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)]
_ContentControl: TypeAlias = Literal["text", "refuse", "allow"]


class SettingsError(ValueError):
    """A setting that cannot be used; the message says which, where it was set, and what to change."""


class ModelDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Values for requests that set none of their own."""

    max_tokens: Annotated[_Tokens | None, Meta(description="Longest answer.")] = None
    temperature: Annotated[float, Meta(ge=0, le=10)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-10, le=10)] | None = None


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[model]]` table of the config file."""

    name: Annotated[_Name, Meta(description="The id that clients ask for.")]
    aliases: Annotated[tuple[_Name, ...], Meta(description="Further ids that mean this model.")] = ()
    engine: Annotated[str | None, Meta(description="Its engine: an address, or embedded, scripted:FILE, KIND:URL.")] = (
        None
    )
    engines: Annotated[tuple[str, ...], Meta(description="Several workers of one kind that serve it.")] = ()
    source: Annotated[
        str | None, Meta(description="Its files: a folder, a GGUF file, a hub id or a fetchable model; else its name.")
    ] = None
    upstream_model: Annotated[str | None, Meta(description="Its name at the engine, where that is another one.")] = None
    key_env: Annotated[str | None, Meta(description="Environment variable that holds the engine's API key.")] = None
    key_file: Annotated[str | None, Meta(description="File that holds the engine's API key.")] = None
    window: Annotated[
        _Tokens | None, Meta(description="Context window in tokens, where the engine does not report it.")
    ] = None
    dialect: Annotated[str, Meta(description="How the model writes; auto finds out.")] = "auto"
    reasoning: Annotated[str | None, Meta(description="Another dialect's reasoning markers.")] = None
    template: Annotated[str | None, Meta(description="Chat template file (Jinja).")] = None
    tokenizer: Annotated[
        str | None, Meta(description="Tokenizer, where the engine does not name one: a file, folder, hub id or model.")
    ] = None
    history_thinking: Annotated[HistoryThinking | None, Meta(description="As the setting of the same name.")] = None
    content_control: Annotated[_ContentControl | None, Meta(description="As the setting of the same name.")] = None
    gpu_layers: Annotated[_Layers | None, Meta(description="Embedded engine: layers on the GPU; -1 is all.")] = None
    defaults: Annotated[ModelDefaults, Meta(description="Values for requests that set none.")] = ModelDefaults()
    roles: Annotated[tuple[Role, ...], Meta(description="Which requests it takes; see docs/gateway.md.")] = ()
    fallbacks: Annotated[tuple[_Name, ...], Meta(description="Who answers, in order, while its workers are gone.")] = ()

    @property
    def specs(self) -> tuple[str, ...]:
        """The engines, one spec each."""
        return self.engines or tuple(part.strip() for part in (self.engine or "embedded").split(","))


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[tools.NAME]` table of the config file: `web_search`, `web_fetch`, `code_execution`, `bash_code_execution`,
    `file_search`, or the label of an MCP server."""

    mcp: Annotated[str | tuple[_Name, ...], Meta(description="The MCP server: its address, or its command as a list.")]
    tool: Annotated[str | None, Meta(description="Its tool that does the work, where it has several.")] = None
    key_env: Annotated[str | None, Meta(description="Environment variable that holds the server's API key.")] = None
    env: Annotated[tuple[_Name, ...], Meta(description="Variables that the server's command gets.")] = ()
    stores: Annotated[tuple[_Name, ...], Meta(description="file_search: ids of the vector stores that it has.")] = ()
    keys: Annotated[tuple[_Name, ...], Meta(description="Names of the API keys that may use it; empty: all.")] = ()
    timeout: Annotated[_Wait, Meta(description="How long one call may take.")] = 30.0
    max_bytes: Annotated[_Bytes, Meta(description="Largest answer that the model reads.")] = 64 * 1024
    max_rounds: Annotated[_Some, Meta(description="Most generations of one answer.")] = 8
    calls_per_minute: Annotated[_Count, Meta(description="Most calls of one API key in a minute.")] = 60


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `turnwire serve` runs with. Times are seconds, sizes bytes."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port to listen on; 0 picks a free one.")] = 8390
    workers: Annotated[int, Meta(ge=1, le=256, description="Gateway processes that serve the one port.")] = 1

    tls_cert: Annotated[str | None, Meta(description="Certificate chain (PEM) to serve HTTPS with.")] = None
    tls_key: Annotated[str | None, Meta(description="The certificate's private key (PEM).")] = None

    model: Annotated[
        str | None, Meta(description="Model id to serve, a .gguf file, a folder, or a hub id (MAKER/REPO:QUANT).")
    ] = None
    alias: Annotated[tuple[_Name, ...], Meta(description="Further ids that mean the same model.")] = ()
    engine: Annotated[
        str, Meta(description="An address (what answers is found out), or embedded, scripted:FILE, KIND:URL.")
    ] = "embedded"
    engine_key_env: Annotated[str | None, Meta(description="Environment variable with the engine's API key.")] = None
    engine_key_file: Annotated[str | None, Meta(description="File with the engine's API key.")] = None
    upstream_model: Annotated[str | None, Meta(description="The model's name at the engine, where it differs.")] = None
    dialect: Annotated[
        str, Meta(description="How the model writes: a name, a FILE.py of your own, or auto to find out.")
    ] = "auto"
    reasoning: Annotated[str | None, Meta(description="Another dialect's reasoning markers.")] = None
    template: Annotated[str | None, Meta(description="Chat template file (Jinja).")] = None
    tokenizer: Annotated[
        str | None, Meta(description="Tokenizer, where the engine does not name one: a file, folder, hub id or model.")
    ] = None
    window: Annotated[
        _Tokens | None, Meta(description="Context window in tokens, where the engine does not report it.")
    ] = None
    gpu_layers: Annotated[_Layers | None, Meta(description="Embedded engine: layers on the GPU; -1 is all.")] = None
    profiles: Annotated[str | None, Meta(description="A file of model profiles that extends the built-in ones.")] = None

    history_thinking: Annotated[
        HistoryThinking | None, Meta(description="Which thoughts of earlier user turns the model reads again.")
    ] = None
    tool_order: Annotated[
        Literal["sent", "canonical"],
        Meta(description="Tools in the prompt: as the client sent them, or sorted, with their schemas' keys."),
    ] = "sent"
    hoist_system: Annotated[bool, Meta(description="Move system text that changes out of the shared prefix.")] = True
    content_control: Annotated[
        _ContentControl,
        Meta(description="Content that spells a control token: it stays text, is refused, or let through."),
    ] = "text"
    enable_streaming_tool_dispatch: Annotated[bool, Meta(description="tool_call_dispatch for everybody.")] = False
    websocket: Annotated[bool, Meta(description="Responses over a WebSocket.")] = True

    seal_key: Annotated[str | None, Meta(description="Key of the sealed turns; the same on all replicas.")] = None
    seal_key_file: Annotated[str | None, Meta(description="File with that key; made if it does not exist.")] = None
    store: Annotated[
        str | None, Meta(description="Where turns and responses are kept: memory, sqlite:FILE or redis://HOST:PORT/0.")
    ] = None

    memory: Annotated[
        int,
        Meta(
            ge=1 << 22,
            le=1 << 40,
            extra=_SIZE,
            description="Room for turns, sessions, responses and decoded messages in memory; caches grow with it.",
        ),
    ] = 512 * 1024 * 1024

    keys: Annotated[str | None, Meta(description="TOML file of API keys; nobody gets in without one.")] = None
    allow_anonymous: Annotated[bool, Meta(description="Listen beyond loopback although no key is set.")] = False
    allowed_hosts: Annotated[tuple[_Name, ...], Meta(description="Further names an open gateway answers to.")] = ()
    cors_origins: Annotated[
        tuple[_Name, ...], Meta(description="Web origins whose pages may use the gateway; * is all.")
    ] = ()
    usage: Annotated[str | None, Meta(description="File that keeps what each key used, over restarts.")] = None
    allow_urls: Annotated[bool, Meta(description="Let image URLs through to engines that fetch them.")] = False

    log_format: Annotated[Literal["text", "json"], Meta(description="One line per turn: text, or JSON.")] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="What is logged.")] = "info"
    record: Annotated[str | None, Meta(description="Folder that gets one JSON line per turn, with payloads.")] = None
    capture: Annotated[
        str | None,
        Meta(description="Folder that gets captures for turnwire replay; they hold payloads, without secrets."),
    ] = None
    capture_sample: Annotated[float, Meta(ge=0, le=1, description="Share of the sessions that is captured.")] = 1.0
    capture_filter: Annotated[
        tuple[_Name, ...], Meta(description="What is captured: model=, tenant=, api=, client=, session= and a pattern.")
    ] = ()
    capture_redact: Annotated[
        tuple[_Name, ...], Meta(description="Regular expressions of further secrets that captures must not hold.")
    ] = ()
    capture_file_bytes: Annotated[_Bytes, Meta(description="Largest capture file, compressed.")] = 64 << 20
    capture_folder_bytes: Annotated[_Bytes, Meta(description="Most that captures take; the oldest leave.")] = 1 << 30
    turns: Annotated[_Count, Meta(description="Summaries of turns in memory, for the console.")] = 1000
    journal_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            extra=_SIZE,
            description="Most that summaries take in the store, over restarts; 0: none.",
        ),
    ] = 32 << 20
    journal_age: Annotated[
        float, Meta(gt=0, le=400 * 86_400, description="How long the store keeps summaries of turns.")
    ] = 7 * 86_400.0
    traces: Annotated[
        str | None, Meta(description="OTLP address that gets OpenTelemetry spans, such as http://127.0.0.1:4318.")
    ] = None
    push_metrics: Annotated[
        str | None, Meta(description="OTLP address that gets OpenTelemetry metrics, beside those at /metrics.")
    ] = None

    keepalive: Annotated[_Wait, Meta(description="Silence before a sign of life goes to the client.")] = 10.0
    idle_timeout: Annotated[_Wait, Meta(description="An engine's silence before its turn ends in an error.")] = 300.0
    stall_timeout: Annotated[_Wait, Meta(description="How long a write may wait for a client that does not read.")] = (
        60.0
    )
    drain_timeout: Annotated[_Seconds, Meta(description="What running turns have after SIGTERM.")] = 30.0
    request_timeout: Annotated[_Wait, Meta(description="How long a request may take to arrive.")] = 120.0
    concurrency: Annotated[_Some, Meta(description="Turns at a time on each worker.")] = 256
    queue: Annotated[_Count, Meta(description="Turns that may wait.")] = 1024
    queue_timeout: Annotated[_Wait, Meta(description="How long a turn may wait.")] = 120.0
    session_affinity: Annotated[
        Literal["soft", "hard", "off"],
        Meta(description="How firmly a conversation keeps its worker: while it costs little, always, or not."),
    ] = "soft"
    session_life: Annotated[_Wait, Meta(description="How long a conversation keeps its worker without a turn.")] = 900.0
    speculative_prefill: Annotated[
        Literal["off", "hinted", "always"],
        Meta(description="Whether idle workers read the next prompt ahead: never, where asked for, or always."),
    ] = "off"
    routing_policy: Annotated[
        str | None, Meta(description="A Python file, or an entry point, that decides where turns go.")
    ] = None

    max_body: Annotated[_Bytes, Meta(description="Largest request.")] = 32 * 1024 * 1024
    max_depth: Annotated[_Some, Meta(description="Deepest nesting of a request.")] = 128
    max_messages: Annotated[_Some, Meta(description="Most messages of a request.")] = 50_000
    max_tools: Annotated[_Some, Meta(description="Most tools of a request.")] = 2_048
    max_schema: Annotated[_Bytes, Meta(description="Largest JSON schema.")] = 1024 * 1024
    max_pattern: Annotated[_Characters, Meta(description="Longest regular expression, in characters.")] = 4_096
    max_grammar: Annotated[_Characters, Meta(description="Longest grammar, in characters.")] = 256 * 1024
    max_choices: Annotated[_Some, Meta(description="Most answers to one request (n).")] = 16
    max_stops: Annotated[_Count, Meta(description="Most stop strings.")] = 64
    max_stop_chars: Annotated[_Some, Meta(description="Longest stop string.")] = 4_096
    max_images: Annotated[_Count, Meta(description="Most images of a request.")] = 256
    max_image: Annotated[_Bytes, Meta(description="Largest image.")] = 16 * 1024 * 1024
    template_steps: Annotated[_Some, Meta(description="How much work a chat template may do.")] = 5_000_000
    max_head: Annotated[_Bytes, Meta(description="Largest request head.")] = 64 * 1024
    max_headers: Annotated[_Some, Meta(description="Most header lines.")] = 256

    models: Annotated[tuple[ModelSettings, ...], Meta(max_length=1_000, description="The [[model]] tables.")] = ()
    tools: Annotated[dict[str, ToolSettings], Meta(max_length=100, description="The [tools.NAME] tables.")] = {}

    def served(self) -> tuple[ModelSettings, ...]:
        """The models to serve: the tables of the config file, or the one model that the flags describe."""
        if self.models:
            return self.models
        return (
            ModelSettings(
                name=self.model or "",
                aliases=self.alias,
                engine=self.engine,
                upstream_model=self.upstream_model,
                key_env=self.engine_key_env,
                key_file=self.engine_key_file,
                window=self.window,
                dialect=self.dialect,
                reasoning=self.reasoning,
                template=self.template,
                tokenizer=self.tokenizer,
                gpu_layers=self.gpu_layers,
            ),
        )


ONE_MODEL = (
    *("model", "alias", "engine", "engine_key_env", "engine_key_file", "upstream_model"),
    *("dialect", "reasoning", "template", "tokenizer", "window", "gpu_layers"),
)
"""Settings that describe the one model of a gateway without `[[model]]` tables."""


def described(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """The one-line description of each field of a settings value."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _description(hints[field.name]) for field in msgspec.structs.fields(kind)}


def sizes(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The fields of a settings value that are sizes in bytes."""
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(name for name, hint in hints.items() if any(mark.extra == _SIZE for mark in _marks(hint)))


def _description(hint: Any) -> str:
    """The outermost description among a type's annotations."""
    said = [mark.description for mark in _marks(hint) if mark.description]
    return said[-1] if said else ""


def _marks(hint: Any) -> list[Meta]:
    """A type's own annotations, the outermost last."""
    return [mark for mark in get_args(hint)[1:] if isinstance(mark, Meta)] if get_origin(hint) is Annotated else []
