"""Moments at which things fail: a disk that is full, a client that half-closes, leaves, or speaks HTTP/1.0."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from turnwire.gateway.door.keys import hash_key
from turnwire.gateway.stores.store import SQLiteStore

from .conftest import Serve

LONG = {"text": "Hm.\n</think>\n\n" + "word " * 400, "delay_ms": 5}


def asked(**more: Any) -> dict[str, Any]:
    return {"input": "Hi.", "store": True} | more


async def raw(base: str, request: bytes, *, half: bool) -> bytes:
    """What comes back to bytes that are sent as they are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    writer.write(request)
    if half:
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


def post(body: dict[str, Any], version: str) -> bytes:
    data = json.dumps(body).encode()
    lines = (
        f"POST /v1/messages HTTP/{version}",
        "Host: 127.0.0.1",
        "Connection: close",
        f"Content-Length: {len(data)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + data


BODY = {"max_tokens": 20, "messages": [{"role": "user", "content": "Hi."}]}


async def test_a_half_closed_client_counts_as_one_that_left(serve: Serve) -> None:
    client = await serve(LONG)
    assert await raw(client.base, post(BODY, "1.1"), half=True) == b""
    async with asyncio.timeout(10):
        while not client.gateway.journal.last(1):
            await asyncio.sleep(0.01)
    (summary,) = client.gateway.journal.last(1)
    assert summary.finish == "gone"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_of_http_1_0_gets_no_chunks(serve: Serve, stream: bool) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHello there."})
    answer = await raw(client.base, post(BODY | {"stream": stream}, "1.0"), half=False)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"chunked" not in head.lower()
    assert body.startswith(b"event: " if stream else b"{")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disk_that_is_full_is_told_and_not_hidden(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    client = await serve(
        {"text": "Hm.\n</think>\n\n" + "".join(f"Hello {n}. " for n in range(2000))},
        store=f"sqlite:{tmp_path / 'store.db'}",
    )
    store = client.gateway.store
    assert isinstance(store, SQLiteStore)
    status, kept = await client.post("/v1/responses", asked())
    assert (status, kept["status"]) == (200, "completed")
    # SQLite's own way to have no more room.
    await store._run(lambda: store._database.execute("PRAGMA max_page_count = 1").fetchall())
    for _ in range(3):
        if stream:
            events = await client.stream("/v1/responses", asked(stream=True))
            assert events[-1][1] == "response.failed"
        else:
            status, answer = await client.post("/v1/responses", asked())
            assert (status, "store" in answer["error"]["message"]) == (503, True), answer
    async with client.session.get(client.base + "/ready") as ready:
        assert ready.status == 503
    assert not [record for record in caplog.records if record.exc_info]
    await store._run(lambda: store._database.execute("PRAGMA max_page_count = 100000").fetchall())
    status, kept = await client.post("/v1/responses", asked())
    assert (status, kept["status"]) == (200, "completed")


async def test_background_responses_count_against_their_key(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "a"\nhash = "{hash_key("secret")}"\nconcurrency = 1\n')
    client = await serve(LONG, keys=str(keys))
    statuses = []
    for _ in range(3):
        status, _ = await client.post("/v1/responses", asked(background=True), authorization="Bearer secret")
        statuses.append(status)
    assert sorted(statuses) == [200, 429, 429]


async def test_what_a_client_that_left_was_sent_is_counted(serve: Serve) -> None:
    client = await serve(LONG)
    body = BODY | {"stream": True, "max_tokens": 400}
    async with client.session.post(client.base + "/v1/messages", json=body) as answer:
        for _ in range(40):
            await answer.content.readline()
        answer.close()
    async with asyncio.timeout(10):
        while len(client.gateway.heartbeat):
            await asyncio.sleep(0.01)
    (summary,) = client.gateway.journal.last(1)
    assert (summary.finish, summary.output_tokens > 5) == ("gone", True)


async def test_a_recorded_request_with_half_a_character_is_answered(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "records"
    client = await serve({"text": "Hm.\n</think>\n\nHello."}, record=str(folder))
    body = json.dumps(BODY | {"messages": [{"role": "user", "content": "half \ud800"}]}, indent=1).encode()
    status, answer = await client.post("/v1/messages", body)
    assert (status, answer["stop_reason"]) == (200, "end_turn")
    (line,) = (folder / "turns.jsonl").read_text().splitlines()
    assert json.loads(line)["request"]["messages"][0]["content"] == "half \ud800"
    # A folder that cannot be written any more costs a line in the log, not the answer.
    (folder / "turns.jsonl").unlink()
    (folder / "turns.jsonl").mkdir()
    status, answer = await client.post("/v1/messages", body)
    assert (status, answer["stop_reason"]) == (200, "end_turn")
    assert "was not recorded" in caplog.text
