"""The flags and variables of NVIDIA Dynamo's frontend, and what becomes of each here.

Promise: a launch line of Dynamo's starts this gateway. Every flag and variable of the table is understood: it sets one
of our settings, or a sentence says why there is nothing to set. Our own flags go before Dynamo's, and our variables and
file before its variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["FLAG_NAMES", "ROWS", "Carried", "DynamoRow", "flags_carried_over", "row_name", "variables_carried_over"]


class DynamoRow(msgspec.Struct, frozen=True):
    """One flag (a switch where `switch`), its variable, the setting it means here, and a sentence about it."""

    flag: str | None
    variable: str
    setting: str | None
    about: str
    switch: bool = False
    read: Callable[[str], Any] = str


def _on(value: str) -> bool:
    return value.strip().lower() in ("1", "true", "yes", "on")


def _megabytes(value: str) -> int:
    return int(float(value) * 1024 * 1024)


def _milliseconds(value: str) -> float:
    return float(value) / 1000


def _level(value: str) -> str:
    word = value.split(",")[0].strip().lower()
    return {"trace": "debug", "warn": "warning", "off": "error"}.get(word, word)


_DISCOVERY = "workers are named with --engine; there is no discovery"
_CHOSEN = "workers are chosen by cached prefix, session and load, without a setting"

ROWS: tuple[DynamoRow, ...] = (
    DynamoRow("--http-port", "DYN_HTTP_PORT", "port", "the same as --port", read=int),
    DynamoRow("--http-host", "DYN_HTTP_HOST", "host", "the same as --host; the default is loopback, not 0.0.0.0"),
    DynamoRow("--tls-cert-path", "DYN_TLS_CERT_PATH", "tls_cert", "the same as --tls-cert"),
    DynamoRow("--tls-key-path", "DYN_TLS_KEY_PATH", "tls_key", "the same as --tls-key"),
    DynamoRow("--model-name", "DYN_MODEL_NAME", "model", "the same as --model"),
    DynamoRow("--model-path", "DYN_MODEL_PATH", "tokenizer", "the same as --tokenizer: a folder of the model's"),
    DynamoRow("--dyn-tool-call-parser", "DYN_TOOL_CALL_PARSER", "dialect", "the same as --dialect"),
    DynamoRow("--dyn-reasoning-parser", "DYN_REASONING_PARSER", "reasoning", "the same as --reasoning"),
    DynamoRow(
        None,
        "DYN_ENABLE_STREAMING_TOOL_DISPATCH",
        "enable_streaming_tool_dispatch",
        "the same as --enable-streaming-tool-dispatch",
        switch=True,
    ),
    DynamoRow(
        "--enable-streaming-reasoning-dispatch",
        "DYN_ENABLE_STREAMING_REASONING_DISPATCH",
        "enable_streaming_tool_dispatch",
        "reasoning_dispatch comes with tool_call_dispatch",
        switch=True,
    ),
    DynamoRow("--enable-anthropic-api", "DYN_ENABLE_ANTHROPIC_API", None, "Messages is always served", switch=True),
    DynamoRow(
        "--strip-anthropic-preamble",
        "DYN_STRIP_ANTHROPIC_PREAMBLE",
        None,
        "billing headers are always left out",
        switch=True,
    ),
    DynamoRow("--router-mode", "DYN_ROUTER_MODE", None, _CHOSEN),
    DynamoRow("--router-queue-threshold", "DYN_ROUTER_QUEUE_THRESHOLD", None, "set `concurrency` and `queue` instead"),
    DynamoRow("--router-session-affinity-ttl-secs", "DYN_ROUTER_SESSION_AFFINITY_TTL_SECS", None, _CHOSEN),
    DynamoRow("--kv-cache-block-size", "DYN_KV_CACHE_BLOCK_SIZE", None, "engines report their own"),
    DynamoRow("--migration-limit", "DYN_MIGRATION_LIMIT", None, "turns move by themselves when a worker dies"),
    DynamoRow("--namespace", "DYN_NAMESPACE", None, _DISCOVERY),
    DynamoRow("--namespace-prefix", "DYN_NAMESPACE_PREFIX", None, _DISCOVERY),
    DynamoRow("--discovery-backend", "DYN_DISCOVERY_BACKEND", None, _DISCOVERY),
    DynamoRow("--request-plane", "DYN_REQUEST_PLANE", None, _DISCOVERY),
    DynamoRow("--event-plane", "DYN_EVENT_PLANE", None, _DISCOVERY),
    DynamoRow("--dyn-chat-processor", "DYN_CHAT_PROCESSOR", None, "there is one, the gateway's own"),
    DynamoRow("--dyn-default-thinking-mode", "DYN_DEFAULT_THINKING_MODE", None, "the template's own default holds"),
    DynamoRow("--reasoning-field-name", "DYN_REASONING_FIELD_NAME", None, "thoughts are in reasoning_content"),
    DynamoRow("--metrics-prefix", "DYN_METRICS_PREFIX", None, "metrics begin with turnwire_"),
    DynamoRow("--trust-remote-code", "DYN_TRUST_REMOTE_CODE", None, "no model's code is ever run", switch=True),
    DynamoRow("--kserve-grpc-server", "DYN_KSERVE_GRPC_SERVER", None, "gRPC is not served", switch=True),
    DynamoRow(None, "DYN_HTTP_BODY_LIMIT_MB", "max_body", "the same as `max_body`, in bytes", read=_megabytes),
    DynamoRow(
        None,
        "DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS",
        "keepalive",
        "the same as `keepalive`, in seconds",
        read=_milliseconds,
    ),
    DynamoRow(
        None, "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS", "drain_timeout", "the same as `drain_timeout`", read=float
    ),
    DynamoRow(None, "DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS", "idle_timeout", "the same as `idle_timeout`", read=float),
    DynamoRow(None, "DYN_CONTEXT_WINDOW", "window", "the same as --window", read=int),
    DynamoRow(None, "DYN_LOG", "log_level", "the same as --log-level", read=_level),
    DynamoRow(
        None,
        "DYN_LOGGING_JSONL",
        "log_format",
        "the same as --log-format json",
        read=lambda value: "json" if _on(value) else "text",
    ),
    DynamoRow(None, "DYN_MAX_OUTPUT_TOKENS", None, "set `defaults` of the model"),
    DynamoRow(None, "DYN_HTTP_OVERLOAD_STATUS_CODE", None, "each API has its own: 529 on Messages, 503 elsewhere"),
    DynamoRow(None, "DYN_TOKENIZER_CACHE", None, "the cache of token ids is always on"),
    DynamoRow(None, "DYN_ENABLE_EXPERIMENTAL_PARSERS_V2", None, "arguments always stream"),
    DynamoRow(None, "DYN_REQUEST_TRACE", None, "use --record or --traces"),
)
"""What is known of Dynamo's frontend, in the order of the page."""

_BY_VARIABLE: Mapping[str, DynamoRow] = {row.variable: row for row in ROWS}


class Carried(msgspec.Struct, frozen=True):
    """What a launch line of Dynamo's says: where, which setting it means (None: there is none), and a sentence."""

    place: str
    setting: str | None
    value: Any
    about: str


def row_name(row: DynamoRow) -> str:
    """The name under which the command line holds a row's flag."""
    return row.variable.lower()


FLAG_NAMES = frozenset(row_name(row) for row in ROWS)
"""The names of all of them; none of ours begins so."""


def variables_carried_over(environ: Mapping[str, str]) -> Iterator[Carried]:
    """What Dynamo's variables say."""
    for variable, value in environ.items():
        if variable.startswith("DYN_") and value:
            row = _BY_VARIABLE.get(variable)
            if row is None:
                yield Carried(variable, None, None, "means nothing here")
            elif not row.switch or _on(value):
                yield Carried(variable, row.setting, _read(row, value), row.about)


def flags_carried_over(flags: Mapping[str, Any]) -> Iterator[Carried]:
    """What Dynamo's flags say."""
    for row in ROWS:
        value = flags.get(row_name(row))
        if value is not None and row.flag is not None:
            yield Carried(row.flag, row.setting, _read(row, value), row.about)


def _read(row: DynamoRow, value: Any) -> Any:
    if row.switch:
        return True
    try:
        return row.read(value) if isinstance(value, str) else value
    except ValueError:
        # Told by the settings themselves, in terms of the type that is wanted.
        return value
