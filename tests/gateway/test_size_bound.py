"""What cannot fit is refused before it is rendered; a large body is decoded in another process, to the same end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from turnwire.protocols import chat

from .conftest import Serve


async def test_what_cannot_fit_is_refused_without_a_prompt(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, window=512)
    runtime = client.gateway.runtimes[0]
    built: list[Any] = []
    begin = runtime.builder.begin
    monkeypatch.setattr(runtime.builder, "begin", lambda *given, **named: built.append(given) or begin(*given, **named))
    body = {"model": "test-model", "messages": [{"role": "user", "content": "many words " * 20_000}]}
    status, error = await client.post("/v1/chat/completions", body)
    assert status == 400
    assert error["error"]["code"] == "context_length_exceeded"
    assert not built
    body["messages"] = [{"role": "user", "content": "few words"}]
    assert (await client.post("/v1/chat/completions", body))[0] == 200
    assert len(built) == 1


async def test_a_large_body_is_decoded_in_another_process(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, window=131072)
    here: list[bytes] = []
    decode = chat.decode

    def seen(body: bytes, *given: Any, **named: Any) -> Any:
        here.append(body)
        return decode(body, *given, **named)

    monkeypatch.setattr("turnwire.protocols.chat.decode", seen)
    for padding, decoded in ((10, 1), (2_000_000, 0)):
        text = json.dumps({"model": "test-model", "messages": [{"role": "user", "content": "Hi" + " " * padding}]})
        here.clear()
        async with asyncio.timeout(60):
            status, _ = await client.post("/v1/chat/completions", text.encode())
        assert status in (200, 400)
        assert len(here) == decoded
