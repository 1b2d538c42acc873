"""A worker as a model: a cache that evicts, prompts that are read one after another, and a batch that writes.

Promise: no clock of its own; it says when something will happen next and is told when it does. Its cache publishes the
events that production's index takes. The figures are those of an 8B model on one large GPU, rounded; they are the
model's, not a measurement.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

import msgspec

from turnwire.engines.pool.kv_events import BlocksRemoved, BlocksStored, KVEvent

BLOCK = 64
READS = 11_000.0
"""Tokens of prompt in a second."""
CACHE = 400_000
"""Tokens that a worker's cache holds."""
STEP, PER_TURN, PER_CONTEXT = 0.010, 0.00015, 3e-8
"""Seconds of a step that writes a token for each turn: at least, for each turn, for each token of context."""
WHILE_READING = 2.0
"""How much slower tokens are written while a prompt is read."""


class Cache:
    """Blocks by their numbers; the least recently used goes, ends before beginnings."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity // BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def holds(self, numbers: Sequence[int]) -> int:
        """How many leading tokens are there."""
        count = 0
        for number in numbers:
            if number not in self._blocks:
                break
            count += 1
        return count * BLOCK

    def store(self, numbers: Sequence[int], ids: Sequence[int]) -> list[KVEvent]:
        """Keep these blocks, with their ids; what happened to others, in order."""
        blocks = self._blocks
        held = 0
        while held < len(numbers) and numbers[held] in blocks:
            held += 1
        for number in reversed(numbers):
            blocks[number] = None
            blocks.move_to_end(number)
        removed = [blocks.popitem(last=False)[0] for _ in range(len(blocks) - self._capacity)]
        events: list[KVEvent] = [BlocksRemoved(list(removed))] if removed else []
        if held < len(numbers):
            new = list(numbers[held:])
            parent = numbers[held - 1] if held else None
            events.append(BlocksStored(list(new), parent, list(ids[held * BLOCK : len(numbers) * BLOCK]), BLOCK))
        return events


class Job(msgspec.Struct, eq=False):
    """A turn on a worker. `due` is the progress of the batch at which it will have written all."""

    name: str
    numbers: Sequence[int]
    ids: Sequence[int]
    output: int
    arrived: float
    shared: bool
    cached: int = 0
    left: float = 0.0
    due: float = 0.0
    first: float = 0.0
    started: bool = False


class WorkerModel:
    """One worker. `now` is the time up to which its state is known; `read` counts the tokens it has read,
    `published` is what its cache did since somebody took it."""

    def __init__(self, capacity: int = CACHE) -> None:
        self.cache = Cache(capacity)
        self.now = 0.0
        self.read = 0
        self.published: list[KVEvent] = []
        self.waiting: deque[Job] = deque()
        self.writing: list[Job] = []
        self._progress = 0.0

    @property
    def context(self) -> int:
        """Tokens of all turns that it has."""
        return sum(len(job.ids) for job in (*self.waiting, *self.writing))

    def add(self, job: Job) -> None:
        """A turn comes, now."""
        self.waiting.append(job)
        self._begin()

    def next(self) -> float | None:
        """When something happens next, if nothing comes."""
        times = []
        if self.waiting:
            times.append(self.now + self.waiting[0].left / READS)
        if self.writing:
            times.append(self.now + (min(job.due for job in self.writing) - self._progress) / self._speed)
        return min(times, default=None)

    def advance(self, now: float) -> tuple[list[Job], list[Job]]:
        """Let time pass, at most to what happens next: the turns whose prompt is read, and those that are over."""
        passed, speed = now - self.now, self._speed
        self.now = now
        self._progress += passed * speed
        read: list[Job] = []
        if self.waiting:
            head = self.waiting[0]
            head.left -= passed * READS
            if head.left <= 1e-6:
                self.waiting.popleft()
                head.first = now
                head.due = self._progress + head.output
                self.writing.append(head)
                read.append(head)
                self.published += self.cache.store(head.numbers, head.ids)
                self._begin()
        over = [job for job in self.writing if job.due <= self._progress + 1e-6]
        if over:
            self.writing = [job for job in self.writing if job.due > self._progress + 1e-6]
        return read, over

    def _begin(self) -> None:
        """The first in the queue looks into the cache when its turn comes."""
        if self.waiting and not self.waiting[0].started:
            head = self.waiting[0]
            head.started = True
            head.cached = self.cache.holds(head.numbers)
            head.left = len(head.ids) - head.cached
            self.read += int(head.left)

    @property
    def _speed(self) -> float:
        """Tokens a second that each turn writes."""
        context = sum(len(job.ids) for job in self.writing)
        step = STEP + PER_TURN * len(self.writing) + PER_CONTEXT * context
        return 1 / (step * (WHILE_READING if self.waiting else 1.0))
