"""What an outage of Redis does to each kind of request: its status, and how long it took.

    python -m benchmarks redis_outage [--save]

One process of the gateway and a Redis of its own, so that no other process can have what is asked for: a request that
names a turn of before is one of a client without seals, after the process was restarted. Redis is killed and started
again after a second; killed for good; or frozen for good. `later` is asked when nobody waits for Redis any more.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.measure.results import Cell, Result, machine, save, today
from benchmarks.measure.versions import commit
from benchmarks.peers import cache
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import Gateway, Redis

GRACE_S = 10.0
_SAID = "loop-of-0 session"
_PLAIN = {"model": "m", "messages": [{"role": "user", "content": _SAID}]}
_STORED = {"model": "m", "input": _SAID}


class World:
    """A gateway that has served a turn, and was restarted since; its Redis."""

    def __init__(self, folder: Path) -> None:
        self.engine, self.redis = Engine(0.0), Redis(folder)
        self._folder = folder
        self.gateway: Gateway | None = None
        self.history: list[dict[str, Any]] = []
        self.previous = ""

    async def __aenter__(self) -> World:
        await self.redis.start()
        address = await self.engine.start()
        self.gateway = Gateway(self._folder, address, self.redis.url, 1)
        await self.gateway.start()
        _, _, said = await self.ask("POST", "/v1/chat/completions", _PLAIN)
        self.history = [*_PLAIN["messages"], said["choices"][0]["message"], {"role": "user", "content": _SAID}]
        _, _, kept = await self.ask("POST", "/v1/responses", _STORED)
        self.previous = kept["id"]
        await self.gateway.stop()
        self.gateway = Gateway(self._folder, address, self.redis.url, 1)
        await self.gateway.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.redis.process is not None
        self.redis.process.send_signal(signal.SIGCONT)
        if self.gateway is not None:
            await self.gateway.stop()
        await self.engine.close()
        self.redis.stop()

    async def ask(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, float, dict[str, Any]]:
        assert self.gateway is not None
        began = time.monotonic()
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.request(method, self.gateway.address + path, json=body) as answer,
        ):
            said = await answer.json(content_type=None)
            return answer.status, time.monotonic() - began, said

    def requests(self) -> dict[str, tuple[str, str, dict[str, Any] | None]]:
        """Every kind of request, by name."""
        return {
            "Messages": ("POST", "/v1/messages", _PLAIN | {"max_tokens": 99}),
            "Chat": ("POST", "/v1/chat/completions", _PLAIN),
            "Chat, turn before unknown here": ("POST", "/v1/chat/completions", _PLAIN | {"messages": self.history}),
            "Responses, `store: false`": ("POST", "/v1/responses", _STORED | {"store": False}),
            "Responses, stored": ("POST", "/v1/responses", _STORED),
            "Responses, `previous_response_id`": (
                "POST",
                "/v1/responses",
                _STORED | {"previous_response_id": self.previous},
            ),
            "Responses, `background`": ("POST", "/v1/responses", _STORED | {"background": True}),
            "reading a response": ("GET", f"/v1/responses/{self.previous}", None),
            "`/ready`": ("GET", "/ready", None),
        }


async def restarted(world: World) -> None:
    """Away for a second."""
    world.redis.kill()

    async def again() -> None:
        await asyncio.sleep(1)
        await world.redis.start()

    _KEPT.append(asyncio.create_task(again()))


async def killed(world: World) -> None:
    """Away for good."""
    world.redis.kill()


async def frozen(world: World) -> None:
    """Takes connections and says nothing."""
    assert world.redis.process is not None
    world.redis.process.send_signal(signal.SIGSTOP)


_KEPT: list[asyncio.Task[None]] = []
HOWS: dict[str, Callable[[World], Awaitable[None]]] = {
    "back after 1 s": restarted,
    "killed": killed,
    "frozen": frozen,
}


async def measure() -> list[Cell]:
    """Each kind of request alone with each outage, at once and, where it lasts, later."""
    cells: list[Cell] = []
    for how, break_it in HOWS.items():
        with tempfile.TemporaryDirectory() as folder:
            async with World(Path(folder)) as world:
                await break_it(world)
                await _asked(cells, world, how)
                if how != "back after 1 s":
                    await asyncio.sleep(GRACE_S)
                    await _asked(cells, world, f"{how}, later")
    return cells


async def _asked(cells: list[Cell], world: World, case: str) -> None:
    """All kinds at once, as requests come: each waits for itself."""
    requests = world.requests()
    answers = await asyncio.gather(*(world.ask(*request) for request in requests.values()))
    for name, (status, seconds, _) in zip(requests, answers, strict=True):
        print(f"{case:18} {name:34} {status} {seconds:5.1f} s", flush=True)
        cells.append(Cell("turnwire", name, case, {"status": [float(status)], "seconds": [round(seconds, 2)]}))


def table(cells: list[Cell]) -> str:
    """A row for each kind of request, a column for each outage."""
    cases = list(dict.fromkeys(cell.case for cell in cells))
    lines = ["| request | " + " | ".join(cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for name in dict.fromkeys(cell.api for cell in cells):
        row = [cell for cell in cells if cell.api == name]
        said = [f"{cell.figures['status'][0]:.0f}, {cell.figures['seconds'][0]:.1f} s" for cell in row]
        lines.append(f"| {name} | " + " | ".join(said) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args(arguments)
    cells = asyncio.run(measure())
    print("\n" + table(cells))
    if chosen.save:
        about = {"turnwire": {"version": commit(cache.ROOT), "wire": "HTTP"}}
        print("written:", save(Result("redis_outage", today(), machine(), about, cells)))
