"""Every route that is served: method, path, who may use it, whose error shape it answers in.

Promise: the one table of routes. The router, the guard, the error shapes and the OpenAPI document are made from it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["ROUTES", "Access", "RouteRow", "Shape", "access_of", "label_of", "methods_of", "shape_of"]

Access = Literal["open", "inference", "admin"]
Shape = Literal["anthropic", "openai", "responses", "none"]


class RouteRow(msgspec.Struct, frozen=True):
    """One method of one path: what it is for, who may use it, whose error shape it answers in, what body it takes."""

    method: str
    path: str
    summary: str
    access: Access = "inference"
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
    RouteRow(
        "POST",
        "/v1/responses",
        "A turn, as Responses clients ask for one.",
        errors="responses",
        body="Responses",
        streams=True,
    ),
    RouteRow("GET", "/v1/responses", "Upgrade to a WebSocket of turns; without an upgrade, 426.", errors="responses"),
    RouteRow(
        "POST",
        "/v1/responses/compact",
        "A conversation summed up as items to go on with.",
        errors="responses",
        body="Responses",
    ),
    RouteRow(
        "POST",
        "/v1/responses/input_tokens",
        "How many tokens a request would read.",
        errors="responses",
        body="Responses",
    ),
    RouteRow("GET", "/v1/responses/{response_id}", "A stored or running response.", errors="responses", streams=True),
    RouteRow("DELETE", "/v1/responses/{response_id}", "Forget a response.", errors="responses"),
    RouteRow(
        "GET", "/v1/responses/{response_id}/input_items", "The items a response was made from.", errors="responses"
    ),
    RouteRow("POST", "/v1/responses/{response_id}/cancel", "Call off a background response.", errors="responses"),
    RouteRow("GET", "/v1/models", "The models served here, for every kind of client."),
    RouteRow("GET", "/v1/models/{model}", "One model by id or alias."),
    RouteRow("POST", "/v1/tokenize", "A text as token ids.", errors="anthropic", body="Tokenize"),
    RouteRow("POST", "/v1/detokenize", "Token ids as text.", errors="anthropic", body="Detokenize"),
    RouteRow("GET", "/openapi.json", "This document."),
    RouteRow("GET", "/", "What is here; in a browser, the console.", access="open", errors="none", answer="text/plain"),
    RouteRow("GET", "/api/hello", "Something is here.", access="open", errors="none", answer="text/plain"),
    RouteRow("GET", "/health", "Whether the engines answer.", access="open", errors="none"),
    RouteRow("GET", "/ready", "Whether to send turns here.", access="open", errors="none"),
    RouteRow("GET", "/metrics", "Prometheus metrics.", access="admin", answer="text/plain"),
    RouteRow("GET", "/admin/turns", "The last turns, without payloads.", access="admin"),
    RouteRow("GET", "/admin/live", "The turns that run now.", access="admin"),
    RouteRow("POST", "/admin/turns/{turn_id}/cancel", "End a running turn.", access="admin"),
    RouteRow("GET", "/admin/turns/{turn_id}/payload", "What was captured of a turn.", access="admin"),
    RouteRow("GET", "/admin/events", "Turns as they run and end.", access="admin", answer="text/event-stream"),
    RouteRow("GET", "/admin/workers", "The workers of every model.", access="admin"),
    RouteRow("POST", "/admin/workers", "Add a worker to a model.", access="admin"),
    RouteRow("POST", "/admin/workers/drain", "Give a worker no new turns.", access="admin"),
    RouteRow("DELETE", "/admin/workers", "Drain a worker and take it out.", access="admin"),
    RouteRow("POST", "/admin/warm", "Let workers read what sessions will begin with.", access="admin"),
    RouteRow("GET", "/admin/usage", "What each key used, by day.", access="admin"),
    RouteRow("GET", "/admin/settings", "The settings in effect.", access="admin"),
    RouteRow("GET", "/console", "The console.", access="open", errors="none", answer="text/html"),
    RouteRow("GET", "/console/{file}", "A part of the console.", access="open", errors="none", answer="text/plain"),
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


def _first(path: str) -> RouteRow | None:
    return next((row for row in ROUTES if _fits(row.path, path)), None)


_APIS = {
    "/v1/messages": "messages",
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/responses/compact": "responses",
}
_PLAIN = {row.path: _first(row.path) for row in ROUTES if "{" not in row.path}


def _row(path: str) -> RouteRow | None:
    """The first row of a path; a path without a name in it, as those of turns are, is not looked for in the table."""
    return _PLAIN.get(path) or _first(path)


def access_of(path: str) -> Access:
    """Who may use a path; what is not served is for nobody without a key, so that refusals reveal nothing."""
    row = _row(path)
    return row.access if row is not None else "inference"


def label_of(path: str) -> str:
    """What a request is counted under: its API where it asks for a turn, else its route; `other` where there is none.
    Anybody may ask for any path, so the path itself would make labels without end."""
    row = _row(path)
    return "other" if row is None else _APIS.get(row.path, row.path)


def shape_of(path: str) -> Shape:
    """Whose error shape a path answers in; for one that is not served, that of its nearest API."""
    found = _row(path)
    if found is not None:
        return found.errors
    for row in ROUTES:
        if row.errors != "none" and path.startswith(row.path + "/"):
            return row.errors
    return "none"
