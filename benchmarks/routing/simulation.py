"""Agents on modelled workers, routed by production's router: what each turn waited, and what was read.

Promise: deterministic. The router, its index, its estimate and its policies are production's own; only the clock, the
workers and the agents are modelled.
"""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections.abc import Callable, Iterator

import msgspec

from benchmarks.routing.agents import SUB_SCAFFOLD, Agent, Turn
from benchmarks.routing.policies import Make
from benchmarks.routing.worker_model import BLOCK, Job, WorkerModel
from turnwire.engines.interface import Capabilities, GenerateRequest, Hints
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.router import Router
from turnwire.engines.pool.routing.load import TurnLoad
from turnwire.engines.pool.worker import Worker
from turnwire.turns import Conversation, Sampling

_NOTHING = Conversation(model="", messages=())
_LIMIT = 10_000


class Outcome(msgspec.Struct):
    """What a run gave; times are seconds to the first token. `slowest_tenth` is the mean of the tenth of conversations
    that waited longest on average; `shared_reads` is how often the sub-agents' scaffold was read. `belief_error` is the
    largest difference between believed and found cached tokens, where nothing was pending."""

    workers: int
    turns: int
    hit_rate: float
    read_tokens: int
    ttft_median: float
    ttft_p99: float
    slowest_tenth: float
    used: int
    shared_reads: float
    belief_error: int


class _Modelled:
    """An engine that only has capabilities."""

    capabilities = Capabilities(yields="tokens", cached_tokens=True)


class _Told:
    """A feed whose events the simulation applies itself."""

    complete = True

    def __init__(self, name: str) -> None:
        self.name = name

    def gone(self) -> None: ...

    async def close(self) -> None: ...


class _Running(msgspec.Struct, eq=False):
    """A turn on its way, and what goes on after it."""

    job: Job
    worker: int
    request: GenerateRequest
    blocks: PromptBlocks
    load: TurnLoad
    believed: int | None
    then: Callable[[], None]


class Simulation:
    """Workers under one policy."""

    def __init__(self, workers: int, make: Make, *, events: bool = True, capacity: int | None = None) -> None:
        self.models = [WorkerModel() if capacity is None else WorkerModel(capacity) for _ in range(workers)]
        self.router = Router(make(self.models))
        self._workers = [Worker(_Modelled(), f"w{number}") for number in range(workers)]  # type: ignore[arg-type]
        for worker in self._workers:
            worker.index = self.router.index
            if events:
                self.router.index.join(worker.name)
                worker.listen_to([_Told(worker.name)])
        self._events = events
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._versions = [0] * workers
        self._running: dict[Job, _Running] = {}
        self._waits: dict[str, list[float]] = {}
        self._prompt = self._cached = self._turns = self._error = self._shared = 0
        self.now = 0.0

    # ----------------------------------------------------------------------------------------------------- agents

    def start(self, agent: Agent, at: float, over: Callable[[], None] | None = None) -> None:
        """An agent begins at a time; `over` is called when it ends."""
        self._at(at, lambda: self._go_on(agent, agent.turns(), over))

    def _go_on(self, agent: Agent, turns: Iterator[Turn], over: Callable[[], None] | None) -> None:
        turn = next(turns, None)
        if turn is None:
            if over is not None:
                over()
            return

        def then() -> None:
            left = len(turn.fan_out)
            if not left or not turn.awaited:
                for sub in turn.fan_out:
                    self.start(sub, self.now)
                self._at(self.now + turn.wait, lambda: self._go_on(agent, turns, over))
                return

            def one_over() -> None:
                nonlocal left
                left -= 1
                if not left:
                    self._go_on(agent, turns, over)

            for sub in turn.fan_out:
                self.start(sub, self.now, one_over)

        self._submit(agent.name, turn, then)

    def _submit(self, name: str, turn: Turn, then: Callable[[], None]) -> None:
        request = GenerateRequest(
            prompt_ids=turn.prompt,
            sampling=Sampling(max_tokens=4096),
            hints=Hints(request_id="", session=name),
            conversation=_NOTHING,
        )
        blocks = PromptBlocks(turn.prompt, None)
        placement = self.router.choose(request, blocks, self._workers, set(), _LIMIT, self.now)
        assert placement is not None
        number = self._workers.index(placement.worker)
        job = Job(name, blocks.of(BLOCK), turn.prompt, turn.output, self.now, turn.shared)
        worker, model = placement.worker, self.models[number]
        worker.active += 1
        load = self.router.sent(placement, request, blocks, id(job), self.now)
        sure = len(self.models) > 1 and placement.pending <= placement.cached and not model.waiting
        believed = placement.cached if sure else None
        self._running[job] = _Running(job, number, request, blocks, load, believed, then)
        self._pass_time(number)
        model.add(job)
        self._schedule(number)

    # ------------------------------------------------------------------------------------------------------ clock

    def run(self) -> Outcome:
        """Until every agent is done."""
        while self._heap:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        waits = sorted(wait for those in self._waits.values() for wait in those)
        means = sorted((statistics.fmean(those) for those in self._waits.values()), reverse=True)
        return Outcome(
            workers=len(self.models),
            turns=self._turns,
            hit_rate=self._cached / self._prompt,
            read_tokens=sum(model.read for model in self.models),
            ttft_median=statistics.median(waits),
            ttft_p99=waits[int(len(waits) * 0.99)],
            slowest_tenth=statistics.fmean(means[: len(means) // 10 + 1]),
            used=sum(model.read > 0 for model in self.models),
            shared_reads=self._shared / SUB_SCAFFOLD,
            belief_error=self._error,
        )

    def _at(self, time: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time, next(self._count), act))

    def _schedule(self, number: int) -> None:
        """Wake up when the worker's next thing happens; what was scheduled before is void."""
        self._versions[number] += 1
        version, due = self._versions[number], self.models[number].next()
        if due is not None:
            self._at(max(due, self.now), lambda: self._wake(number, version))

    def _wake(self, number: int, version: int) -> None:
        if self._versions[number] == version:
            self._pass_time(number)
            self._schedule(number)

    def _pass_time(self, number: int) -> None:
        model, worker = self.models[number], self._workers[number]
        read, over = model.advance(self.now)
        published, model.published = model.published, []
        if self._events and published:
            self.router.index.apply(worker.name, published)
        for job in read:
            running = self._running[job]
            worker.load.read(running.load)
            worker.reading.remove(id(job))
            self._waits.setdefault(job.name, []).append(job.first - job.arrived)
            self._turns += 1
            self._prompt += len(job.ids)
            self._cached += job.cached
            if job.shared:
                self._shared += max(SUB_SCAFFOLD - job.cached, 0)
            if running.believed is not None and self._events:
                self._error = max(self._error, abs(running.believed - job.cached))
        for job in over:
            running = self._running.pop(job)
            worker.load.end(running.load)
            worker.active -= 1
            said = range(running.job.output)
            self.router.served(worker, running.request, running.blocks, said, self.now)
            running.then()
