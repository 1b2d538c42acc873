"""Prompts that are read before they are asked for: the next turn's beginning, while its tool runs or its user types.

Promise: only idle capacity is used. A worker reads ahead for one conversation at a time, while nobody waits in line and
no prompt is being read there, and it stops for any turn that comes to it. What came of each is counted: its turn came
and found it (hit), came while it was still read (cut), or went on otherwise or never (wasted).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from turnwire.engines.interface import Completion, EngineError, EventBatch, GenerateRequest, Generation, TokenBatch
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.worker import Worker
from turnwire.turns import Sampling

if TYPE_CHECKING:
    from turnwire.engines.pool.pool import WorkerPool

__all__ = ["ReadAhead", "ReadAheadStatistics"]

_LEAST = 256
"""Tokens that are worth a request of their own."""
_KEPT = 1024
_LOWEST = -100


class ReadAheadStatistics(msgspec.Struct):
    """Counters for the metrics page. `needless` were held already, `busy` had no idle worker; `tokens` were read ahead,
    `saved` are the seconds that hits took to read."""

    hit: int = 0
    cut: int = 0
    wasted: int = 0
    needless: int = 0
    busy: int = 0
    tokens: int = 0
    saved: float = 0.0


class _Ahead:
    """One prompt that is read ahead; the receiver of its generation."""

    def __init__(self, worker: Worker, ids: Sequence[int], began: float) -> None:
        self.worker = worker
        self.ids = ids
        self.began = began
        self.seconds: float | None = None
        self.generation: Generation | None = None

    @property
    def running(self) -> bool:
        return self.generation is not None

    def stop(self) -> None:
        generation, self.generation = self.generation, None
        if generation is not None:
            generation.abort()

    def tokens(self, batch: TokenBatch) -> None:
        self._read()

    def events(self, batch: EventBatch) -> None: ...

    def done(self, completion: Completion) -> None:
        self._read()
        self.generation = None

    def failed(self, error: EngineError) -> None:
        self.generation = None

    def _read(self) -> None:
        if self.seconds is None:
            self.seconds = asyncio.get_running_loop().time() - self.began


class ReadAhead:
    """What the workers of a pool read ahead, by conversation."""

    def __init__(self, pool: WorkerPool) -> None:
        self.statistics = ReadAheadStatistics()
        self._pool = pool
        self._ahead: OrderedDict[str, _Ahead] = OrderedDict()

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
        hints = msgspec.structs.replace(hints, request_id=f"ahead-{hints.request_id}", priority=_LOWEST, session=None)
        ahead.generation = worker.engine.submit(
            msgspec.structs.replace(request, sampling=Sampling(max_tokens=1, temperature=0.0), hints=hints), ahead
        )
        return True

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

    def stop(self) -> None:
        """Read nothing more."""
        for ahead in self._ahead.values():
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
            and not any(ahead.worker is worker and ahead.running for ahead in self._ahead.values())
        )

    def _drop(self, session: str) -> None:
        ahead = self._ahead.pop(session, None)
        if ahead is not None:
            self.statistics.wasted += 1
            ahead.stop()
