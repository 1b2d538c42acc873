"""A proxy that spoils what it carries, so that each rule can be seen to fail."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import msgspec
from aiohttp import web


class Lie(msgspec.Struct, frozen=True, kw_only=True):
    """How an exchange is spoilt. `asked` changes a request's body, `frames` the events of a stream, `body` a document's
    text; `status` replaces the status of refusals; `late` keeps a stream until it is whole; `stubborn` reads on when
    the client has left."""

    asked: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    frames: Callable[[list[str]], list[str]] | None = None
    body: Callable[[str], str] | None = None
    status: int | None = None
    late: bool = False
    stubborn: bool = False


@asynccontextmanager
async def lying(upstream: str, lie: Lie) -> AsyncIterator[str]:
    """The address of a proxy in front of `upstream`."""
    async with aiohttp.ClientSession() as session:

        async def carry(request: web.Request) -> web.StreamResponse:
            return await _carried(session, upstream, lie, request)

        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", carry)
        runner = web.AppRunner(app, handler_cancellation=not lie.stubborn)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def _carried(session: aiohttp.ClientSession, upstream: str, lie: Lie, request: web.Request) -> web.StreamResponse:
    sent = await request.read()
    if lie.asked is not None and sent:
        with suppress(json.JSONDecodeError):
            sent = json.dumps(lie.asked(json.loads(sent))).encode()
    headers = {"content-type": "application/json"} if sent else {}
    async with session.request(request.method, upstream + request.path, data=sent or None, headers=headers) as answer:
        if answer.content_type != "text/event-stream":
            text = await answer.text()
            status = lie.status if lie.status is not None and answer.status >= 400 else answer.status
            said = lie.body(text) if lie.body is not None else text
            return web.Response(text=said, status=status, content_type=answer.content_type)
        made = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await made.prepare(request)
        kept = b""
        async for piece in answer.content.iter_any():
            if lie.frames is not None or lie.late:
                kept += piece
                continue
            try:
                await made.write(piece)
            except ConnectionError:
                if not lie.stubborn:
                    raise
        if kept:
            frames = [frame for frame in kept.decode().split("\n\n") if frame.strip()]
            changed = lie.frames(frames) if lie.frames is not None else frames
            await made.write("".join(frame + "\n\n" for frame in changed).encode())
        return made
