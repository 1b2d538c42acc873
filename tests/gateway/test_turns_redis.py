"""Turns in Redis: another replica finds them, nobody else can read them, and a Redis that is gone costs no request."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.gateway.client_habits import chat, written
from tests.gateway.conftest import Serve
from tests.gateway.test_replicas import DIALECTS, FOLDER, difference
from turnwire.gateway.stores.turns_redis import RedisTurnStore
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.prompts.recall.seals import Sealer
from turnwire.prompts.recall.store import StoredTurn

SEALER = Sealer([bytes(32)])


def made(*ids: int, text: str = "héllo \ud800") -> StoredTurn:
    return StoredTurn(ids=array("I", ids), text=text, shape=b"shape", tail="<think>\n")


@pytest.fixture
def stores(redis_url: str) -> Iterator[tuple[RedisTurnStore, RedisTurnStore]]:
    """Two replicas' stores in one Redis, empty at first."""
    import redis

    redis.Redis.from_url(redis_url).flushall()
    both = RedisTurnStore(redis_url, SEALER), RedisTurnStore(redis_url, SEALER)
    yield both
    for store in both:
        store.close()


def written_by(store: RedisTurnStore) -> None:
    """Wait until all that was put has left: it does so in order."""
    last = store.put_session("the last", b"")
    assert last is not None
    last.result(10)
    store._redis.delete(*store._redis.keys("turnwire:session:*"))


def test_another_replica_finds_the_turn(stores: tuple[RedisTurnStore, RedisTurnStore]) -> None:
    one, other = stores
    one.put("space", ["call:1", "call:2"], made(1, 2, 70_000))
    assert one.get("space", "call:1") == (made(1, 2, 70_000),)
    written_by(one)
    assert other.get("space", "call:1") == other.get("space", "call:2") == (made(1, 2, 70_000),)
    assert other.get("elsewhere", "call:1") == ()
    assert other.get("space", "call:3") == ()


def test_newest_first_and_few_of_the_same_key(stores: tuple[RedisTurnStore, RedisTurnStore]) -> None:
    one, other = stores
    for number in range(6):
        one.put("space", ["said:x"], made(number))
    written_by(one)
    assert other.get("space", "said:x") == tuple(made(number) for number in (5, 4, 3, 2))


def test_what_redis_holds_says_nothing(stores: tuple[RedisTurnStore, RedisTurnStore], redis_url: str) -> None:
    import redis

    one, _ = stores
    one.put("tenant-a", ["call:abc"], made(1, text="a secret thought"))
    written_by(one)
    client = redis.Redis.from_url(redis_url)
    names = client.keys("*")
    assert len(names) == 1
    assert b"tenant" not in names[0] + client.lindex(names[0], 0)
    assert b"secret" not in client.lindex(names[0], 0)
    assert b"abc" not in names[0]
    assert 0 < client.ttl(names[0]) <= 7 * 24 * 3600


def test_a_value_opens_only_in_its_place_with_its_key(
    stores: tuple[RedisTurnStore, RedisTurnStore], redis_url: str
) -> None:
    import redis

    one, other = stores
    one.put("space", ["call:1"], made(1))
    one.put("space", ["call:2"], made(2))
    written_by(one)
    stranger = RedisTurnStore(redis_url, Sealer([b"k" * 32]))
    assert stranger.get("space", "call:1") == ()
    stranger.close()
    client = redis.Redis.from_url(redis_url)
    first, second = client.keys("*")
    value = client.lindex(first, 0)
    client.delete(second)
    client.lpush(second, value, b"", b"short", value[:-1] + b"x")
    found = [turn for key in ("call:1", "call:2") for turn in other.get("space", key)]
    assert len(found) == 1


def test_a_redis_that_is_gone_costs_no_request() -> None:
    now = [100.0]
    store = RedisTurnStore("redis://127.0.0.1:1/0", SEALER, clock=lambda: now[0])
    asked: list[float] = []
    lrange = store._redis.lrange
    store._redis.lrange = lambda *given: asked.append(now[0]) or lrange(*given)
    assert store.get("space", "call:9") == ()
    assert store.get("space", "call:9") == ()
    assert asked == [100.0]
    now[0] += RedisTurnStore.PAUSE_S
    assert store.get("space", "call:9") == ()
    assert asked == [100.0, 105.0]
    store.put("space", ["call:1"], made(1))
    assert store.get("space", "call:1") == (made(1),)
    store.close()


@pytest.mark.parametrize("family", ["qwen3.5", "glm4.7", "gpt-oss", "kimi-k2"])
async def test_chat_replicas_that_share_a_redis_are_interchangeable(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, redis_url: str, family: str
) -> None:
    turns: list[tuple[list[int], list[int]]] = []
    remember = ModelRuntime.remember

    def watched(self: ModelRuntime, turn: object) -> None:
        remember(self, turn)  # type: ignore[arg-type]
        turns.append((list(turn.prompt.ids), list(turn.outcome.output_ids)))  # type: ignore[attr-defined]

    monkeypatch.setattr(ModelRuntime, "remember", watched)
    path = FOLDER / f"{family}.jinja"
    lines = [{"text": line} for line in written(path)]
    over = {"template": str(path), "dialect": DIALECTS[family], "store": redis_url, "seal_key": "0123456789abcdef"}
    replicas = [await serve(*lines, **over), await serve(*lines, **over)]
    history: list[dict[str, object]] = []
    for number in range(3):
        client = replicas[number % 2]
        history += await chat(client, history)
        store = client.gateway.runtimes[0]._store
        assert isinstance(store, RedisTurnStore)
        written_by(store)
    for before, after in pairwise(turns):
        assert difference(client, [*before[0], *before[1]], list(after[0])) == ""
