"""What cannot fit is refused before it is rendered; a large body is decoded beside the event loop, to the same end."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from turnwire.protocols import chat

from .conftest import Serve


async def test_what_cannot_fit_is_refused_without_a_prompt(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, window=512)
    runtime = client.gateway.runtimes[0]
    built: list[Any] = []
    build = runtime.builder.build
    monkeypatch.setattr(runtime.builder, "build", lambda *given: built.append(given) or build(*given))
    body = {"model": "test-model", "messages": [{"role": "user", "content": "many words " * 20_000}]}
    status, error = await client.post("/v1/chat/completions", body)
    assert status == 400
    assert error["error"]["code"] == "context_length_exceeded"
    assert not built
    body["messages"] = [{"role": "user", "content": "few words"}]
    assert (await client.post("/v1/chat/completions", body))[0] == 200
    assert len(built) == 1


async def test_a_large_body_is_decoded_beside_the_loop(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, window=131072)
    where: list[bool] = []
    decode = chat.decode

    def seen(*given: Any, **named: Any) -> Any:
        where.append(threading.current_thread() is threading.main_thread())
        return decode(*given, **named)

    monkeypatch.setattr("turnwire.protocols.chat.decode", seen)
    for padding, on_the_loop in ((10, True), (2_000_000, False)):
        text = json.dumps({"model": "test-model", "messages": [{"role": "user", "content": "Hi" + " " * padding}]})
        async with asyncio.timeout(60):
            status, _ = await client.post("/v1/chat/completions", text.encode())
        assert status in (200, 400)
        assert where.pop() is on_the_loop
