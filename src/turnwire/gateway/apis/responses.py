"""The Responses API on the gateway: turns that can be stored, continued, polled, followed, cancelled and compacted.

Promise: a stored response is there for the client's next request however fast it comes; a background turn needs no
client; an overflow reaches Codex as the one event that makes it compact.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Send

from turnwire.continuity import Verdict, responses_diagnostics
from turnwire.gateway.door.bodies import expand
from turnwire.gateway.stores.responses import LiveResponse, ResponseShelf
from turnwire.gateway.transports.http import (
    Api,
    Host,
    TurnEndpoint,
    mint,
    read_body,
    reply,
    response_headers,
    run_watched,
    tenant_of,
)
from turnwire.gateway.turns.passage import Passage
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols import responses
from turnwire.protocols.responses import Echo, StreamEncoder, response_id, with_ids
from turnwire.protocols.wire import Encoder, ErrorReply, Inbound, TurnFailure

__all__ = ["RESPONSES", "ResponseRoutes", "post_failure"]

MAX_BACKGROUND = 64
"""Background turns of one tenant: nobody waits for them at a door, so they are counted."""

RESPONSES = Api(
    name="responses",
    decode=responses.decode,
    stream_encoder=responses.stream_encoder,
    document_encoder=responses.document_encoder,
    error_reply=lambda failure: responses.error_reply(post_failure(failure)),
    # Letters and digits only: some clients strip everything else from an id.
    call_prefix="call",
)


def post_failure(failure: TurnFailure) -> TurnFailure:
    """On POST, what is not found is the model: a 400 with its own code, which Codex does not send again and again."""
    if failure.kind == "not_found" and failure.code is None:
        return TurnFailure("not_found", failure.message, param="model", code="model_not_found")
    return failure


class ResponsesEndpoint(TurnEndpoint):
    """`POST /v1/responses`."""

    def __init__(self, host: Host, shelf: ResponseShelf, etag: Callable[[], str | None]) -> None:
        super().__init__(host, RESPONSES)
        self._shelf = shelf
        self._etag = etag

    async def decode(self, body: bytes, headers: Mapping[str, str], tenant: str) -> Inbound[Echo]:
        limits = self._host.limits.wire
        request = responses.read_request(body, limits)
        stored = await self._shelf.resolve(tenant, request)
        return responses.decode_request(request, headers, stored=stored, limits=limits)

    def encoder(self, passage: Passage) -> Encoder:
        make = responses.stream_encoder if passage.inbound.stream else responses.document_encoder
        encoder = make(self.facts(passage), passage.inbound.echo, now=time.time)
        live = self._shelf.live(passage.tenant, response_id(passage.turn_id))
        if live is not None:
            live.writer = encoder
        return encoder

    def diagnostics(self, verdict: Verdict) -> Mapping[str, object] | None:
        return responses_diagnostics(verdict)

    def headers(self, passage: Passage) -> list[tuple[bytes, bytes]]:
        # Our counts hold every replayed thought, so Codex need not guess at them from the size of the seals.
        headers = [*response_headers(passage), (b"x-reasoning-included", b"true")]
        etag = self._etag()
        return [*headers, (b"x-models-etag", etag.encode())] if etag is not None else headers

    async def answer(self, passage: Passage, receive: Receive, send: Send) -> None:
        echo = passage.inbound.echo
        assert isinstance(echo, Echo)
        try:
            if echo.background:
                await self._answer_later(passage, echo, receive, send)
            elif echo.store:
                live = self._begin(passage, echo)
                try:
                    await super().answer(passage, receive, send)
                    live.kept = True
                finally:
                    await self._shelf.end(live)
            else:
                await super().answer(passage, receive, send)
        except TurnFailure as failure:
            self._host.failed(self._api.name, failure)
            error = responses.refusal(post_failure(failure), passage.inbound, self.facts(passage))
            await reply(send, error.status, error.body, media_type=error.media_type, headers=error.headers)

    def _begin(self, passage: Passage, echo: Echo) -> LiveResponse:
        items = with_ids(echo.input_items, passage.turn_id)
        live = LiveResponse(response_id(passage.turn_id), passage.tenant, int(time.time()), items)
        live.previous = echo.previous_response_id
        self._shelf.begin(live)
        return live

    # ------------------------------------------------------------------------------------------------- background

    async def _answer_later(self, passage: Passage, echo: Echo, receive: Receive, send: Send) -> None:
        if not echo.store:
            raise TurnFailure("invalid_request", "background: needs `store` to be true", param="background")
        if self._shelf.running(passage.tenant) >= MAX_BACKGROUND:
            raise TurnFailure(
                "rate_limited", f"At most {MAX_BACKGROUND} responses may run in the background at a time."
            )
        live = self._begin(passage, echo)
        live.kept = True
        encoder = responses.stream_encoder(self.facts(passage), echo, now=time.time)
        assert isinstance(encoder, StreamEncoder)
        live.writer = encoder
        first = live.stored()
        assert first is not None
        await self._shelf.put(passage.tenant, first)
        self._shelf.keep_stream(live)
        turn = Turn(passage, encoder, mint=lambda: mint(self._api.call_prefix))
        live.task = asyncio.create_task(self._run_later(turn, encoder, live))
        if not passage.inbound.stream:
            await reply(send, 200, first.document, headers=_text_headers(self.headers(passage)))
            return
        await _follow(live, -1, self.headers(passage))({"type": "http"}, receive, send)

    async def _run_later(self, turn: Turn, encoder: StreamEncoder, live: LiveResponse) -> None:
        try:
            await run_watched(self._host, turn, live, None)
        except TurnFailure as failure:
            if not turn.opened:
                await live.write(encoder.start(turn.usage))
            await live.write(encoder.fail(post_failure(failure)))
        except asyncio.CancelledError:
            encoder.cancel()
        except Exception:
            await live.write(encoder.fail(TurnFailure("internal", "The gateway failed to run this response.")))
            raise
        finally:
            await self._shelf.end(live)


def _text_headers(headers: list[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def _follow(live: LiveResponse, after: int, headers: list[tuple[bytes, bytes]]) -> StreamingResponse:
    """The events of a background response as they come; leaving does not end the turn."""
    kept = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    kept["cache-control"] = "no-cache"
    return StreamingResponse(live.frames(after), headers=kept, media_type="text/event-stream")


class CompactEndpoint(ResponsesEndpoint):
    """`POST /v1/responses/compact`: the conversation summed up by its own model, as items to go on with."""

    async def decode(self, body: bytes, headers: Mapping[str, str], tenant: str) -> Inbound[Echo]:
        inbound = await super().decode(body, headers, tenant)
        echo = inbound.echo
        assert isinstance(echo, Echo)
        if not echo.compaction:
            inbound.conversation = responses.summary_request(inbound.conversation)
        inbound.stream, echo.store, echo.background = False, False, False
        return inbound

    def encoder(self, passage: Passage) -> Encoder:
        return responses.CompactedEncoder(self.facts(passage), passage.inbound.echo)


class ResponseRoutes:
    """Every path under `/v1/responses`. `turns` are the ones that run a turn; `routes` all the others."""

    def __init__(self, host: Host, shelf: ResponseShelf, *, etag: Callable[[], str | None]) -> None:
        self.shelf = shelf
        self._host = host
        endpoint = ResponsesEndpoint(host, shelf, etag)
        self._endpoint = endpoint
        self.turns: dict[str, ASGIApp] = {
            "/v1/responses": endpoint,
            "/v1/responses/compact": CompactEndpoint(host, shelf, etag),
        }

    def routes(self) -> list[BaseRoute]:
        one = "/v1/responses/{response_id}"
        return [
            Route("/v1/responses", self.upgrade, methods=["GET"]),
            Route("/v1/responses/input_tokens", self._safely(self.input_tokens), methods=["POST"]),
            Route(one, self._safely(self.get), methods=["GET"]),
            Route(one, self._safely(self.delete), methods=["DELETE"]),
            Route(one + "/input_items", self._safely(self.input_items), methods=["GET"]),
            Route(one + "/cancel", self._safely(self.cancel), methods=["POST"]),
        ]

    async def close(self) -> None:
        """Call off what runs in the background."""
        await self.shelf.stop()

    def _safely(
        self, handler: Callable[[Request, str], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            try:
                return await handler(request, tenant_of(request.scope))
            except TurnFailure as failure:
                self._host.failed("responses", failure)
                return _error(responses.error_reply(failure))

        return run

    async def upgrade(self, request: Request) -> Response:
        """A GET here is an upgrade that was not taken up: 426 sends Codex to HTTP for the whole conversation."""
        failure = TurnFailure("invalid_request", "Use POST: this gateway answers /v1/responses over HTTP.")
        body = responses.error_reply(failure).body
        return Response(body, 426, {"connection": "close"}, "application/json")

    async def get(self, request: Request, tenant: str) -> Response:
        wanted = request.path_params["response_id"]
        if request.query_params.get("stream") == "true":
            live = self.shelf.stream(tenant, wanted)
            if live is None or not live.readable:
                raise TurnFailure("invalid_request", "stream: only a recent background response can be streamed again")
            return _follow(live, _whole(request, "starting_after", -1), [])
        return Response((await self._stored(tenant, wanted)).document, media_type="application/json")

    async def delete(self, request: Request, tenant: str) -> Response:
        wanted = request.path_params["response_id"]
        if not await self.shelf.delete(tenant, wanted):
            raise _missing(wanted)
        return _json({"id": wanted, "object": "response", "deleted": True})

    async def input_items(self, request: Request, tenant: str) -> Response:
        stored = await self._stored(tenant, request.path_params["response_id"])
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise TurnFailure("invalid_request", "order: must be asc or desc", param="order")
        limit = _whole(request, "limit", 20)
        if not 1 <= limit <= 100:
            raise TurnFailure("invalid_request", "limit: must be between 1 and 100", param="limit")
        after = request.query_params.get("after")
        return _json(responses.item_page(stored.input_items, after=after, limit=limit, order=order))

    async def cancel(self, request: Request, tenant: str) -> Response:
        wanted = request.path_params["response_id"]
        live = self.shelf.live(tenant, wanted)
        if live is not None and live.task is not None:
            live.task.cancel()
            await live.done.wait()
        stored = await self._stored(tenant, wanted)
        if live is None and self.shelf.stream(tenant, wanted) is None:
            raise TurnFailure("invalid_request", "Only a background response can be cancelled.")
        return Response(stored.document, media_type="application/json")

    async def input_tokens(self, request: Request, tenant: str) -> Response:
        """How many tokens a request would read: the very prompt that its turn would get, counted."""
        body = await read_body(request.receive, self._host.max_body)
        body = expand(body, request.headers.get("content-encoding", ""), self._host.max_body)
        inbound = await self._endpoint.decode(body, dict(request.headers), tenant)
        runtime = self._host.runtime_for(inbound.conversation.model)
        prompt = await runtime.build(inbound.conversation, tenant)
        return _json({"object": "response.input_tokens", "input_tokens": len(prompt.ids)})

    async def _stored(self, tenant: str, wanted: str) -> responses.StoredResponse:
        stored = await self.shelf.get(tenant, wanted)
        if stored is None:
            raise _missing(wanted)
        return stored


def _missing(wanted: str) -> TurnFailure:
    return TurnFailure("not_found", f"Response with id '{wanted}' not found.", param="id")


def _whole(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    with contextlib.suppress(ValueError):
        return int(value[:12])
    raise TurnFailure("invalid_request", f"{name}: must be a whole number", param=name)


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


def _error(error: ErrorReply) -> Response:
    return Response(error.body, error.status, dict(error.headers), error.media_type)
