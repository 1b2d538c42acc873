"""Every store passes the same tests; SQLite's survive a kill in the middle of writes; Redis is a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import zstandard

from turnwire.gateway.stores import packed_responses, responses
from turnwire.gateway.stores.store import (
    MemoryStore,
    Retention,
    SQLiteStore,
    Store,
    StoreError,
    StoreUnavailable,
    open_store,
)
from turnwire.prompts.recall.seals import Sealer
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.responses import ResponseJson, StoredResponse

Opener = Callable[..., Awaitable[Store]]


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    stores: list[Store] = []
    url = request.getfixturevalue("redis_url") if request.param == "redis" else ""

    async def opener(**limits: float) -> Store:
        retention = Retention(**limits)  # type: ignore[arg-type]
        specs = {"memory": "memory", "sqlite": f"sqlite:{tmp_path}/store.db", "redis": url}
        store = open_store(specs[request.param], retention)
        stores.append(store)
        return store

    yield opener
    for store in stores:
        await store.close()


async def test_a_value_is_kept_replaced_and_deleted(opened: Opener) -> None:
    store = await opened()
    assert await store.get("a/responses", "x") is None
    await store.put("a/responses", "x", b"one")
    await store.put("a/responses", "x", bytes(range(256)))
    assert await store.get("a/responses", "x") == bytes(range(256))
    assert await store.delete("a/responses", "x") is True
    assert await store.delete("a/responses", "x") is False
    assert await store.get("a/responses", "x") is None


async def test_spaces_do_not_see_each_other(opened: Opener) -> None:
    store = await opened()
    await store.put("a", "b:c", b"1")
    await store.put("a:b", "c", b"2")
    assert (await store.get("a", "b:c"), await store.get("a:b", "c")) == (b"1", b"2")
    assert await store.get("b", "c") is None


async def test_what_is_too_large_is_refused(opened: Opener) -> None:
    store = await opened(entry_bytes=10)
    await store.put("s", "fits", b"x" * 10)
    with pytest.raises(StoreError, match="limit is 10"):
        await store.put("s", "large", b"x" * 11)
    assert await store.get("s", "large") is None


async def test_letters_reach_all_who_listen_and_nobody_else(opened: Opener) -> None:
    store = await opened()
    other = store if isinstance(store, MemoryStore) else await opened()
    await other.publish("a", b"before anybody listens")
    first, second, elsewhere = await store.listen("a"), await other.listen("a"), await other.listen("b")
    for number in range(3):
        await other.publish("a", b"%d" % number)
    for letters in (first, second):
        assert [await letters.get(10) for _ in range(3)] == [b"0", b"1", b"2"]
    first.close()
    await store.publish("b", b"last")
    assert await elsewhere.get(10) == b"last"
    assert await first.get(0) is None


async def test_old_values_are_gone(opened: Opener) -> None:
    store = await opened(age=1)
    await store.put("s", "k", b"v")
    assert await store.get("s", "k") == b"v"
    await asyncio.sleep(1.2)
    assert await store.get("s", "k") is None


async def test_a_lease_says_who_may_write(opened: Opener) -> None:
    store = await opened()
    assert await store.lease("s", "k", "one", 0.3) == "one"
    assert await store.lease("s", "k", "other", 60) == "one"
    assert await store.put("s", "k", b"1", holder="one") is True
    assert await store.put("s", "k", b"2", holder="other") is False
    assert await store.get("s", "k") == b"1"
    await asyncio.sleep(0.4)
    assert await store.put("s", "k", b"late", holder="one") is False
    assert await store.lease("s", "k", "other", 60) == "other"
    assert await store.put("s", "k", b"2", holder="other") is True
    assert await store.lease("s", "k", "third", 60, seize=True) == "third"
    assert await store.put("s", "k", b"3", holder="other") is False
    assert await store.get("s", "k") == b"2"
    assert await store.healthy()


async def test_memory_is_bounded_by_bytes() -> None:
    store = MemoryStore(Retention(memory_bytes=100))
    for number in range(10):
        await store.put("s", str(number), b"x" * 40)
    assert [number for number in range(10) if await store.get("s", str(number)) is not None] == [8, 9]
    await store.put("s", "large", b"x" * 400)
    assert await store.get("s", "large") is not None


async def test_what_redis_holds_says_nothing(redis_url: str) -> None:
    import redis

    client = redis.Redis.from_url(redis_url)
    client.flushall()
    store = open_store(redis_url, Retention(), Sealer([bytes(32)]))
    stranger = open_store(redis_url, Retention(), Sealer([b"k" * 32]))
    await store.put("tenant/responses", "resp_abc", b"a secret")
    (name,) = client.keys("*")
    assert b"tenant" not in name
    assert b"abc" not in name
    assert b"secret" not in client.get(name)
    assert await store.get("tenant/responses", "resp_abc") == b"a secret"
    assert await stranger.get("tenant/responses", "resp_abc") is None
    await store.close()
    await stranger.close()


async def test_a_store_that_is_gone_says_so(tmp_path: Path) -> None:
    store = open_store("redis://127.0.0.1:1/0", Retention())
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await store.get("s", "k")
    assert not await store.healthy()
    await store.close()
    path = tmp_path / "store.db"
    full = SQLiteStore(str(path), Retention())
    await full._run(lambda: full._database.execute("PRAGMA max_page_count = 8"))
    with pytest.raises(StoreUnavailable) as refused:
        await full.put("s", "k", b"x" * 1_000_000)
    assert "full" in refused.value.why
    assert await full.put("s", "small", b"x")
    # A small value may find room where a response finds none.
    assert not await full.healthy()
    await full._run(lambda: full._database.execute("PRAGMA max_page_count = 10000").fetchall())
    assert await full.healthy()
    await full.close()


async def test_the_oldest_leave_first(tmp_path: Path) -> None:
    now = iter(range(100_000))
    for store in (
        MemoryStore(Retention(entries=100), clock=lambda: float(next(now))),
        SQLiteStore(f"{tmp_path}/few.db", Retention(entries=100), clock=lambda: float(next(now))),
    ):
        for number in range(512):
            await store.put("s", str(number), b"v")
        kept = [number for number in range(512) if await store.get("s", str(number)) is not None]
        assert kept == list(range(412, 512))
        await store.close()


async def test_a_sqlite_store_outlives_its_process(tmp_path: Path) -> None:
    spec = f"sqlite:{tmp_path}/deep/er/store.db"
    first = open_store(spec, Retention())
    await first.put("s", "k", b"v")
    await first.close()
    second = open_store(spec, Retention())
    assert await second.get("s", "k") == b"v"
    await second.close()


WRITER = """
import asyncio, sys
from turnwire.gateway.stores.store import Retention, open_store
async def main():
    store = open_store(sys.argv[1], Retention())
    for number in range(10**9):
        await store.put("s", str(number), str(number).encode() * 5000)
        print(number, flush=True)
asyncio.run(main())
"""


async def test_a_kill_in_the_middle_of_writes_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    spec = f"sqlite:{tmp_path}/store.db"
    confirmed = -1
    for _ in range(3):
        writer = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
            [sys.executable, "-c", WRITER, spec], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(40)]
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().splitlines()
        writer.wait()
        confirmed = int((rest or lines)[-1])
        store = open_store(spec, Retention())
        for number in range(confirmed + 1):
            assert await store.get("s", str(number)) == str(number).encode() * 5000
        half = await store.get("s", str(confirmed + 1))
        assert half in (None, str(confirmed + 1).encode() * 5000)
        await store.close()
    assert confirmed >= 39


@pytest.mark.parametrize("spec", ["sqlite", "postgres://x", "sqlite:/proc/nope/store.db"])
def test_unusable_specs_are_explained(spec: str) -> None:
    with pytest.raises(StoreError, match=r"write memory|cannot be opened"):
        open_store(spec, Retention())


@pytest.mark.parametrize("large", [False, True])
async def test_a_large_response_is_packed_beside_the_event_loop(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def watched(work: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        return lambda data: (threads.add(threading.get_ident()), work(data))[1]

    monkeypatch.setattr(packed_responses, "_packed", watched(packed_responses._packed))
    monkeypatch.setattr(packed_responses, "_expanded", watched(packed_responses._expanded))
    kept = responses.ResponseStore(open_store("memory", Retention()))
    item = {"type": "message", "role": "user", "content": "word " * (300_000 if large else 300)}
    response = StoredResponse(id="resp_1", created=1, document=b'{"output":[]}', input_items=(item,))
    await kept.put("a", response)
    assert await kept.get("a", "resp_1") == response
    assert bool(threads - {threading.get_ident()}) is large


async def test_items_that_were_packed_for_an_earlier_response_are_not_packed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed: list[int] = []

    class Watched:
        def compress(self, data: bytes) -> bytes:
            packed.append(len(data))
            return zstandard.ZstdCompressor(level=1).compress(data)

    monkeypatch.setattr(packed_responses, "_PACK", Watched())
    parts = DecodedParts()
    kept = responses.ResponseStore(open_store("memory", Retention()), parts)
    items = [{"type": "message", "role": "user", "content": f"{number} " * 1000} for number in range(40)]

    def answered(name: str, items: list[dict[str, str]]) -> StoredResponse:
        return StoredResponse(id=name, created=1, document=b'{"output":[]}', input_items=tuple(items))

    first, second, third = answered("resp_1", items[:36]), answered("resp_2", items), answered("resp_3", items[1:])
    await kept.put("a", first)
    assert sum(packed) > 36 * 2000
    packed.clear()
    await kept.put("a", second)
    assert sum(packed) < 9 * 4000  # those that make no whole run
    packed.clear()
    await kept.put("a", third)
    assert sum(packed) > 36 * 2000
    equal = [dict(item) for item in items]
    await kept.put("b", answered("resp_4", equal))
    for tenant, response in (("a", first), ("a", second), ("a", third), ("b", answered("resp_4", items))):
        assert await kept.get(tenant, response.id) == response
    assert 0 < parts.size < 3 * 4 * sum(len(item["content"]) + 64 for item in items)


async def test_what_responses_repeat_of_their_requests_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []

    class Watched:
        def compress(self, data: bytes) -> bytes:
            packed.append(len(data))
            return zstandard.ZstdCompressor(level=1).compress(data)

    class Writer:
        response = ResponseJson(b"", (), b"")

    monkeypatch.setattr(packed_responses, "_PACK", Watched())
    kept = responses.ResponseStore(open_store("memory", Retention()))
    instructions, tools = b',"instructions":"%b"' % (b"Be kind. " * 2000), b',"tools":[%b1]' % (b"1," * 5000)
    own = b'{"output":[],"status":"completed"'
    for number, repeated in enumerate(
        [
            (b',"id":1', instructions, tools, b""),
            (b',"id":2', instructions, tools, b',"image":null'),
            (b"", tools, bytes(bytearray(instructions)), b""),
            (),
        ]
    ):
        writer = Writer()
        writer.response = ResponseJson(own, repeated, b"}")
        running = responses.RunningResponse(
            id=f"resp_{number}", tenant="a", created=1, input_items=({"type": "message"},), writer=writer
        )
        packed.clear()
        await kept.keep(running)
        # The third has a copy, which could be anything.
        assert (sum(packed) > 15_000) is (number in (0, 2))
        assert await kept.get("a", running.id) == running.stored()
        assert running.stored().status == "completed"


async def test_a_response_that_an_earlier_version_kept_in_one_piece_is_read() -> None:
    store = open_store("memory", Retention())
    item = {"type": "message", "role": "user", "content": "word"}
    response = StoredResponse(id="resp_1", created=1, document=b'{"output":[]}', input_items=(item,) * 40)
    whole = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(response))
    # Alone, or beside runs of items that are packed apart.
    run = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode([item] * 16))
    for kept, items in ((whole, 40), (msgspec.msgpack.encode([[run], whole]), 56)):
        await store.put("a/responses", "resp_1", kept)
        found = await responses.ResponseStore(store).get("a", "resp_1")
        assert found == msgspec.structs.replace(response, input_items=(item,) * items)


@pytest.mark.parametrize("sized", [True, False])
async def test_a_kept_response_is_bounded_by_what_it_becomes(sized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed, it says nothing of that, and may lack its size."""
    monkeypatch.setattr(packed_responses, "_MAX_ENTRY", 1_000_000 if sized else 1)
    store = open_store("memory", Retention())
    kept = responses.ResponseStore(store)
    item = {"type": "message", "role": "user", "content": "word " * (300_000 if sized else 3)}
    response = StoredResponse(id="resp_1", created=1, document=b'{"output":[]}', input_items=(item,))
    with pytest.raises(StoreError):
        await kept.put("a", response)
    packer = zstandard.ZstdCompressor(write_content_size=sized)
    await store.put("a/responses", "resp_1", packer.compress(msgspec.msgpack.encode(response)))
    with pytest.raises(StoreError):
        await kept.get("a", "resp_1")
