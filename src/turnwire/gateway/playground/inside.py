"""The gateway as an endpoint of an agent that runs inside it.

Promise: requests pass the same door, admission and turn as a client's, with the key of whoever asked; nothing goes over
the network. Leaving a stream ends its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

from turnwire.agent import Endpoint, EndpointError
from turnwire.agent.frames import FrameReader
from turnwire.unreadable import UNREADABLE

__all__ = ["InsideEndpoint"]

_WAITING = 256
"""Pieces of an answer that may wait for the browser."""


class InsideEndpoint(Endpoint):
    """An `Endpoint` whose server is an application of this process."""

    def __init__(self, app: ASGIApp, host: str, headers: Mapping[str, str]) -> None:
        super().__init__("http://inside")
        self._app = app
        self._head = [(b"host", host.encode("latin-1")), (b"content-type", b"application/json")]
        self._head += [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """A whole answer: lists of models, embeddings, completions that do not stream."""
        sent = b"" if body is None else msgspec.json.encode(body)
        data = b"".join([part async for part in self._exchange(method, f"/v1{path}", sent, {})])
        answer: dict[str, Any] = msgspec.json.decode(data)
        return answer

    async def stream(
        self, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[str, Any], None]:
        """A chat completion's events as they arrive."""
        reader = FrameReader()
        data = msgspec.json.encode({**body, "stream": True})
        async for part in self._exchange("POST", "/v1/chat/completions", data, headers):
            for event in reader.feed(part):
                yield event

    async def _exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """The body of an answer, as it comes; EndpointError where it is a refusal."""
        extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [*self._head, *extra],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
            "state": {},
        }
        answer: asyncio.Queue[Message | None] = asyncio.Queue(_WAITING)
        gone = asyncio.Event()
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            try:
                await self._app(scope, receive, answer.put)
            finally:
                await answer.put(None)

        task = asyncio.create_task(run())
        status, refusal = 200, b""
        try:
            while (message := await answer.get()) is not None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                elif status != 200:
                    refusal += message.get("body", b"")
                elif data := message.get("body", b""):
                    yield data
            if status != 200:
                raise EndpointError(_told(refusal), status)
        finally:
            gone.set()
            while not task.done():
                # What is still written has no reader any more.
                while not answer.empty():
                    answer.get_nowait()
                await asyncio.wait({task}, timeout=0.05)


def _told(refusal: bytes) -> str:
    try:
        return str(msgspec.json.decode(refusal)["error"]["message"])
    except (*UNREADABLE, KeyError, TypeError):
        return "The gateway refused the request."
