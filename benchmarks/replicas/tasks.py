"""Claude Code and Codex, real and pinned, at tasks of many steps on a gateway that is stormed.

Promise: a task is finished when its client ended well, said so, and left a line in its workspace for every step.
Prefixes are compared by the tokens that the engine read.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.clients.sandbox import Finished, Sandbox
from tests.clients.test_claude_code import ClaudeCode
from tests.clients.test_codex import Codex

from benchmarks.installers import installer
from benchmarks.measure.results import Cell
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import Findings, Storm

TITLES = {"claude": "Claude Code", "codex": "Codex"}
STEPS = 24
_TOOLS = {"claude": ("Bash", "command"), "codex": ("exec_command", "cmd")}
_RETRIES = [f"-cmodel_providers.gw.{name}_max_retries=30" for name in ("request", "stream")]
_LIMIT_S = 300
# What Codex says of a stream that broke.
_BREAK = "Reconnecting"
_FIGURES = ("tasks", "finished", "steps", "turns", "pairs", "held", "parted")


class Served(msgspec.Struct):
    """What the clients' drivers need of a gateway."""

    url: str
    model: str = "m"

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


class RealClient:
    """One client: `tasks` it was given, those it `finished`, the `turns` that the engine was asked for, and of their
    `pairs` those whose prefix `held`. Of a turn whose connection broke Codex keeps what was whole, a call included, and
    goes on from there: it never got the end, which carries the exact tokens. Such a pair has `parted`; there are no
    more of them than broken connections that the client reports."""

    def __init__(self, name: str, bundles: dict[str, Any], folder: Path, steps: int) -> None:
        self.name = name
        self.version = bundles[name].pins[0].rpartition("@")[2]
        self.title = f"{TITLES[name]} {self.version}"
        self.steps = steps
        self.tasks = self.finished = self.turns = self.pairs = self.held = self.parted = 0
        self.troubles: list[str] = []
        self._bundles = bundles
        self._folder = folder

    async def work(self, address: str, engine: Engine, goes_on: Callable[[], bool]) -> None:
        """One task after the other, and at least one."""
        while not self.tasks or goes_on():
            await self._task(address, engine)

    async def _task(self, address: str, engine: Engine) -> None:
        self.tasks += 1
        sandbox = Sandbox(self._folder / f"{self.name}-{self.tasks}", self._bundles)
        tool, parameter = _TOOLS[self.name]
        asked = f"task-of-{self.steps} by {tool} with {parameter}."
        engine.tasks[tool] = turns = []
        try:
            done = await asyncio.to_thread(self._run, sandbox, Served(address), asked)
        except AssertionError as late:
            self.troubles.append(f"{self.name}: {late}"[-2000:])
            return
        steps = sandbox.workspace / "steps.txt"
        written = len(steps.read_text().splitlines()) if steps.exists() else 0
        if done.code == 0 and f"all {self.steps} steps done" in done.stdout and written >= self.steps:
            self.finished += 1
        else:
            self.troubles.append(f"{self.name}: {written} steps, {done}"[-2000:])
        pairs, held, parted = prefixes(turns)
        breaks = done.stdout.count(_BREAK)
        self.turns += len(turns)
        self.pairs += pairs
        self.held += held
        self.parted += min(parted, breaks)
        if held + min(parted, breaks) < pairs:
            self.troubles.append(f"{self.name}: of {pairs} prefixes {held} held, {parted} parted after {breaks} breaks")

    def _run(self, sandbox: Sandbox, served: Any, asked: str) -> Finished:
        if self.name == "claude":
            return ClaudeCode(sandbox, served)(asked, timeout=_LIMIT_S, CLAUDE_CODE_MAX_RETRIES="30")
        return Codex(sandbox, served).configure()(asked, *_RETRIES, timeout=_LIMIT_S)

    @property
    def wrong(self) -> bool:
        """Whether a task was not finished, or a prefix did not hold."""
        return self.finished < self.tasks or self.held + self.parted < self.pairs

    def cell(self, case: str) -> Cell:
        """What it did, printed and as a result file has it; the case says what was done to the gateway meanwhile."""
        figures = {name: int(getattr(self, name)) for name in _FIGURES}
        print(f"\n{self.name} {self.version}", figures)
        for trouble in self.troubles:
            print("!", trouble)
        api = "messages" if self.name == "claude" else "responses"
        said = {name: [float(value)] for name, value in figures.items()}
        return Cell(self.title, api, case, said)


def versions(turnwire: str, clients: list[RealClient]) -> dict[str, dict[str, str]]:
    """Who took part, as a result file has it."""
    who = {"turnwire": turnwire, **{client.title: client.version for client in clients}}
    return {name: {"version": version, "wire": "HTTP"} for name, version in who.items()}


def real_clients(folder: Path, steps: int) -> list[RealClient]:
    """Claude Code and Codex, installed if they are not; their sandboxes are made in the folder."""
    bundles = installer("clients").install(TITLES)
    return [RealClient(name, bundles, folder, steps) for name in TITLES]


async def finish_amid(
    storm: Storm, clients: list[RealClient], address: str, engine: Engine, pause_s: float
) -> Findings:
    """Tasks for each client amid a storm, with a pause before each kill, until a process and Redis were killed."""
    around, found = asyncio.create_task(storm.run(pause_s=pause_s)), storm.found

    def goes_on() -> bool:
        return not (found.kills and found.redis_kills)

    await asyncio.gather(*(client.work(address, engine, goes_on) for client in clients))
    storm.enough()
    return await around


def prefixes(turns: list[tuple[int, array[int], array[int]]]) -> tuple[int, int, int]:
    """Of the turns after the first step: how many there are, how many read all that a turn of the step before read and
    wrote, and how many of the others read what it read and went on otherwise."""
    known: dict[int, list[tuple[array[int], array[int]]]] = {}
    for step, prompt, output in turns:
        known.setdefault(step, []).append((prompt, prompt + output[:-1]))
    pairs = held = parted = 0
    for step, prompt, _ in turns:
        before = known.get(step - 1, ())
        pairs += step > 0
        if any(prompt[: len(whole)] == whole for _, whole in before):
            held += 1
        elif any(prompt[: len(read)] == read for read, _ in before):
            parted += 1
    return pairs, held, parted
