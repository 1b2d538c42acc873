"""The turn store: what is kept, for whom, and what goes first."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwire.gateway.stores.turns_sqlite import SQLiteTurnStore
from turnwire.prompts.recall.store import MemoryTurnStore, StoredTurn, TurnStore, call_key, said_key

Open = Callable[[int], TurnStore]


def made(*ids: int, text: str = "text") -> StoredTurn:
    return StoredTurn(ids=array("I", ids), text=text, shape=b"shape")


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    def open_it(max_bytes: int = 1_000_000) -> TurnStore:
        if request.param == "memory":
            return MemoryTurnStore(max_bytes=max_bytes)
        store = SQLiteTurnStore(tmp_path / "turns.sqlite", max_bytes=max_bytes)
        request.addfinalizer(store.close)
        return store

    return open_it


def test_a_turn_is_found_under_each_of_its_keys(open_store: Open) -> None:
    store = open_store(1_000_000)
    store.put("a", ["call:1", "call:2"], made(1, 2, 3))
    assert store.get("a", "call:1") == (made(1, 2, 3),)
    assert store.get("a", "call:2") == (made(1, 2, 3),)
    assert store.get("a", "call:3") == ()


def test_spaces_are_apart(open_store: Open) -> None:
    store = open_store(1_000_000)
    store.put("a", ["call:1"], made(1))
    assert store.get("b", "call:1") == ()


def test_newest_first_and_equal_turns_once(open_store: Open) -> None:
    store = open_store(1_000_000)
    for turn in (made(1), made(2), made(2)):
        store.put("a", ["said:x"], turn)
    assert store.get("a", "said:x") == (made(2), made(1))


def test_oldest_leave_first(open_store: Open) -> None:
    store = open_store(40_000)
    for number in range(30):
        store.put("a", [f"call:{number}"], made(number, text="x" * 5000))
    for _ in range(1000):  # the file is written by a thread of its own
        if not store.get("a", "call:0"):
            break
        time.sleep(0.01)
    assert store.get("a", "call:0") == ()
    assert store.get("a", "call:29") == (made(29, text="x" * 5000),)


def test_what_is_too_large_is_not_kept(open_store: Open) -> None:
    store = open_store(1000)
    store.put("a", ["call:1"], made(1, text="x" * 5000))
    assert store.get("a", "call:1") == ()


def test_a_turn_without_keys_is_not_kept(open_store: Open) -> None:
    store = open_store(1_000_000)
    store.put("a", [], made(1))
    assert store.get("a", "") == ()


def test_recently_used_turns_stay_in_memory() -> None:
    store = MemoryTurnStore(max_bytes=20_000)
    store.put("a", ["call:kept"], made(1))
    for number in range(20):
        store.put("a", [f"call:{number}"], made(number, text="x" * 4000))
        store.get("a", "call:kept")
    assert store.get("a", "call:kept") == (made(1),)
    assert len(store) <= 5


def test_sqlite_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "turns.sqlite"
    store = SQLiteTurnStore(path)
    store.put("a", ["call:1", "call:2"], made(1, 2, 3, text="héllo \ud800"))
    store.close()
    again = SQLiteTurnStore(path)
    assert again.get("a", "call:2") == (made(1, 2, 3, text="héllo \ud800"),)
    again.close()


def test_sqlite_drops_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "turns.sqlite"
    store = SQLiteTurnStore(path, max_bytes=40_000)
    for number in range(30):
        store.put("a", [f"call:{number}"], made(number, text="x" * 5000))
    store.close()
    again = SQLiteTurnStore(path, max_bytes=40_000)
    kept = [number for number in range(30) if again.get("a", f"call:{number}")]
    again.close()
    assert kept == list(range(30 - len(kept), 30))
    assert 5 <= len(kept) <= 8


def test_call_keys_forgive_stripped_signs() -> None:
    assert call_key(b"\x01", "call_30eb-9") == call_key(b"\x01", "call30eb9") == "call:01:call30eb9"
    assert call_key(b"\x01", "call_1") != call_key(b"\x01", "call_2")


def test_every_key_holds_its_history() -> None:
    assert call_key(b"one", "call_1") != call_key(b"two", "call_1")
    assert said_key(b"one", b"mark") != said_key(b"two", b"mark")
    assert len({said_key(b"one", b"mark", session) for session in ("", "s1", "s2")}) == 3
