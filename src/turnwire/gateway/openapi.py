"""The gateway's own description of its routes, in OpenAPI's form.

Promise: one table of routes, which a test holds against what the application really serves. The schemas name what a
request must have and the fields that are read; unknown fields are always let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

import turnwire

__all__ = ["ROUTES", "RouteRow", "methods_of", "openapi_document"]

Shape = Literal["anthropic", "openai", "none"]


class RouteRow(msgspec.Struct, frozen=True):
    """One method of one path: what it is for, who may use it, whose error shape it answers in, what body it takes."""

    method: str
    path: str
    summary: str
    access: Literal["open", "inference", "admin"] = "inference"
    errors: Shape = "openai"
    body: str | None = None
    answer: str = "application/json"
    streams: bool = False


ROUTES: tuple[RouteRow, ...] = (
    RouteRow(
        "POST",
        "/v1/messages",
        "A turn, as Anthropic's clients ask for one.",
        errors="anthropic",
        body="Messages",
        streams=True,
    ),
    RouteRow(
        "POST",
        "/v1/messages/count_tokens",
        "How many tokens a Messages request would read.",
        errors="anthropic",
        body="Messages",
    ),
    RouteRow(
        "POST", "/v1/chat/completions", "A turn, as Chat Completions clients ask for one.", body="Chat", streams=True
    ),
    RouteRow("POST", "/v1/completions", "Text that goes on from a prompt.", body="Completions", streams=True),
    RouteRow("POST", "/v1/embeddings", "Vectors of texts.", body="Embeddings"),
    RouteRow("POST", "/v1/responses", "A turn, as Responses clients ask for one.", body="Responses", streams=True),
    RouteRow("GET", "/v1/responses", "Upgrade to a WebSocket of turns; without an upgrade, 426."),
    RouteRow("POST", "/v1/responses/compact", "A conversation summed up as items to go on with.", body="Responses"),
    RouteRow("POST", "/v1/responses/input_tokens", "How many tokens a request would read.", body="Responses"),
    RouteRow("GET", "/v1/responses/{response_id}", "A stored or running response.", streams=True),
    RouteRow("DELETE", "/v1/responses/{response_id}", "Forget a response."),
    RouteRow("GET", "/v1/responses/{response_id}/input_items", "The items a response was made from."),
    RouteRow("POST", "/v1/responses/{response_id}/cancel", "Call off a background response."),
    RouteRow("GET", "/v1/models", "The models served here, for every kind of client."),
    RouteRow("GET", "/v1/models/{model}", "One model by id or alias."),
    RouteRow("POST", "/v1/tokenize", "A text as token ids.", errors="anthropic", body="Tokenize"),
    RouteRow("POST", "/v1/detokenize", "Token ids as text.", errors="anthropic", body="Detokenize"),
    RouteRow("GET", "/openapi.json", "This document."),
    RouteRow("GET", "/", "Something is here.", access="open", errors="none", answer="text/plain"),
    RouteRow("GET", "/api/hello", "Something is here.", access="open", errors="none", answer="text/plain"),
    RouteRow("GET", "/health", "Whether the engines answer.", access="open", errors="none"),
    RouteRow("GET", "/ready", "Whether to send turns here.", access="open", errors="none"),
    RouteRow("GET", "/metrics", "Prometheus metrics.", access="admin", answer="text/plain"),
    RouteRow("GET", "/admin/turns", "The last turns, without payloads.", access="admin"),
)


def methods_of(path: str) -> tuple[str, ...]:
    """The methods of a path that is served; empty for one that is not. A `{name}` stands for anything but a slash,
    except at the end of /v1/models, whose ids have some."""
    return tuple(row.method for row in ROUTES if _fits(row.path, path))


def _fits(pattern: str, path: str) -> bool:
    if pattern == "/v1/models/{model}":
        return path.startswith("/v1/models/") and len(path) > len("/v1/models/")
    wanted, given = pattern.split("/"), path.split("/")
    return len(wanted) == len(given) and all(
        want == have or (want.startswith("{") and have) for want, have in zip(wanted, given, strict=True)
    )


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_WHOLE = {"type": "integer", "minimum": 1}
_NUMBER = {"type": "number"}
_OBJECTS = {"type": "array", "items": {"type": "object"}}


def _object(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": True,
    }


_BODIES: Mapping[str, dict[str, Any]] = {
    "Messages": _object(
        ("model", "messages"),
        model=_TEXT,
        messages=_OBJECTS,
        system={"anyOf": [_TEXT, _OBJECTS]},
        max_tokens=_WHOLE,
        stream=_FLAG,
        tools=_OBJECTS,
        tool_choice={"type": "object"},
        thinking={"type": "object"},
        stop_sequences={"type": "array", "items": _TEXT},
        temperature=_NUMBER,
        top_p=_NUMBER,
        top_k={"type": "integer"},
    ),
    "Chat": _object(
        ("model", "messages"),
        model=_TEXT,
        messages=_OBJECTS,
        max_tokens=_WHOLE,
        max_completion_tokens=_WHOLE,
        stream=_FLAG,
        n=_WHOLE,
        tools=_OBJECTS,
        tool_choice={"anyOf": [_TEXT, {"type": "object"}]},
        response_format={"type": "object"},
        stop={"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
        temperature=_NUMBER,
        top_p=_NUMBER,
        logprobs=_FLAG,
    ),
    "Completions": _object(
        ("model", "prompt"),
        model=_TEXT,
        prompt={"anyOf": [_TEXT, {"type": "array"}]},
        max_tokens=_WHOLE,
        stream=_FLAG,
        n=_WHOLE,
        stop={"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
    ),
    "Embeddings": _object(
        ("model", "input"),
        model=_TEXT,
        input={"anyOf": [_TEXT, {"type": "array"}]},
        encoding_format={"enum": ["float", "base64"]},
    ),
    "Responses": _object(
        ("model", "input"),
        model=_TEXT,
        input={"anyOf": [_TEXT, _OBJECTS]},
        instructions=_TEXT,
        previous_response_id=_TEXT,
        stream=_FLAG,
        store=_FLAG,
        background=_FLAG,
        tools=_OBJECTS,
        reasoning={"type": "object"},
        max_output_tokens=_WHOLE,
    ),
    "Tokenize": _object((), text=_TEXT, prompt=_TEXT, model=_TEXT, return_token_strs=_FLAG),
    "Detokenize": _object(("tokens",), tokens={"type": "array", "items": {"type": "integer"}}, model=_TEXT),
}
_ERRORS: Mapping[str, dict[str, Any]] = {
    "AnthropicError": _object(
        ("type", "error"), type={"const": "error"}, error=_object(("type", "message"), type=_TEXT, message=_TEXT)
    ),
    "OpenAIError": _object(
        ("error",),
        error=_object(
            ("message", "type"),
            message=_TEXT,
            type=_TEXT,
            param={"type": ["string", "null"]},
            code={"type": ["string", "null"]},
        ),
    ),
}
_SCHEMA_OF: Mapping[Shape, str] = {"anthropic": "AnthropicError", "openai": "OpenAIError"}


def _operation(row: RouteRow) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": row.summary,
        "x-turnwire-access": row.access,
        "security": [] if row.access == "open" else [{"bearer": []}, {"key": []}],
        "responses": _responses(row),
    }
    names = [part[1:-1] for part in row.path.split("/") if part.startswith("{")]
    if names:
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]
    if row.body is not None:
        schema = {"$ref": f"#/components/schemas/{row.body}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _responses(row: RouteRow) -> dict[str, Any]:
    content: dict[str, Any] = {row.answer: {}}
    if row.streams:
        content["text/event-stream"] = {}
    answers: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
    if row.errors != "none":
        schema = {"$ref": f"#/components/schemas/{_SCHEMA_OF[row.errors]}"}
        answers["default"] = {"description": "A refusal.", "content": {"application/json": {"schema": schema}}}
    return answers


@lru_cache(1)
def openapi_document() -> bytes:
    """The document as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for row in ROUTES:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Turnwire", "version": turnwire.__version__},
        "paths": paths,
        "components": {
            "schemas": {**_BODIES, **_ERRORS},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }
    return msgspec.json.encode(document)
