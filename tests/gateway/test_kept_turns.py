"""Summaries of turns outlive the process, in SQLite and in a real Redis, bounded, for all gateways of a store."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.gateway.conftest import Client, Serve, running
from turnwire.gateway.settings import Settings
from turnwire.gateway.stores.journal import ENTRY_OVERHEAD, JournalEntry, JournalStore, SQLiteJournal, UnknownPlace
from turnwire.gateway.stores.journal_redis import RedisJournal
from turnwire.gateway.stores.store import StoreError, StoreUnavailable
from turnwire.gateway.telemetry.journal import TurnFilter, TurnSummary
from turnwire.gateway.telemetry.kept_turns import FoundTurn, KeptTurns, joined
from turnwire.prompts.recall.seals import Sealer

SEALER = Sealer([bytes(32)])
Opener = Callable[..., JournalStore]


@pytest.fixture(params=["sqlite", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same journal as often as it is called."""
    stores: list[JournalStore] = []
    url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    if url:
        import redis

        redis.Redis.from_url(url).flushall()

    def opener(max_bytes: int = 1 << 20, age: float = 1000.0, **over: Any) -> JournalStore:
        if url:
            stores.append(RedisJournal(url, SEALER, max_bytes=max_bytes, age=age, **over))
        else:
            stores.append(SQLiteJournal(str(tmp_path / "s.journal"), max_bytes=max_bytes, age=age, **over))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


def values(entries: list[JournalEntry]) -> list[bytes]:
    return [entry.value for entry in entries]


def test_entries_are_read_in_both_directions_by_whoever_shares_the_store(opened: Opener) -> None:
    one, other = opened(), opened()
    assert (one.newest(), one.after("", 9), one.back(None, 9)) == ("", [], [])
    one.write("a", [b"1", b"2"])
    middle = other.newest()
    other.write("b", [b"3"])
    assert values(one.after("", 9)) == [b"1", b"2", b"3"]
    assert values(one.after("", 2)) == [b"1", b"2"]
    assert [(entry.origin, entry.value) for entry in one.after(middle, 9)] == [("b", b"3")]
    assert values(one.back(None, 2)) == [b"3", b"2"]
    assert values(one.back(middle, 9)) == [b"2", b"1"]
    assert values(one.back(middle, 9, inclusive=False)) == [b"1"]
    assert one.newest() == one.back(None, 1)[0].place


def test_what_is_over_the_bytes_leaves_oldest_first(opened: Opener) -> None:
    size = 400
    store = opened(max_bytes=5 * size)
    # What Redis holds is encrypted, and so somewhat longer.
    value = bytes(size - ENTRY_OVERHEAD - (36 if isinstance(store, RedisJournal) else 0) - 2)
    for number in range(10, 40):
        store.write("a", [str(number).encode() + value])
    assert [entry.value[:2] for entry in store.after("", 99)] == [b"35", b"36", b"37", b"38", b"39"]
    store.write("a", [str(number).encode() + value for number in range(40, 60)])
    assert [entry.value[:2] for entry in store.after("", 99)] == [b"55", b"56", b"57", b"58", b"59"]
    # One that is larger than all that may be kept is not kept either.
    store.write("a", [bytes(6 * size)])
    assert store.after("", 99) == []


def test_what_is_old_leaves(opened: Opener) -> None:
    store = opened(age=100.0)
    store.write("a", [b"old"])
    later = opened(age=100.0, clock=lambda: time.time() + 101)
    later.write("a", [])
    assert later.after("", 9) == []


@pytest.mark.parametrize("place", ["x", "1-x", "-1", "9" * 30, "１", "1;", "+"])
def test_a_place_that_no_store_gave_is_refused(opened: Opener, place: str) -> None:
    store = opened()
    with pytest.raises(UnknownPlace):
        store.back(place, 9)
    with pytest.raises(UnknownPlace):
        store.after(place, 9)


def test_redis_holds_nothing_that_can_be_read_and_another_key_opens_nothing(redis_url: str) -> None:
    import redis

    client = redis.Redis.from_url(redis_url)
    client.flushall()
    store = RedisJournal(redis_url, SEALER, max_bytes=1 << 20, age=60)
    store.write("a", [b"tenant-of-mine"])
    assert client.keys("*") == [b"turnwire:journal"]
    assert b"tenant" not in str(client.xrange("turnwire:journal")).encode()
    assert 0 < client.ttl("turnwire:journal") <= 60
    stranger = RedisJournal(redis_url, Sealer([b"k" * 32]), max_bytes=1 << 20, age=60)
    assert values(stranger.after("", 9)) == [b""]
    for one in (store, stranger):
        one.close()


def test_a_file_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"journal of turns .* cannot be opened"):
        SQLiteJournal(str(tmp_path), max_bytes=1, age=1)


# ------------------------------------------------------------------------------------------------ writing and reading


def turn(number: int, **over: Any) -> TurnSummary:
    fields: dict[str, Any] = {
        "turn_id": f"t{number}",
        "at": float(number),
        "api": "chat",
        "model": "m",
        "tenant": "default",
        "session": f"s{number % 2}",
        "turn_class": "main",
        "finish": "stop",
        "failure": None,
        "cause": None,
        "notes": (),
        "first_token": 0.1,
        "prefix": "held",
    }
    counts = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "calls", "lost")
    return TurnSummary(**fields | dict.fromkeys(counts, 1) | {"seconds": 1.0, "silence": 0.0} | over)


def ids(found: list[FoundTurn]) -> list[str]:
    return [one.summary.turn_id for one in found]


async def test_turns_are_found_by_what_is_wanted_of_them(opened: Opener) -> None:
    kept = KeptTurns(opened())
    for number in range(500):
        kept.add(turn(number, model="other" if number == 7 else "m"))
    await asyncio.to_thread(kept.close)
    kept = KeptTurns(opened())
    assert ids(await kept.page(TurnFilter(), 2)) == ["t499", "t498", "t497"]
    third = (await kept.page(TurnFilter(), 2))[-1].place
    assert ids(await kept.page(TurnFilter(), 2, third)) == ["t497", "t496", "t495"]
    assert ids(await kept.page(TurnFilter(turn="t3"), 9)) == ["t3"]
    assert ids(await kept.page(TurnFilter(session="s1", model="other"), 9)) == ["t7"]
    assert len(await kept.page(TurnFilter(session="s1"), 1000)) == 250
    assert await kept.page(TurnFilter(turn="nobody"), 9) == []


async def test_turns_of_others_are_told_from_ones_own(opened: Opener) -> None:
    store = opened()
    mine, theirs = KeptTurns(store), KeptTurns(opened())
    start = await mine.newest()
    mine.add(turn(1))
    theirs.add(turn(2))
    for one in (mine, theirs):
        await asyncio.to_thread(one.close)
    reader = KeptTurns(opened())
    reader.origin = mine.origin
    found, place = await reader.others_after(start)
    assert [one.turn_id for one in found] == ["t2"]
    assert await reader.others_after(place) == ([], place)


class Unsteady:
    """A store that is away until it is told to be there, and that holds entries of another version."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.asked = threading.Event()
        self.written: list[bytes] = []

    def write(self, origin: str, values: list[bytes]) -> None:
        self.asked.set()
        self._answer()
        self.written += values

    def _answer(self) -> None:
        if not self.there.is_set():
            raise StoreUnavailable("away")

    def newest(self) -> str:
        self._answer()
        return str(len(self.written))

    def after(self, place: str, limit: int) -> list[JournalEntry]:
        self._answer()
        return []

    def back(self, place: str | None, limit: int, *, inclusive: bool = True) -> list[JournalEntry]:
        self._answer()
        strange = [b"", b"no zlib", msgspec.json.encode({"turn_id": "x"})]
        return [JournalEntry(str(number), "o", value) for number, value in enumerate([*strange, *self.written])]

    def close(self) -> None:
        return None


async def test_a_store_that_is_away_costs_no_turn_until_too_many_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(KeptTurns, "WAITING", 3)
    monkeypatch.setattr(KeptTurns, "PAUSE_S", 0.01)
    monkeypatch.setattr(KeptTurns, "GATHER_S", 0.0)
    store = Unsteady()
    kept = KeptTurns(store)
    kept.add(turn(0))
    assert await asyncio.to_thread(store.asked.wait, 10)
    for number in range(1, 6):
        kept.add(turn(number))
    assert await kept.page(TurnFilter(), 9) == []
    assert await kept.newest() == ""
    store.there.set()
    await asyncio.to_thread(kept.close)
    # Three waited, two found no place; what another version wrote is passed over.
    assert ids(await kept.page(TurnFilter(), 9)) == ["t0", "t1", "t2", "t3"]
    assert "the summaries of 2 turns were not kept" in caplog.text
    assert caplog.text.count("does not answer") == 1


async def test_a_store_that_stays_away_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Unsteady()
    kept = KeptTurns(store)
    kept.add(turn(0))
    async with asyncio.timeout(10):
        await asyncio.to_thread(kept.close)
    assert store.written == []


def test_what_is_remembered_and_what_is_kept_are_one_list() -> None:
    found = [FoundTurn(str(number), turn(number)) for number in (5, 4, 3, 2)]
    turns, older = joined(found, [turn(6), turn(5)], 3)
    assert [one.turn_id for one in turns] == ["t6", "t5", "t4"]
    assert older == "3"
    assert joined([], [turn(1)], 3) == ([turn(1)], None)
    # What is older than the page is on another page; what fills the page leaves the journal for the next.
    assert [one.turn_id for one in joined(found, [turn(1)], 2)[0]] == ["t5", "t4"]
    assert joined(found, [turn(8), turn(7), turn(6)], 3) == ([turn(8), turn(7), turn(6)], "5")
    # A clock that goes wrong does not make pages repeat.
    backwards = [FoundTurn(str(place), turn(9 - place)) for place in (5, 4, 3, 2)]
    assert joined(backwards, [], 3) == ([turn(6), turn(5), turn(4)], "2")
    assert joined(found, [], 9)[1] is None


# ------------------------------------------------------------------------------------------------------- the gateway


async def listed(client: Client, query: str = "") -> dict[str, Any]:
    async with client.session.get(f"{client.base}/admin/turns{query}") as answer:
        assert answer.status == 200, await answer.text()
        body: dict[str, Any] = await answer.json()
        return body


def asked(session: str) -> dict[str, Any]:
    return {"model": "test-model", "messages": [{"role": "user", "content": "Hi."}], "prompt_cache_key": session}


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'store.db'}"
    import redis

    url: str = request.getfixturevalue("redis_url")
    redis.Redis.from_url(url).flushall()
    return url


async def test_turns_outlive_a_restart_and_are_those_of_all_gateways(tmp_path: Path, store: str) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"text": "Hello."}) + "\n")
    settings = Settings(
        engine=f"scripted:{script}", model="test-model", dialect="qwen3_coder", store=store, seal_key="k" * 32, turns=2
    )
    async with running(settings) as client:
        for number in range(3):
            await client.post("/v1/chat/completions", asked(f"s{number}"))
        before = (await listed(client))["turns"]
    async with running(settings) as client, running(settings) as other:
        again = (await listed(client))["turns"]
        assert again[:2] == before[:2]
        assert [one["session"] for one in again] == ["s2", "s1", "s0"]
        page = await listed(client, "?limit=2")
        assert page["turns"] == again[:2]
        assert (await listed(client, f"?limit=2&older={page['older']}"))["turns"] == again[2:]
        assert (await listed(client, f"?turn={again[2]['turn_id']}"))["turns"] == again[2:]
        assert (await listed(client, "?session=s1"))["turns"] == again[1:2]
        async with client.session.get(client.base + "/admin/turns?older=nowhere") as refused:
            assert (refused.status, (await refused.json())["error"]["param"]) == (400, "older")
        # A turn that ends in another gateway arrives among the events of this one.
        timeout = aiohttp.ClientTimeout(total=20)
        async with client.session.get(client.base + "/admin/events", timeout=timeout) as events:
            await events.content.readuntil(b"\n\n")
            await other.post("/v1/chat/completions", asked("elsewhere"))
            while not (event := await events.content.readuntil(b"\n\n")).startswith(b"event: turn"):
                pass
        assert json.loads(event.split(b"data: ")[1])["session"] == "elsewhere"
        assert (await listed(client, "?limit=1"))["turns"][0]["session"] == "elsewhere"


async def test_nothing_is_kept_in_memory_or_where_none_is_wanted(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "Hi."})
    assert client.gateway.kept_turns is None
    client = await serve({"text": "Hi."}, store=f"sqlite:{tmp_path / 'store.db'}", journal_bytes=0)
    assert client.gateway.kept_turns is None
    assert not (tmp_path / "store.db.journal").exists()
    assert (await listed(client))["older"] is None
