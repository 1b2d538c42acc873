"""The model lists: one body in which OpenAI's, Anthropic's and Codex's clients each find their own fields.

Promise: every listed id can be asked for, and an unknown id is refused in the shape of the API that asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from turnwire.protocols import anthropic
from turnwire.protocols.codex_catalog import catalog_etag, merged_model, merged_models
from turnwire.protocols.models import ModelRow, resolve_model
from turnwire.protocols.wire import TurnFailure

__all__ = ["ModelRoutes"]

_ALL = 1000


class Catalog(Protocol):
    def rows(self) -> Sequence[ModelRow]: ...

    def entries(self) -> Sequence[dict[str, Any]]: ...


class ModelRoutes:
    """`GET /v1/models` and `GET /v1/models/{id}`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def page(self, request: Request) -> Response:
        rows, entries, query = self._catalog.rows(), self._catalog.entries(), request.query_params
        page = anthropic.models_page(
            rows,
            limit=_limit(query.get("limit")),
            after_id=query.get("after_id"),
            before_id=query.get("before_id"),
            # Claude Code finds models by names with `claude` in them; everybody else would see each model thrice.
            aliases="anthropic-version" in request.headers,
        )
        body = merged_models(rows, entries, page)
        return Response(body, headers={"etag": catalog_etag(entries)}, media_type="application/json")

    async def one(self, request: Request) -> Response:
        wanted = request.path_params["model"]
        rows = self._catalog.rows()
        row, _ = resolve_model(wanted, rows, rows[0].id)
        if row is None:
            raise TurnFailure("not_found", f"The model '{wanted}' is not served here.")
        return Response(merged_model(row, anthropic.model_object(row, wanted)), media_type="application/json")


def _limit(text: str | None) -> int:
    """How many to list: all of them, unless the client pages."""
    if text is None:
        return _ALL
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise TurnFailure("invalid_request", f"limit: must be a whole number between 1 and {_ALL}", param="limit")
    return int(text)
