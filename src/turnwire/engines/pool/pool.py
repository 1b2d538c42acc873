"""Several workers of one model as one engine: admission, choice, health, retry and migration.

Promise: a pool is itself an engine. A turn that a worker refuses goes elsewhere within a budget; a turn whose worker
dies goes on from its own tokens on another worker (or the same one restarted) without a gap or a repeat; what cannot go
on ends in an error at once. Each admitted turn holds exactly one place and gives it back exactly once. A turn is given
only to a worker that can do all it asks for, and never to one in doubt while another has room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec

from turnwire.engines.interface import (
    Capabilities,
    Engine,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Generation,
    Hints,
    Receiver,
)
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.limits import PoolLimits, PoolStatistics
from turnwire.engines.pool.read_ahead import ReadAhead
from turnwire.engines.pool.router import Router
from turnwire.engines.pool.turn import PooledTurn
from turnwire.engines.pool.waiting_line import Ticket, WaitingLine
from turnwire.engines.pool.worker import Worker
from turnwire.prompts.prompt import Tokenizer

__all__ = ["PoolLimits", "PoolStatistics", "Worker", "WorkerPool"]

log = logging.getLogger("turnwire.workers")

_TICK = 0.5
_LEAST_WEIGHT = 1e-3


class WorkerPool:
    """An engine made of engines that serve the same model."""

    def __init__(
        self, workers: Sequence[Worker], tokenizer: Tokenizer, limits: PoolLimits, router: Router | None = None
    ) -> None:
        self.workers: list[Worker] = []
        self.tokenizer = tokenizer
        self.limits = limits
        self.statistics = PoolStatistics()
        self.closed = False
        self.read_ahead = ReadAhead(self)
        self._line: WaitingLine[PooledTurn] = WaitingLine(limits.queue)
        self._running: set[PooledTurn] = set()
        self._checks: dict[Worker, asyncio.Task[None]] = {}
        self._ticking: asyncio.TimerHandle | None = None
        self._emptied: dict[Worker, asyncio.Event] = {}
        self.router = router if router is not None else Router()
        self._labels = 0
        for worker in workers:
            self._take_in(worker)

    # -------------------------------------------------------------------------------------------- engine interface

    @property
    def capabilities(self) -> Capabilities:
        """What some worker can do; a turn that asks for it is given to none that cannot."""
        if len(self.workers) == 1:
            return self.workers[0].engine.capabilities
        known = [worker for worker in self.workers if not worker.down] or self.workers
        first, *rest = (worker.engine.capabilities for worker in known)
        if not any(other != first for other in rest):
            return first
        return msgspec.structs.replace(
            first,
            guided=first.guided.union(*(other.guided for other in rest)),
            **{name: any(getattr(one, name) for one in (first, *rest)) for name in _FLAGS},
        )

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def active(self) -> int:
        return sum(worker.active for worker in self.workers)

    async def start(self) -> EngineInfo:
        """Start every worker; those that cannot be reached are retried while the others serve."""
        found = await asyncio.gather(*(worker.start() for worker in self.workers), return_exceptions=True)
        now = asyncio.get_running_loop().time()
        infos = [info for info in found if isinstance(info, EngineInfo)]
        for worker, failure in zip(self.workers, found, strict=True):
            if isinstance(failure, EngineError):
                if infos:
                    log.warning("worker %s does not serve yet: %s", worker.name, failure.message)
                    worker.health.unreached(failure.message, now)
                    self._check(worker)
            elif isinstance(failure, BaseException):
                raise failure
        if not infos:
            raise next(failure for failure in found if isinstance(failure, EngineError))
        warnings = dict.fromkeys(warning for info in infos for warning in info.warnings)
        return msgspec.structs.replace(infos[0], warnings=tuple(warnings))

    async def health(self) -> bool:
        """Whether some worker would take work now."""
        questions = [asyncio.ensure_future(worker.engine.health()) for worker in self.workers if not worker.draining]
        try:
            for answer in asyncio.as_completed(questions):
                if await answer:
                    return True
            return False
        finally:
            for question in questions:
                question.cancel()

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """By the first worker that is not down."""
        worker = next((worker for worker in self.workers if not worker.down), self.workers[0])
        return await worker.engine.embed(inputs)

    async def close(self) -> None:
        """Close every worker; running and waiting turns end with `disconnected`."""
        self.closed = True
        self.read_ahead.stop()
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._checks.values():
            task.cancel()
        for ticket in self._line.in_order():
            ticket.item.give_up(EngineError("disconnected", "The engine was closed."))
        await asyncio.gather(*(worker.close() for worker in self.workers))

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Start a generation; see the interface's promise."""
        self.read_ahead.comes(request.hints.session, request.prompt_ids)
        turn = PooledTurn(self, request, receiver, PromptBlocks(request.prompt_ids, request.hints.cache_salt))
        turn.begin()
        return turn

    # ---------------------------------------------------------------------------------------- workers at run time

    async def add(self, engine: Engine, name: str) -> Worker:
        """Take in another worker. EngineError if it does not start."""
        worker = Worker(engine, name)
        worker.index = self.router.index
        await worker.start()
        self._take_in(worker)
        self._serve()
        return worker

    def _take_in(self, worker: Worker) -> None:
        self._labels += 1
        worker.label = f"w{self._labels}"
        worker.index = self.router.index
        self.workers.append(worker)

    def drain(self, name: str) -> Worker:
        """Give a worker no new turns. KeyError if there is none of that name."""
        worker = next((worker for worker in self.workers if worker.name == name), None)
        if worker is None:
            raise KeyError(name)
        worker.draining = True
        return worker

    async def remove(self, name: str, *, patience: float = 60.0) -> None:
        """Drain a worker and take it out; turns that still run on it after `patience` seconds move on."""
        worker = self.drain(name)
        if worker.active:
            emptied = self._emptied.setdefault(worker, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(emptied.wait(), patience)
        if worker not in self.workers:
            return
        self.workers.remove(worker)
        self.router.bindings.forget(worker.name)
        task = self._checks.pop(worker, None)
        if task is not None:
            task.cancel()
        await worker.close()

    # --------------------------------------------------------------------------------------------------- admission

    def seat(self, turn: PooledTurn) -> EngineError | None:
        """Give a turn to a worker, or a place in the line; else say why not."""
        now, request, limits = turn.loop.time(), turn.request, self.limits
        hints = request.hints
        deadline = turn.deadline
        if deadline is not None and now >= deadline:
            return _too_late()
        able = [worker for worker in self.workers if worker.lack(request) is None]
        if not able:
            lack = self.workers[0].lack(request) if self.workers else "a worker"
            return EngineError("invalid_request", f"No engine of this model has {lack}.")
        self._watch()
        placement = None
        if not self._line or turn.tried:
            placement = self.router.choose(request, turn.blocks, able, turn.tried, limits.concurrency, now)
        if placement is not None:
            self._running.add(turn)
            turn.run_on(placement)
            return None
        patience = self._pause(able, now)
        if patience > limits.recovery:
            self.statistics.refused += 1
            return EngineError("overloaded", "All engines of this model ask for a pause.", retry_after=patience)
        if self._line.full:
            self.statistics.refused += 1
            return EngineError("overloaded", "All workers are busy and the queue is full.", retry_after=2)
        again = bool(turn.tried)
        ticket = self._line.join(
            turn, tenant=hints.tenant, rank=hints.rank, tier=hints.tier, priority=hints.priority, at=now, again=again
        )
        until = now + limits.queue_timeout
        turn.wait(ticket, until if deadline is None else min(until, deadline))
        if not self._in_turn:
            # Whoever is before it may wait for a worker that it does not need.
            self._serve()
        return None

    def waited(self, turn: PooledTurn) -> EngineError:
        """Why a turn that waited as long as it may gets no worker."""
        self.statistics.refused += 1
        deadline = turn.deadline
        if deadline is not None and asyncio.get_running_loop().time() >= deadline - 0.001:
            return _too_late()
        return EngineError("overloaded", "The turn waited too long for a worker.", retry_after=5)

    def leave_line(self, ticket: Ticket[PooledTurn]) -> None:
        """A waiting turn was served, or gave up."""
        self._line.leave(ticket)

    def release(self, turn: PooledTurn, worker: Worker, reserved: float, tokens: int) -> None:
        """A turn gives its place back; it cost so many tokens there, in place of what was `reserved` for it."""
        hints = turn.request.hints
        self._line.settle(hints.tenant, reserved, tokens / max(hints.weight, _LEAST_WEIGHT))
        worker.active -= 1
        self._running.discard(turn)
        if not worker.active and worker in self._emptied:
            self._emptied.pop(worker).set()
        if self._line:
            self._serve()

    def others(self, worker: Worker, request: GenerateRequest) -> bool:
        """Whether another worker could take a turn."""
        return any(one is not worker and not one.draining and one.lack(request) is None for one in self.workers)

    def reserve(self, hints: Hints, prompt: int, expected: int) -> float:
        """Book what a turn will probably cost its tenant, by its weight."""
        cost = (prompt + expected) / max(hints.weight, _LEAST_WEIGHT)
        self._line.reserve(hints.tenant, cost)
        return cost

    def _serve(self) -> None:
        """Give free places to whoever is next."""
        now = asyncio.get_running_loop().time()
        while self._line and any(
            worker.admits(now) and worker.active < self.limits.concurrency for worker in self.workers
        ):
            for ticket in self._heads():
                turn = ticket.item
                able = [worker for worker in self.workers if worker.lack(turn.request) is None]
                limit = self.limits.concurrency
                placement = self.router.choose(turn.request, turn.blocks, able, turn.tried, limit, now)
                if placement is not None:
                    self._running.add(turn)
                    turn.run_on(placement)
                    break
            else:
                return

    def _heads(self) -> Sequence[Ticket[PooledTurn]]:
        """Who is next; all others after that, for when the next one needs a worker that is not free."""
        head = self._line.head()
        return [head] if head is not None and self._in_turn else list(self._line.in_order())

    @property
    def _in_turn(self) -> bool:
        """Whether a free worker is free for whoever is next."""
        return not self.router.patient and len({worker.engine.capabilities for worker in self.workers}) == 1

    def _pause(self, workers: Sequence[Worker], now: float) -> float:
        """For how long all of these ask to be left alone."""
        return min((worker.health.not_before - now for worker in workers if not worker.down), default=0.0)

    # ------------------------------------------------------------------------------------------------------ health

    def blame(self, worker: Worker, error: EngineError, began: float) -> None:
        """A turn failed on a worker."""
        loop, health = asyncio.get_running_loop(), worker.health
        now, before = loop.time(), health.state
        health.failed(error.kind, error.message, began=began, now=now, retry_after=error.retry_after)
        if health.state != before:
            log.warning("worker %s is %s: %s", worker.name, health.state, health.why)
        if worker.down and error.kind in ("unreachable", "disconnected"):
            self._gone(worker)
        if health.checking:
            self._check(worker)
        elif health.not_before > now:
            loop.call_at(health.not_before + 0.001, self._rested, worker)

    def _gone(self, worker: Worker) -> None:
        worker.gone()
        self.router.bindings.forget(worker.name)

    def _rested(self, worker: Worker) -> None:
        worker.health.rested(asyncio.get_running_loop().time())
        if not self.closed:
            self._serve()

    def _check(self, worker: Worker) -> None:
        """Probe a worker in doubt until it is sound again, or was taken out."""
        if worker not in self._checks and worker in self.workers and not self.closed:
            task = self._checks[worker] = asyncio.ensure_future(self._probe(worker))
            task.add_done_callback(lambda _: self._checks.pop(worker, None))

    async def _probe(self, worker: Worker) -> None:
        loop, health = asyncio.get_running_loop(), worker.health
        pause = 0.05
        while health.checking:
            if health.not_before > loop.time():
                await asyncio.sleep(health.not_before - loop.time())
            ok, answers = await worker.probe(health.thorough and len(self.workers) > 1)
            if not health.checking:
                break
            health.probed(ok, loop.time(), answers=answers)
            if not answers:
                self._gone(worker)
            if health.checking:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
        log.info("worker %s serves", worker.name)
        self._serve()

    # ------------------------------------------------------------------------------------------------------- watch

    def _watch(self) -> None:
        if self._ticking is None and not self.closed:
            pause = min(_TICK, self.limits.recovery / 2, self.limits.first_token / 2, self.limits.stall / 2)
            self._ticking = asyncio.get_running_loop().call_later(pause, self._tick)

    def _tick(self) -> None:
        """Look after turns that receive nothing and turns that wait in vain."""
        self._ticking = None
        now = asyncio.get_running_loop().time()
        for turn in tuple(self._running):
            turn.account()
            if turn.heard or turn.paused:
                turn.heard, turn.silent_since, turn.doubted = False, now, 0.0
            elif turn.worker is not None:
                self._attend(turn, turn.worker, now)
        if self._line and not any(worker.admits(now) for worker in self.workers):
            for ticket in self._line.in_order():
                if now - ticket.item.waiting_since >= self.limits.recovery:
                    ticket.item.give_up(self._nobody(now))
        if self._running or self._line:
            self._watch()

    def _attend(self, turn: PooledTurn, worker: Worker, now: float) -> None:
        if not worker.down:
            if not turn.late(now, self.limits.first_token, self.limits.stall):
                return
            self._doubt(turn, worker, now)
        if self._better(turn, worker, now):
            turn.move()

    def _doubt(self, turn: PooledTurn, worker: Worker, now: float) -> None:
        """A worker that a probe cleared of this silence is doubted again when it has lasted twice as long."""
        silent, health = now - turn.silent_since, worker.health
        if silent < 2 * turn.doubted:
            return
        turn.doubted = silent
        if health.state == "healthy":
            health.late("it is silent for longer than its past explains", now)
            log.warning("worker %s is %s: no token for %.0f s", worker.name, health.state, silent)
        self._check(worker)

    def _better(self, turn: PooledTurn, worker: Worker, now: float) -> bool:
        """Whether a sound worker that has not had this turn is less busy than the silent one."""
        return any(
            one.state == "healthy"
            and one not in turn.tried
            and one.admits(now)
            and one.active < self.limits.concurrency
            and (worker.down or one.active < worker.active)
            and one.lack(turn.request) is None
            for one in self.workers
            if one is not worker
        )

    def _nobody(self, now: float) -> EngineError:
        pause = self._pause(self.workers, now)
        if pause > 0:
            return EngineError("overloaded", "All engines of this model ask for a pause.", retry_after=pause)
        return EngineError("unreachable", "No engine of this model can be reached right now.", retry_after=2)


def _too_late() -> EngineError:
    return EngineError("timeout", "The turn's deadline passed before a worker was free.")


_FLAGS = [name for name, kind in Capabilities.__annotations__.items() if kind == "bool"]
