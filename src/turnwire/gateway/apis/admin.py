"""Routes for the operator: the last turns, for a console or a person.

Promise: only keys with the admin scope get here (the guard sees to it), and what they get holds no payloads.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnwire.gateway.openapi import openapi_document
from turnwire.gateway.telemetry.journal import Journal
from turnwire.protocols.chat import error_reply
from turnwire.protocols.wire import TurnFailure

__all__ = ["AdminRoutes"]

_MOST = 1000


class AdminRoutes:
    """`GET /admin/turns?limit=&session=&model=`, newest first, and `GET /openapi.json`. `live` counts running turns."""

    def __init__(self, journal: Journal, live: Callable[[], int]) -> None:
        self._journal = journal
        self._live = live

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/admin/turns", self.turns, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def turns(self, request: Request) -> Response:
        query = request.query_params
        limit = query.get("limit", "100")
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _MOST:
            failure = TurnFailure("invalid_request", f"limit: must be a whole number from 1 to {_MOST}", param="limit")
            error = error_reply(failure)
            return Response(error.body, error.status, media_type=error.media_type)
        found = self._journal.last(int(limit), session=query.get("session"), model=query.get("model"))
        body = {"live": self._live(), "turns": list(found)}
        return Response(msgspec.json.encode(body), media_type="application/json")

    async def openapi(self, request: Request) -> Response:
        return Response(openapi_document(), media_type="application/json")
