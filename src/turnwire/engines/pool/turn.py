"""One turn of a pool: it waits for a worker, runs on it, and goes on elsewhere when that one fails.

Promise: a turn holds at most one place, from the moment a worker takes it until that worker is done with it; the
receiver gets one generation, whichever workers made it, and exactly one end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from turnwire.engines.interface import (
    Completion,
    EngineError,
    EventBatch,
    GenerateRequest,
    Generation,
    Receiver,
    TokenBatch,
)
from turnwire.engines.pool.after_failure import Attempts
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.migration import Migration
from turnwire.engines.pool.router import Placement
from turnwire.engines.pool.routing.load import TurnLoad
from turnwire.engines.pool.waiting_line import Ticket
from turnwire.engines.pool.worker import Worker
from turnwire.turns import Note

if TYPE_CHECKING:
    from turnwire.engines.pool.pool import WorkerPool

__all__ = ["PooledTurn"]

log = logging.getLogger("turnwire.workers")


class PooledTurn:
    """To the worker's engine the receiver, to whoever submitted the turn the generation. `heard` is set by every sign
    of life and cleared by the pool's watch, which keeps `silent_since` and how long the silence was when it last led to
    a doubt (`doubted`). `loop` is the event loop that it runs in."""

    __slots__ = (
        "_arrived",
        "_attempts",
        "_began",
        "_leg",
        "_load",
        "_migration",
        "_over",
        "_pool",
        "_receiver",
        "_reserved",
        "_running",
        "_timer",
        "_uncached",
        "blocks",
        "doubted",
        "heard",
        "loop",
        "paused",
        "request",
        "silent_since",
        "ticket",
        "tried",
        "waiting_since",
        "worker",
    )

    def __init__(self, pool: WorkerPool, request: GenerateRequest, receiver: Receiver, blocks: PromptBlocks) -> None:
        self.request = request
        self.blocks = blocks
        self.worker: Worker | None = None
        self.tried: set[Worker] = set()
        self.heard = False
        self.silent_since = 0.0
        self.doubted = 0.0
        self.waiting_since = 0.0
        self.paused = False
        self.ticket: Ticket[PooledTurn] | None = None
        # Asked once: to find the running loop takes a system call.
        self.loop = asyncio.get_running_loop()
        self._pool = pool
        self._receiver = receiver
        self._migration = Migration(request, pool.tokenizer)
        self._attempts: Attempts | None = None
        self._leg: Generation | None = None
        self._arrived = self.loop.time()
        self._began = 0.0
        self._uncached = 0
        # Whether one more token is only counted.
        self._running = False
        self._load: TurnLoad | None = None
        self._reserved = 0.0
        self._timer: asyncio.Handle | None = None
        self._over = False

    def begin(self) -> None:
        """Go to a worker that has room, or into the line."""
        refusal = self._pool.seat(self)
        if refusal is not None:
            self._timer = self.loop.call_soon(self._give_up, refusal)

    # ------------------------------------------------------------------------------------------------- generation

    def abort(self) -> None:
        if self._over:
            return
        statistics = self._pool.statistics
        if self.worker is not None:
            statistics.aborts += 1
            statistics.left_prefill += self._migration.fresh
        elif self.ticket is not None:
            statistics.left_queue += 1
        self._end()

    def pause(self) -> None:
        self.paused = True
        if self._leg is not None:
            self._leg.pause()

    def resume(self) -> None:
        self.paused = False
        self.heard = True
        if self._leg is not None:
            self._leg.resume()

    # ---------------------------------------------------------------------------------------------------- places

    @property
    def deadline(self) -> float | None:
        """Until when it may wait to begin. What has begun is not late."""
        begun = self.request.resumed or not self._migration.fresh
        return None if begun else self.request.hints.deadline

    def wait(self, ticket: Ticket[PooledTurn], until: float) -> None:
        """Stand in the line, at most until a time."""
        self.ticket, self.waiting_since = ticket, self.loop.time()
        self._timer = self.loop.call_at(until, self._waited_enough)

    def run_on(self, placement: Placement) -> None:
        """A worker takes the turn."""
        if self.ticket is not None:
            self._stop_waiting()
        worker, request, router = placement.worker, self.request, self._pool.router
        self._pool.read_ahead.make_way(worker)
        worker.active += 1
        self.worker = worker
        now = self._began = self.silent_since = self.loop.time()
        self.heard, self.doubted, self._running = False, 0.0, False
        self._load = router.sent(placement, request, self.blocks, id(self), now)
        self._uncached = self._load.prefilling
        # Asked by the name of its method: the check of a protocol looks at every method of it, for each turn.
        routed = getattr(self._receiver, "routed", None)
        if routed is not None:
            routed(placement.route(len(request.prompt_ids), now - self._arrived))
        self._reserved = self._pool.reserve(request.hints, self._uncached, self._load.expected)
        try:
            self._leg = worker.engine.submit(self._migration.request(), self)
        except Exception:
            log.exception("a defect in the adapter of %s", worker.name)
            error = EngineError("internal", "The engine adapter failed.")
            self._timer = self.loop.call_soon(self.failed, error)
            return
        if self.paused:
            self._leg.pause()

    def account(self) -> None:
        """Bring what the turn is to its worker's load up to date."""
        if self.worker is not None and self._load is not None and self._migration.said:
            self.worker.load.wrote(self._load, self._migration.said)

    def late(self, now: float, floor: float, stall: float) -> bool:
        """Whether the worker is silent for longer than its past explains."""
        silent = now - self.silent_since
        if self._migration.said:
            return silent > stall
        assert self.worker is not None
        return silent > self.worker.health.first_token.deadline(self._uncached, floor)

    def move(self) -> bool:
        """Leave a silent worker for another one; False if the turn cannot."""
        worker = self.worker
        assert worker is not None
        if not self._migration.movable:
            return False
        log.warning("turn %s leaves %s, which is silent", self.request.hints.request_id, worker.name)
        self._pool.statistics.moved_late += 1
        self.tried.add(worker)
        if self._leg is not None:
            self._leg.abort()
        self._release()
        self._seek()
        return True

    def give_up(self, error: EngineError) -> None:
        """The pool has no worker for this turn."""
        self._give_up(error)

    # -------------------------------------------------------------------------------------------------- receiver

    def tokens(self, batch: TokenBatch) -> None:
        self.heard = True
        ids = batch.ids
        if not self._running or len(ids) != 1:
            self._take(batch)
            return
        # As Migration.passed: nearly every token comes here, and a call would cost as much as all of it.
        migration = self._migration
        migration.said += 1
        migration.ids.append(ids[0])
        migration.emitted += len(batch.text)
        self._receiver.tokens(batch)

    def _take(self, batch: TokenBatch) -> None:
        """Take output that may be anything."""
        migration = self._migration
        if not migration.said:
            self._spoke()
        batch = migration.passed(batch)
        self._running = migration.running
        self._receiver.tokens(batch)
        if migration.stopped is not None:
            # Not before the worker has had its say, whose own counts are better.
            self.loop.call_soon(self._stopped)

    def events(self, batch: EventBatch) -> None:
        self.heard = True
        if all(type(event) is Note for event in batch.events):
            # What could not be said to the engine; a second one would only say it again.
            if len(self.tried) == 0:
                self._receiver.events(batch)
            return
        if not self._migration.structured:
            self._migration.structured = True
            self._migration.said += 1
            self._spoke()
        self._receiver.events(batch)

    def done(self, completion: Completion) -> None:
        worker = self.worker
        assert worker is not None
        if rest := self._migration.rest(completion):
            self._receiver.tokens(TokenBatch(rest))
            if self._over:
                return
        self._over, self._leg = True, None
        worker.health.completed()
        self._pool.router.served(worker, self.request, self.blocks, self._migration.ids, self.loop.time())
        try:
            self._receiver.done(self._migration.completed(completion))
        finally:
            self._end()

    def failed(self, error: EngineError) -> None:
        worker, pool, migration = self.worker, self._pool, self._migration
        assert worker is not None
        if not self.tried or error.kind not in ("internal", "timeout"):
            # What fails on worker after worker in the same way is the turn's own doing.
            pool.blame(worker, error, self._began)
        self.tried.add(worker)
        others = pool.others(worker, self.request)
        if self._attempts is None:
            self._attempts = Attempts(pool.limits.budget)
        step = self._attempts.after(error.kind, said=migration.said, movable=migration.movable, others=others)
        self._release()
        if migration.already_complete() is not None:
            # Nothing is left to ask anybody for.
            self._seek()
            return
        if pool.closed:
            step = "give_up"
        if step == "give_up":
            pool.statistics.migrations_failed += not migration.fresh
            self._give_up(error)
        elif step == "retry":
            pool.statistics.retries += 1
            self._seek()
        else:
            pool.statistics.migrations += 1
            name = self.request.hints.request_id
            log.warning("turn %s moves on from %s after %d tokens", name, worker.name, migration.count)
            self._seek()

    # ------------------------------------------------------------------------------------------------------ ends

    def _spoke(self) -> None:
        worker = self.worker
        assert worker is not None
        seconds = self.loop.time() - self._began
        worker.health.first_token.observed(seconds, self._uncached)
        if worker.health.state == "suspect":
            worker.health.spoke()
        worker.reading.remove(id(self))
        if self._load is not None:
            worker.load.read(self._load)

    def _stopped(self) -> None:
        """A stop string was met that two workers wrote, so that neither saw it."""
        completion = self._migration.already_complete()
        if completion is not None and not self._over:
            self._complete(completion)

    def _complete(self, completion: Completion) -> None:
        """End without a worker's word."""
        if rest := self._migration.rest():
            self._receiver.tokens(TokenBatch(rest))
        if not self._over:
            self._end()
            self._receiver.done(completion)

    def _seek(self) -> None:
        """Find the next worker, where one is needed."""
        completion = self._migration.already_complete()
        if completion is not None:
            self._complete(completion)
            return
        refusal = self._pool.seat(self)
        if refusal is not None:
            self._give_up(refusal)

    def _waited_enough(self) -> None:
        self._give_up(self._pool.waited(self))

    def _give_up(self, error: EngineError) -> None:
        if not self._over:
            self._end()
            self._receiver.failed(error)

    def _end(self) -> None:
        """Let go of everything; nothing more is heard."""
        self._over = True
        self._stop_waiting()
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.abort()
        self._release()

    def _stop_waiting(self) -> None:
        ticket, self.ticket = self.ticket, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if ticket is not None:
            self._pool.leave_line(ticket)

    def _release(self) -> None:
        """Give the place back, once."""
        worker, self.worker = self.worker, None
        if worker is not None:
            self._leg = None
            worker.reading.remove(id(self))
            if self._load is not None:
                worker.load.end(self._load)
                self._load = None
            self._pool.release(self, worker, self._reserved, self._uncached + self._migration.said)
