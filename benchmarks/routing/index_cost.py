"""What the index of all caches costs: memory for each block, and CPU for a decision, an event and a restart.

Promise: measured, each size in a process of its own: memory is what that process grew by (resident, not an
allocator's count), CPU is its own time. All blocks of a worker but the shared scaffold are its own, which is the worst
case: a block that workers share has one entry in the index's table of holders.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from turnwire.engines.interface import Capabilities, GenerateRequest, Hints
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_events import BlocksRemoved, BlocksStored
from turnwire.engines.pool.router import Router
from turnwire.engines.pool.worker import Worker
from turnwire.turns import Conversation, Sampling

SIZE = 16
"""Tokens of a block: the smallest that engines use, so the most blocks."""
PROMPT, SHARED = 50_000, 40_000
AT_ONCE = 1024
"""Blocks of an event."""
ROUNDS = 30


class IndexCost(msgspec.Struct):
    """One size. `blocks` are held by all workers together; milliseconds and microseconds are of CPU: `hash_ms` for the
    numbers of a prompt's blocks, `decide_ms` for all the rest of a decision (medians), `stored_us` and `removed_us` for
    a block of an event, `forget_ms` for a worker that is started again."""

    workers: int
    blocks: int
    prompt: int
    hash_ms: float
    decide_ms: float
    stored_us: float
    removed_us: float
    forget_ms: float
    memory_mib: float

    @property
    def per_block(self) -> float:
        """Bytes."""
        return self.memory_mib * (1 << 20) / self.blocks


def measure(workers: int, each: int) -> IndexCost:
    """So many workers with so many blocks each, in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measured, (workers, each))


class _Modelled:
    capabilities = Capabilities(yields="tokens", cached_tokens=True)


class _Told:
    """A feed whose events were applied already."""

    complete = True

    def __init__(self, name: str) -> None:
        self.name = name

    def gone(self) -> None: ...

    async def close(self) -> None: ...


def _measured(workers: int, each: int) -> IndexCost:
    gc.freeze()
    router = Router()
    index = router.index
    pool = [Worker(_Modelled(), f"w{number}") for number in range(workers)]  # type: ignore[arg-type]
    dice = random.Random(1)
    scaffold = [dice.randrange(150_000) for _ in range(SHARED)]
    before = _resident()
    spent, serial = 0.0, 0
    for worker in pool:
        worker.index = index
        index.join(worker.name)
        worker.listen_to([_Told(worker.name)])
        spent += _seconds(lambda name=worker.name: index.apply(name, [_stored(dice, scaffold)]))
        for _ in range((each - SHARED // SIZE) // AT_ONCE):
            serial += 1
            event = _stored(dice, [serial, *range(1, AT_ONCE * SIZE)])
            spent += _seconds(lambda name=worker.name, event=event: index.apply(name, [event]))
    blocks = sum(index.blocks(worker.name) for worker in pool)
    memory = (_resident() - before) / (1 << 20)
    hashing, deciding = [], []
    for number in range(ROUNDS):
        ids = [*scaffold, *(dice.randrange(150_000) for _ in range(PROMPT - SHARED))]
        asked = PromptBlocks(ids, None)
        request = GenerateRequest(
            prompt_ids=ids,
            sampling=Sampling(max_tokens=4096),
            hints=Hints(request_id="", session=f"s{number}"),
            conversation=Conversation(model="", messages=()),
        )
        hashing.append(_seconds(lambda asked=asked: asked.of(SIZE)))
        deciding.append(
            _seconds(lambda request=request, asked=asked: router.choose(request, asked, pool, set(), 10_000, 0.0))
        )
    first, last = pool[0].name, pool[-1].name
    event = _stored(dice, [serial + 1, *range(1, AT_ONCE * SIZE)])
    index.apply(first, [event])
    gone = event.block_hashes
    removed = _seconds(lambda: index.apply(first, [BlocksRemoved(gone)])) / len(gone)
    forget = _seconds(lambda: index.clear(last))
    return IndexCost(
        workers=workers,
        blocks=blocks,
        prompt=PROMPT,
        hash_ms=round(statistics.median(hashing) * 1e3, 3),
        decide_ms=round(statistics.median(deciding) * 1e3, 3),
        stored_us=round(spent / blocks * 1e6, 3),
        removed_us=round(removed * 1e6, 3),
        forget_ms=round(forget * 1e3, 3),
        memory_mib=round(memory, 1),
    )


def _stored(dice: random.Random, ids: list[int]) -> BlocksStored:
    """Blocks as vLLM names them: 64 bits of a digest."""
    names: list[int | bytes] = [dice.getrandbits(64) for _ in range(len(ids) // SIZE)]
    return BlocksStored(names, None, ids, SIZE)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
