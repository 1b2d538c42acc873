"""Workers that come and go while a gateway serves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from turnwire.engines.pool.pool import WorkerPool
from turnwire.engines.spec import SpecError
from turnwire.gateway.server import GatewayServer
from turnwire.gateway.settings import Settings, SettingsError
from turnwire.gateway.setup.addresses import each_address
from turnwire.gateway.setup.worker_list import apply_engines

from .conftest import Client, Serve


def script(folder: Path, name: str) -> str:
    path = folder / f"{name}.jsonl"
    path.write_text(json.dumps({"text": f"I am {name}."}) + "\n")
    return f"scripted:{path}"


async def ask(client: Client, method: str, path: str, **query: str) -> tuple[int, Any]:
    async with client.session.request(method, client.base + path, params=query) as answer:
        return answer.status, await answer.json(content_type=None)


async def names(client: Client) -> list[tuple[str, str]]:
    _, rows = await ask(client, "GET", "/admin/workers")
    return [(row["worker"], row["state"]) for row in rows]


async def test_a_worker_is_added_drained_and_removed(serve: Serve, tmp_path: Path) -> None:
    one, two = script(tmp_path, "one"), script(tmp_path, "two")
    client = await serve(engine=one)
    assert [name for name, _ in await names(client)] == [one]
    status, said = await ask(client, "DELETE", "/admin/workers", worker=one)
    assert (status, "last worker" in said["error"]["message"]) == (400, True)
    status, said = await ask(client, "POST", "/admin/workers", engine=two)
    assert (status, said) == (200, {"model": "test-model", "worker": two, "state": "added"})
    status, _ = await ask(client, "POST", "/admin/workers", engine=two)
    assert status == 400
    assert (await ask(client, "POST", "/admin/workers/drain", worker="w1"))[0] == 200
    assert dict(await names(client))[one] == "draining"
    body = {"model": "test-model", "messages": [{"role": "user", "content": "Who?"}]}
    _, answer = await client.post("/v1/chat/completions", body)
    assert "I am two." in answer["choices"][0]["message"]["content"]
    assert (await ask(client, "DELETE", "/admin/workers", worker=one, patience="1"))[0] == 200
    for _ in range(100):
        if len(await names(client)) == 1:
            break
        await asyncio.sleep(0.01)
    assert [name for name, _ in await names(client)] == [two]


@pytest.mark.parametrize(
    ("method", "query", "says"),
    [
        ("POST", {}, "engine: this parameter is required"),
        ("POST", {"engine": "nonsense:x"}, "nonsense"),
        ("POST", {"engine": "scripted:/nowhere.jsonl"}, "nowhere"),
        ("POST", {"engine": "vllm:http://127.0.0.1:9"}, "another kind"),
        ("DELETE", {"worker": "w9"}, "has no worker 'w9'"),
        ("DELETE", {"worker": "w1", "model": "nope"}, "nope"),
    ],
)
async def test_what_cannot_be_done_is_told_and_changes_nothing(
    serve: Serve, tmp_path: Path, method: str, query: dict[str, str], says: str
) -> None:
    one = script(tmp_path, "one")
    client = await serve(engine=one)
    status, said = await ask(client, method, "/admin/workers", **query)
    assert status in (400, 404), said
    assert says in said["error"]["message"]
    assert [name for name, _ in await names(client)] == [one]


async def test_the_file_is_followed(serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two = script(tmp_path, "one"), script(tmp_path, "two")
    client = await serve(engine=one)
    (runtime,) = client.gateway.runtimes
    pool = runtime.engine
    assert isinstance(pool, WorkerPool)
    await apply_engines([runtime], Settings(engine=f"{one},{two}", model="test-model"))
    assert [worker.name for worker in pool.workers] == [one, two]
    await apply_engines([runtime], Settings(engine=two, model="test-model"))
    assert [worker.name for worker in pool.workers] == [two]
    await apply_engines([runtime], Settings(engine="scripted:/nowhere.jsonl", model="test-model"))
    assert [worker.name for worker in pool.workers] == [two]
    assert "was not added" in caplog.text

    def broken() -> Settings:
        raise SettingsError("t.toml:3: unknown setting 'x'.")

    await GatewayServer(client.gateway, lambda: None).apply_file(broken)
    assert "t.toml:3" in caplog.text


async def test_readiness_of_one_model(serve: Serve, tmp_path: Path) -> None:
    client = await serve(engine=script(tmp_path, "one"))
    assert (await ask(client, "GET", "/ready", model="test-model")) == (200, {"ready": True})
    assert (await ask(client, "GET", "/ready", model="nope"))[0] == 404


async def test_a_name_is_every_address_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(host: str, port: int, **_: object) -> list[Any]:
        if host != "engines.svc":
            raise OSError(8, "not known")
        return [(2, 1, 6, "", (address, port)) for address in ("10.0.0.2", "10.0.0.1", "10.0.0.1", "fd00::1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found, raising=False)
    assert await each_address(("vllm:dns+http://engines.svc:8000", "vllm:http://other:1")) == (
        "vllm:http://10.0.0.1:8000",
        "vllm:http://10.0.0.2:8000",
        "vllm:http://[fd00::1]:8000",
        "vllm:http://other:1",
    )
    with pytest.raises(SpecError, match="nowhere does not resolve"):
        await each_address(("dns+http://nowhere:1",))
    with pytest.raises(SpecError, match="a certificate is for a name"):
        await each_address(("vllm:dns+https://engines.svc",))
