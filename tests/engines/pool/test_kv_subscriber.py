"""KV events over real sockets: a publisher as vLLM's and SGLang's are, and a pool that routes by what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zmq
import zmq.asyncio

from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineInfo,
    GenerateRequest,
    Generation,
    Hints,
    Receiver,
)
from turnwire.engines.kv_source import KVSource, kv_source
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_index import KVIndex
from turnwire.engines.pool.kv_subscriber import KVSubscriber
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.turns import Conversation, Sampling

from .cache_model import PublishingCache


class Publisher:
    """Publishes a cache's messages, and replays the last `kept` of them."""

    def __init__(self, cache: PublishingCache, *, kept: int = 1000, ports: tuple[int, int] = (0, 0)) -> None:
        self.cache = cache
        self.kept = kept
        self.sent = 0
        self.replays = 0
        self._context = zmq.asyncio.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._pub = self._context.socket(zmq.PUB)
        self._router = self._context.socket(zmq.ROUTER)
        self.ports = tuple(
            socket.bind_to_random_port("tcp://127.0.0.1") if not port else self._bind(socket, port)
            for socket, port in zip((self._pub, self._router), ports, strict=True)
        )
        self._task = asyncio.ensure_future(self._replay())

    def _bind(self, socket: Any, port: int) -> int:
        socket.bind(f"tcp://127.0.0.1:{port}")
        return port

    @property
    def source(self) -> KVSource:
        events, replay = (f"tcp://127.0.0.1:{port}" for port in self.ports)
        return KVSource(endpoint=events, replay=replay, topic="kv")

    async def publish(self, *, lose: bool = False) -> None:
        """Send what the cache has published since."""
        for number in range(self.sent, len(self.cache.messages)):
            if not lose:
                await self._pub.send_multipart([b"kv", number.to_bytes(8, "big"), self.cache.messages[number]])
        self.sent = len(self.cache.messages)

    async def _replay(self) -> None:
        while True:
            who, empty, start = await self._router.recv_multipart()
            assert empty == b""
            self.replays += 1
            for number in range(max(int.from_bytes(start, "big"), self.sent - self.kept), self.sent):
                message = self.cache.messages[number]
                await self._router.send_multipart([who, b"", b"kv", number.to_bytes(8, "big"), message])
            await self._router.send_multipart([who, b"", b"", b"\xff" * 8, b""])

    def close(self) -> None:
        self._task.cancel()
        self._context.destroy(linger=0)


@asynccontextmanager
async def listening(publisher: Publisher) -> AsyncIterator[tuple[KVSubscriber, KVIndex]]:
    index = KVIndex()
    subscriber = KVSubscriber(publisher.source, index, "x")
    assert subscriber.open()
    try:
        yield subscriber, index
    finally:
        await subscriber.close()


async def soon(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def tokens(index: KVIndex, ids: list[int]) -> int:
    held = index.overlap(PromptBlocks(ids, None)).get("x")
    return held.tokens if held is not None else 0


async def test_the_past_is_replayed_and_the_present_follows() -> None:
    publisher = Publisher(PublishingCache(4, 100))
    publisher.cache.read(list(range(9)))
    publisher.sent = 1
    async with listening(publisher) as (subscriber, index):
        await soon(lambda: subscriber.complete)
        assert tokens(index, list(range(9))) == 8
        publisher.cache.read(list(range(30)))
        await publisher.publish()
        await soon(lambda: tokens(index, list(range(30))) == 28)
        publisher.cache.clear()
        await publisher.publish()
        await soon(lambda: tokens(index, list(range(30))) == 0)
    publisher.close()


async def test_what_was_lost_on_the_way_is_asked_for() -> None:
    publisher = Publisher(PublishingCache(4, 100))
    async with listening(publisher) as (subscriber, index):
        await soon(lambda: subscriber.complete)
        for length in (9, 17):
            publisher.cache.read(list(range(length)))
            await publisher.publish(lose=True)
        publisher.cache.read(list(range(25)))
        asked = publisher.replays

        async def until_it_comes() -> None:
            while publisher.replays == asked:
                publisher.cache.read([99, *range(len(publisher.cache.messages) * 4)])
                await publisher.publish()
                await asyncio.sleep(0.02)

        async with asyncio.timeout(10):
            await until_it_comes()
        await soon(lambda: tokens(index, list(range(25))) == 24)
        await soon(lambda: subscriber.complete)
    publisher.close()


async def test_an_engine_that_dies_is_forgotten_and_a_new_one_believed() -> None:
    first = Publisher(PublishingCache(4, 100))
    first.cache.read(list(range(9)))
    first.sent = 1
    async with listening(first) as (subscriber, index):
        await soon(lambda: tokens(index, list(range(9))) == 8)
        first.close()
        await soon(lambda: tokens(index, list(range(9))) == 0)
        assert not subscriber.complete
        second = Publisher(PublishingCache(4, 100), ports=first.ports)
        second.cache.read([5] * 9)
        second.sent = 1

        async def until_it_comes() -> None:
            while not tokens(index, [5] * 9):
                second.cache.read([6, *range(len(second.cache.messages) * 4)])
                await second.publish()
                await asyncio.sleep(0.02)

        async with asyncio.timeout(20):
            await until_it_comes()
        assert tokens(index, [5] * 9) == 8
        assert tokens(index, list(range(9))) == 0
        second.close()


async def test_what_cannot_be_read_is_nothing(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(PublishingCache(4, 100))
    publisher.cache.messages += [b"\x01", b"\x01"]
    publisher.sent = 2
    async with listening(publisher) as (subscriber, index):
        await soon(lambda: "cannot be read" in caplog.text)
        assert not subscriber.complete
        assert index.blocks("x") == 0
    publisher.close()


async def test_an_engine_that_connects_is_waited_for() -> None:
    """SGLang connects where its address is not a wildcard; then we bind."""
    context = zmq.asyncio.Context()
    context.setsockopt(zmq.LINGER, 0)
    probe = context.socket(zmq.PUB)
    port = probe.bind_to_random_port("tcp://127.0.0.1")
    probe.close()
    source = kv_source({"publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{port}", "topic": "kv"}, "127.0.0.1")
    assert source is not None
    assert source.connects
    index = KVIndex()
    subscriber = KVSubscriber(source, index, "x")
    await asyncio.sleep(0.05)
    assert subscriber.open()
    pub = context.socket(zmq.PUB)
    pub.connect(source.endpoint)
    cache = PublishingCache(4, 100)
    cache.read(list(range(9)))
    async with asyncio.timeout(10):
        while not tokens(index, list(range(9))):
            await pub.send_multipart([b"kv", (0).to_bytes(8, "big"), cache.messages[0]])
            await asyncio.sleep(0.02)
    await subscriber.close()
    context.destroy(linger=0)


@pytest.mark.parametrize(
    ("told", "source"),
    [
        (
            {"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558", "topic": "kv"},
            KVSource(endpoint="tcp://gpu-1:5558", replay="tcp://gpu-1:5559", topic="kv"),
        ),
        (
            {"publisher": "zmq", "endpoint": "tcp://10.0.0.9:5557"},
            KVSource(endpoint="tcp://10.0.0.9:5558", connects=True),
        ),
        ({"publisher": "zmq", "endpoint": "tcp://[::]:5557"}, KVSource(endpoint="tcp://gpu-1:5558")),
        ({"publisher": "null", "endpoint": "tcp://*:5557"}, None),
        ({"publisher": "zmq", "endpoint": "tcp://*:5557", "enable_kv_cache_events": False}, None),
        ({"publisher": "zmq", "endpoint": "ipc:///tmp/x"}, None),
        ({"publisher": "zmq"}, None),
    ],
)
def test_what_engines_say_of_their_source(told: dict[str, object], source: KVSource | None) -> None:
    assert kv_source(told, "gpu-1", rank=1) == source


class Told:
    """An engine that answers at once and publishes where its cache is told."""

    capabilities = Capabilities(yields="tokens")

    def __init__(self, source: KVSource) -> None:
        self._source = source
        self.prompts: list[list[int]] = []

    async def start(self) -> EngineInfo:
        return EngineInfo(name="told", kv_events=(self._source,))

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        self.prompts.append(list(request.prompt_ids))
        asyncio.get_running_loop().call_soon(receiver.done, Completion("stop", len(request.prompt_ids), 0))
        return Ended()

    async def health(self) -> bool:
        return True

    async def embed(self, inputs: object) -> list[list[float]]:
        raise AssertionError("no embeddings here")

    async def close(self) -> None:
        return


class Ended:
    def abort(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Waiting:
    """A receiver that waits for its end."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def tokens(self, batch: object) -> None: ...

    def events(self, batch: object) -> None: ...

    def done(self, completion: Completion) -> None:
        self.over.set()

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)


async def test_a_turn_goes_to_the_worker_that_says_it_holds_the_prompt() -> None:
    publishers = [Publisher(PublishingCache(16, 1000)) for _ in range(3)]
    engines = [Told(publisher.source) for publisher in publishers]
    workers = [Worker(engine, f"w{number}") for number, engine in enumerate(engines)]
    pool = WorkerPool(workers, None, PoolLimits())  # type: ignore[arg-type]
    await pool.start()
    prompt = list(range(700))
    publishers[2].cache.read(prompt)
    await soon(lambda: all(feed.complete for worker in workers for feed in worker._feeds))

    async def ask() -> None:
        waiting = Waiting()
        pool.submit(
            GenerateRequest(
                prompt_ids=[*prompt, 1, 2, 3],
                sampling=Sampling(),
                hints=Hints(request_id="r"),
                conversation=Conversation(model="m", messages=()),
            ),
            waiting,
        )
        await waiting.over.wait()

    async with asyncio.timeout(10):
        while not pool.router.index.overlap(PromptBlocks(prompt, None)).get("w2#0"):
            publishers[2].sent = 0
            await publishers[2].publish()
            await asyncio.sleep(0.02)
    await ask()
    assert [len(engine.prompts) for engine in engines] == [0, 0, 1]
    # It says that all is gone, whatever it was given before.
    publishers[2].cache.clear()
    publishers[1].cache.read(prompt)
    await publishers[2].publish()
    await publishers[1].publish()
    await soon(lambda: pool.router.index.blocks("w2#0") == 0 and pool.router.index.blocks("w1#0") > 0)
    await ask()
    assert [len(engine.prompts) for engine in engines] == [0, 1, 1]
    await pool.close()
    for publisher in publishers:
        publisher.close()
