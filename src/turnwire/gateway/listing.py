"""The model lists: what is served, in the shape the caller's headers ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from turnwire.protocols import anthropic
from turnwire.protocols.models import ModelRow, resolve
from turnwire.protocols.wire import TurnFailure

__all__ = ["ModelRoutes"]


class Catalog(Protocol):
    def rows(self) -> Sequence[ModelRow]: ...


class ModelRoutes:
    """`GET /v1/models` and `GET /v1/models/{id}`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def page(self, request: Request) -> Response:
        return Response(anthropic.models_page(self._catalog.rows()), media_type="application/json")

    async def one(self, request: Request) -> Response:
        wanted = request.path_params["model"]
        rows = self._catalog.rows()
        row, _ = resolve(wanted, rows, rows[0].id)
        if row is None:
            error = anthropic.error_reply(TurnFailure("not_found", f"The model '{wanted}' is not served here."))
            return Response(error.body, error.status, dict(error.headers), error.media_type)
        return Response(anthropic.model_object(row, wanted), media_type="application/json")
