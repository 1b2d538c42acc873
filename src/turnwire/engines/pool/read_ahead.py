"""Prompts that are read before they are asked for: the next turn's beginning, while its tool runs or its user types,
and what sessions that are about to start will begin with.

Promise: only idle capacity is used. A worker reads ahead for one conversation at a time, while nobody waits in line and
no prompt is being read there, and it stops for any turn that comes to it. What came of each is counted: its turn came
and found it (hit), came while it was still read (cut), or went on otherwise or never (wasted).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from turnwire.engines.interface import Completion, EngineError, EventBatch, GenerateRequest, Generation, TokenBatch
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.worker import Worker
from turnwire.turns import Sampling

if TYPE_CHECKING:
    from turnwire.engines.pool.pool import WorkerPool

__all__ = ["ReadAhead", "ReadAheadStatistics", "Warmed"]

_LEAST = 256
"""Tokens that are worth a request of their own."""
_KEPT = 1024
_LOWEST = -100


class ReadAheadStatistics(msgspec.Struct):
    """Counters for the metrics page. `needless` were held already, `busy` had no idle worker; `tokens` were read ahead,
    `saved` are the seconds that hits took to read. `warmed` were read for sessions about to start, and are not counted
    by what came of them: any session may have begun with them."""

    hit: int = 0
    cut: int = 0
    wasted: int = 0
    needless: int = 0
    busy: int = 0
    warmed: int = 0
    tokens: int = 0
    saved: float = 0.0


class Warmed(msgspec.Struct, frozen=True):
    """What became of warming one worker: the prompt was `read` (so many tokens, in so many seconds) or `held` already,
    the worker was `busy`, a turn came and it was `stopped`, or the engine `failed`."""

    worker: str
    state: Literal["read", "held", "busy", "stopped", "failed"]
    tokens: int = 0
    seconds: float = 0.0


class _Ahead:
    """One prompt that is read ahead; the receiver of its generation. `over` is called when it is, however it ended."""

    def __init__(
        self, worker: Worker, ids: Sequence[int], began: float, over: Callable[[], None] | None = None
    ) -> None:
        self._over = over
        self.worker = worker
        self.ids = ids
        self.began = began
        self.seconds: float | None = None
        self.generation: Generation | None = None
        self.error: EngineError | None = None

    @property
    def running(self) -> bool:
        return self.generation is not None

    def stop(self) -> None:
        generation, self.generation = self.generation, None
        if generation is not None:
            generation.abort()
            self._ended()

    def tokens(self, batch: TokenBatch) -> None:
        self._read()

    def events(self, batch: EventBatch) -> None: ...

    def done(self, completion: Completion) -> None:
        self._read()
        self.generation = None
        self._ended()

    def failed(self, error: EngineError) -> None:
        self.generation = None
        self.error = error
        self._ended()

    def _ended(self) -> None:
        if self._over is not None:
            self._over()

    def _read(self) -> None:
        if self.seconds is None:
            self.seconds = asyncio.get_running_loop().time() - self.began


class ReadAhead:
    """What the workers of a pool read ahead, by conversation."""

    def __init__(self, pool: WorkerPool) -> None:
        self.statistics = ReadAheadStatistics()
        self._pool = pool
        self._ahead: OrderedDict[str, _Ahead] = OrderedDict()
        self._warming: set[_Ahead] = set()

    def begin(self, request: GenerateRequest, known: int) -> bool:
        """Read a prompt that the next turn of its conversation begins with, where the last one ran. The first `known`
        of its tokens were in that turn's prompt and answer."""
        pool, hints, ids = self._pool, request.hints, request.prompt_ids
        now = asyncio.get_running_loop().time()
        home = pool.router.bindings.worker(hints.session, now) if hints.session else None
        worker = next((one for one in pool.workers if one.name == home), None)
        if worker is None or hints.session is None:
            return False
        if worker.publishes:
            blocks = PromptBlocks(ids, hints.cache_salt)
            known = min(known, worker.holds(blocks, pool.router.index.overlap(blocks), now).tokens)
        if len(ids) - known < _LEAST:
            self.statistics.needless += 1
            return False
        if not self._idle(worker, now):
            self.statistics.busy += 1
            return False
        self._drop(hints.session)
        ahead = self._ahead[hints.session] = _Ahead(worker, ids, now)
        if len(self._ahead) > _KEPT:
            self._drop(next(iter(self._ahead)))
        self.statistics.tokens += len(ids) - known
        self._submit(ahead, request)
        return True

    def _submit(self, ahead: _Ahead, request: GenerateRequest) -> None:
        hints = request.hints
        hints = msgspec.structs.replace(hints, request_id=f"ahead-{hints.request_id}", priority=_LOWEST, session=None)
        ahead.generation = ahead.worker.engine.submit(
            msgspec.structs.replace(request, sampling=Sampling(max_tokens=1, temperature=0.0), hints=hints), ahead
        )

    async def warm(self, request: GenerateRequest, *, every: bool) -> list[Warmed]:
        """Read a prompt that sessions will begin with, on the worker that the next of them would get, or on every one
        that is idle. Ends when all have."""
        pool, now = self._pool, asyncio.get_running_loop().time()
        blocks = PromptBlocks(request.prompt_ids, request.hints.cache_salt)
        able = [worker for worker in pool.workers if worker.lack(request) is None]
        if not every:
            placement = pool.router.choose(request, blocks, able, set(), pool.limits.concurrency, now)
            able = [placement.worker] if placement is not None else []
        return list(await asyncio.gather(*(self._warm(worker, request, blocks) for worker in able)))

    async def _warm(self, worker: Worker, request: GenerateRequest, blocks: PromptBlocks) -> Warmed:
        loop, ids = asyncio.get_running_loop(), request.prompt_ids
        now = loop.time()
        held = worker.holds(blocks, self._pool.router.index.overlap(blocks), now).tokens
        if len(ids) - held < _LEAST:
            return Warmed(worker.label, "held")
        if not self._idle(worker, now):
            return Warmed(worker.label, "busy")
        over = asyncio.Event()
        ahead = _Ahead(worker, ids, now, over.set)
        self._warming.add(ahead)
        try:
            self._submit(ahead, request)
            await over.wait()
        finally:
            self._warming.discard(ahead)
            ahead.stop()
        if ahead.error is not None:
            return Warmed(worker.label, "failed")
        if ahead.seconds is None:
            return Warmed(worker.label, "stopped")
        worker.served(blocks, (), loop.time())
        self.statistics.warmed += 1
        self.statistics.tokens += len(ids) - held
        return Warmed(worker.label, "read", len(ids) - held, ahead.seconds)

    def comes(self, session: str | None, prompt: Sequence[int]) -> None:
        """The next turn of a conversation is here."""
        ahead = self._ahead.pop(session, None) if session else None
        if ahead is None:
            return
        held = len(prompt) >= len(ahead.ids) and list(prompt[: len(ahead.ids)]) == list(ahead.ids)
        if ahead.running:
            self.statistics.cut += 1
        elif held and ahead.seconds is not None:
            self.statistics.hit += 1
            self.statistics.saved += ahead.seconds
        else:
            self.statistics.wasted += 1
        ahead.stop()

    def make_way(self, worker: Worker) -> None:
        """A turn goes to a worker: whatever it reads ahead can wait."""
        for session, ahead in tuple(self._ahead.items()):
            if ahead.worker is worker and ahead.running:
                self._drop(session)
        for ahead in tuple(self._warming):
            if ahead.worker is worker:
                ahead.stop()

    def stop(self) -> None:
        """Read nothing more."""
        for ahead in (*self._ahead.values(), *self._warming):
            ahead.stop()
        self._ahead.clear()

    def _idle(self, worker: Worker, now: float) -> bool:
        pool = self._pool
        return (
            worker.admits(now)
            and worker.state == "healthy"
            and not pool.waiting
            and not worker.load.prefilling
            and worker.active <= pool.limits.concurrency // 4
            and not any(ahead.worker is worker and ahead.running for ahead in (*self._ahead.values(), *self._warming))
        )

    def _drop(self, session: str) -> None:
        ahead = self._ahead.pop(session, None)
        if ahead is not None:
            self.statistics.wasted += 1
            ahead.stop()
