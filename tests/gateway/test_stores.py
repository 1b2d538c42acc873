"""Every store passes the same tests; SQLite's survive a kill in the middle of writes; Redis is a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from turnwire.gateway.stores.store import MemoryStore, Retention, SQLiteStore, Store, StoreError, open_store

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


async def test_old_values_are_gone(opened: Opener) -> None:
    store = await opened(age=1)
    await store.put("s", "k", b"v")
    assert await store.get("s", "k") == b"v"
    await asyncio.sleep(1.2)
    assert await store.get("s", "k") is None


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
