"""The gateway's own description of its routes, in OpenAPI's form.

Promise: made from the table of routes. The schemas name what a request must have and the fields that are read; unknown
fields are always let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

import turnwire
from turnwire.gateway.routes import ROUTES, RouteRow, Shape

__all__ = ["openapi_document"]

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
_SCHEMA_OF: Mapping[Shape, str] = {"anthropic": "AnthropicError", "openai": "OpenAIError", "responses": "OpenAIError"}


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
