"""Several workers behind one model: admission, choice, retry and migration.

Promise: a pool is itself an engine. A turn that a worker refuses goes elsewhere within a budget; a turn whose worker
dies goes on from its own tokens on another worker (or the same one restarted) without a gap or a repeat; what cannot go
on ends in an error at once. Each admitted turn holds exactly one place and gives it back exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence

import msgspec

from turnwire.engines.bridge import push
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    Engine,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Generation,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.engines.pool import Candidate, PrefixIndex, WaitingLine, block_hashes, choose
from turnwire.prompts.prompt import Detokenizer, Tokenizer

__all__ = ["PoolLimits", "PoolStatistics", "Worker", "WorkerPool"]

log = logging.getLogger("turnwire.workers")


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Concurrency per worker, how many may wait and for how long, and how often in a row a turn may be refused
    (`retries`) or lose its worker (`migrations`). A worker that said `progress` tokens before it died does not
    count, but no turn moves more than `moves` times in all."""

    concurrency: int = 256
    queue: int = 1024
    queue_timeout: float = 120.0
    retries: int = 3
    migrations: int = 3
    progress: int = 16
    moves: int = 64
    recovery: float = 10.0


class PoolStatistics(msgspec.Struct):
    """Counters for the metrics page. `aborts` are generations that were stopped before their end, `left_prefill` those
    of them that had said nothing yet; `left_queue` are turns that gave up their place in the line."""

    retries: int = 0
    migrations: int = 0
    migrations_failed: int = 0
    refused: int = 0
    aborts: int = 0
    left_prefill: int = 0
    left_queue: int = 0


class Worker:
    """One engine and what is known of its load and cache."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.active = 0
        self.down = False
        self.cache = PrefixIndex()


class WorkerPool:
    """An engine made of engines that serve the same model."""

    def __init__(self, workers: Sequence[Worker], tokenizer: Tokenizer, limits: PoolLimits) -> None:
        self.workers = list(workers)
        self.limits = limits
        self.statistics = PoolStatistics()
        self._tokenizer = tokenizer
        self._line: WaitingLine[asyncio.Future[None]] = WaitingLine(limits.queue)
        self._sessions: OrderedDict[str, Worker] = OrderedDict()
        self._recoveries: set[asyncio.Task[None]] = set()

    # -------------------------------------------------------------------------------------------- engine interface

    @property
    def capabilities(self) -> Capabilities:
        return self.workers[0].engine.capabilities

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def active(self) -> int:
        return sum(worker.active for worker in self.workers)

    async def start(self) -> EngineInfo:
        """Start every worker; those that cannot be reached are retried while the others serve."""
        infos: list[EngineInfo] = []
        failures: list[EngineError] = []
        for worker in self.workers:
            try:
                infos.append(await worker.engine.start())
            except EngineError as error:
                failures.append(error)
                self._mark_down(worker)
        if not infos:
            raise failures[0]
        return infos[0]

    async def health(self) -> bool:
        return any([await worker.engine.health() for worker in self.workers])

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        return await self.workers[0].engine.embed(inputs)

    async def close(self) -> None:
        for task in self._recoveries:
            task.cancel()
        for worker in self.workers:
            await worker.engine.close()

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Start a generation; see the interface's promise."""
        return push(self.generate(request), receiver)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        """See the module's promise."""
        journey = _Journey(request, self._tokenizer)
        hashes = block_hashes(request.prompt_ids, salt=request.hints.cache_salt or "")
        refused = moved = total = 0
        while True:
            try:
                worker = await self._admit(request, hashes)
            except asyncio.CancelledError:
                self.statistics.left_queue += 1
                raise
            steps = worker.engine.generate(journey.request())
            try:
                async for step in steps:
                    if type(step) is TokenBatch:
                        yield journey.passed(step)
                    elif type(step) is Completion:
                        self._remember(worker, request, hashes)
                        journey.over = True
                        yield journey.completed(step)
                        return
                    else:
                        journey.structured = True
                        yield step
                raise EngineError("disconnected", "The engine ended its stream without a completion.")
            except (GeneratorExit, asyncio.CancelledError):
                if not journey.over:
                    self.statistics.aborts += 1
                    self.statistics.left_prefill += journey.fresh
                raise
            except EngineError as error:
                if error.kind in ("unreachable", "disconnected"):
                    self._mark_down(worker)
                if journey.fresh or not journey.leg:
                    # This worker said nothing: asking another one repeats nothing.
                    if refused >= self.limits.retries or not self._worth_retrying(error):
                        self.statistics.migrations_failed += not journey.fresh
                        raise
                    refused += 1
                    self.statistics.retries += 1
                    continue
                refused = 0
                moved = 0 if journey.leg >= self.limits.progress else moved
                spent = moved >= self.limits.migrations or total >= self.limits.moves
                if error.kind != "disconnected" or not journey.can_move or spent:
                    self.statistics.migrations_failed += error.kind == "disconnected"
                    raise
                moved += 1
                total += 1
                self.statistics.migrations += 1
                log.warning(
                    "turn %s moves on from %s after %d tokens", request.hints.request_id, worker.name, journey.count
                )
                if (done := journey.already_complete()) is not None:
                    yield done
                    return
            finally:
                await steps.aclose()
                self._release(worker)

    def _worth_retrying(self, error: EngineError) -> bool:
        """Another try helps when the worker is gone, or when it is busy and there are others."""
        return error.kind in ("unreachable", "disconnected") or (error.kind == "overloaded" and len(self.workers) > 1)

    # --------------------------------------------------------------------------------------------------- admission

    async def _admit(self, request: GenerateRequest, hashes: Sequence[bytes]) -> Worker:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.queue_timeout
        recovery = loop.time() + self.limits.recovery
        while True:
            worker = self._choose(request, hashes) if self._line.head() is None else None
            if worker is None:
                if all(w.down for w in self.workers) and loop.time() >= recovery:
                    raise EngineError("unreachable", "No engine of this model can be reached right now.", retry_after=2)
                if self._line.full:
                    self.statistics.refused += 1
                    raise EngineError("overloaded", "All workers are busy and the queue is full.", retry_after=2)
                worker = await self._wait(request, hashes, min(deadline, recovery) if self._all_down() else deadline)
                if worker is None:
                    if loop.time() < deadline:
                        continue
                    self.statistics.refused += 1
                    raise EngineError("overloaded", "The turn waited too long for a worker.", retry_after=5)
            worker.active += 1
            return worker

    def _all_down(self) -> bool:
        return all(worker.down for worker in self.workers)

    async def _wait(self, request: GenerateRequest, hashes: Sequence[bytes], deadline: float) -> Worker | None:
        loop = asyncio.get_running_loop()
        ticket = self._line.join(loop.create_future(), request.hints.priority)
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    if self._line.head() is ticket and (worker := self._choose(request, hashes)) is not None:
                        return worker
                    await ticket.item
                    ticket.item = loop.create_future()
        except TimeoutError:
            return None
        finally:
            self._line.leave(ticket)
            self._wake()

    def _choose(self, request: GenerateRequest, hashes: Sequence[bytes]) -> Worker | None:
        session = request.hints.session
        last = self._sessions.get(session) if session else None
        candidates = [
            Candidate(
                index=index,
                prompt=len(hashes),
                cached=worker.cache.overlap(hashes),
                active=worker.active,
                limit=self.limits.concurrency,
                sticky=worker is last,
            )
            for index, worker in enumerate(self.workers)
            if not worker.down
        ]
        chosen = choose(candidates)
        return None if chosen is None else self.workers[chosen]

    def _release(self, worker: Worker) -> None:
        worker.active -= 1
        self._wake()

    def _wake(self) -> None:
        head = self._line.head()
        if head is not None and not head.item.done():
            head.item.set_result(None)

    def _remember(self, worker: Worker, request: GenerateRequest, hashes: Sequence[bytes]) -> None:
        worker.cache.add(hashes)
        if request.hints.session:
            self._sessions[request.hints.session] = worker
            self._sessions.move_to_end(request.hints.session)
            if len(self._sessions) > 4096:
                self._sessions.popitem(last=False)

    # ---------------------------------------------------------------------------------------------------- recovery

    def _mark_down(self, worker: Worker) -> None:
        if not worker.down:
            worker.down = True
            worker.cache.clear()
            task = asyncio.ensure_future(self._recover(worker))
            self._recoveries.add(task)
            task.add_done_callback(self._recoveries.discard)

    async def _recover(self, worker: Worker) -> None:
        pause = 0.05
        while not await worker.engine.health():
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)
        worker.down = False
        self._wake()


class _Journey:
    """One turn's tokens so far, whichever workers produced them."""

    def __init__(self, request: GenerateRequest, tokenizer: Tokenizer) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._emitted = 0
        self._legs = 0
        self._leg_start = 0
        self._steps = 0
        self._text_only = False
        self._detokenizer: Detokenizer | None = None
        self.structured = False
        self.over = False

    @property
    def fresh(self) -> bool:
        """Nothing has reached the client yet."""
        return not self._emitted and not self.structured

    @property
    def count(self) -> int:
        return len(self._ids)

    @property
    def leg(self) -> int:
        """How much the present worker has said."""
        return self._steps + self.structured

    @property
    def can_move(self) -> bool:
        """Only when every emitted token's id is known, and no grammar is half-way through."""
        return not self.structured and not self._text_only and self._request.constraint is None and bool(self._ids)

    def request(self) -> GenerateRequest:
        """The request for the next leg: the prompt plus the tokens so far."""
        self._legs += 1
        self._steps = 0
        self._leg_start = len(self._ids)
        if not self._ids:
            return self._request
        wanted = self._request.sampling.max_tokens
        left = None if wanted is None else wanted - len(self._ids)
        return msgspec.structs.replace(
            self._request,
            prompt_ids=[*self._request.prompt_ids, *self._ids],
            resumed=len(self._ids),
            sampling=msgspec.structs.replace(self._request.sampling, max_tokens=left),
        )

    def passed(self, batch: TokenBatch) -> TokenBatch:
        """Take note of a batch on its way out."""
        if not batch.ids:
            self._text_only = self._text_only or bool(batch.text)
        text = batch.text
        self._steps += len(batch.ids) or 1
        if self._legs > 1:
            # The new worker knows nothing of a code point cut between the two, nor of text held back: decode here.
            text = self._decoded(batch.ids)
            batch = TokenBatch(text, batch.ids, batch.logprobs)
        self._ids.extend(batch.ids)
        self._emitted += len(text)
        return batch

    def _decoded(self, ids: tuple[int, ...]) -> str:
        held = ""
        if self._detokenizer is None:
            self._detokenizer = self._tokenizer.detokenizer()
            held = self._detokenizer.feed(self._ids)[self._emitted :]
        return held + self._detokenizer.feed(ids)

    def completed(self, completion: Completion) -> Completion:
        if self._legs == 1:
            return completion
        return msgspec.structs.replace(
            completion,
            prompt_tokens=len(self._request.prompt_ids),
            output_tokens=self._leg_start + completion.output_tokens,
            cached_tokens=min(completion.cached_tokens, len(self._request.prompt_ids)),
        )

    def already_complete(self) -> Completion | None:
        """The budget was spent exactly when the worker died: nothing is left to generate."""
        wanted = self._request.sampling.max_tokens
        if wanted is None or len(self._ids) < wanted:
            return None
        return Completion("length", len(self._request.prompt_ids), len(self._ids))
