"""What each worker's cache holds, as the workers themselves publish it by events.

Promise: sans-IO. The work for an event is linear in its blocks; one walk over a prompt's blocks answers for all workers
at once; what is kept per worker is bounded. A block counts only while all blocks before it are held too, so a prefix
whose beginning is gone, or was never seen, is never claimed. To forget a worker takes no longer for a large cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from turnwire.engines.pool.kv_blocks import SHORT, PromptBlocks, chain, root
from turnwire.engines.pool.kv_events import BlocksRemoved, BlocksStored, KVEvent

__all__ = ["Held", "KVIndex"]

_TIERS: Mapping[str | None, int] = {None: 0, "GPU": 0, "CPU": 1, "CPU_PINNED": 1, "HOST": 1}
_DISK = 2
"""Whatever else a medium is called is slower than memory."""
_SWEPT = 2048
"""Blocks of a forgotten cache that are let go at once; the rest goes while others are stored."""


class Held(msgspec.Struct, frozen=True):
    """How many leading tokens of a prompt a worker holds, and how many of them on the device itself, in the host's
    memory, and further away."""

    tokens: int = 0
    device: int = 0
    host: int = 0
    disk: int = 0


class _Worker:
    """One worker: its bit in the masks, its block size, and our number for each of its blocks, by a short form of the
    name that it gives them."""

    __slots__ = ("bit", "names", "size")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.size = 0
        self.names: dict[int, int] = {}


class KVIndex:
    """The caches of all workers that publish events. `capacity` bounds the blocks kept per worker; further ones are
    passed over, which claims less than there is."""

    def __init__(self, capacity: int = 1 << 20) -> None:
        self._capacity = capacity
        self._workers: dict[str, _Worker] = {}
        # For each tier: which workers hold a block there, as a mask of their bits.
        self._tiers: tuple[dict[int, int], ...] = ({}, {}, {})
        # Bits that nobody has any more, with the blocks that still carry them.
        self._forgotten: deque[tuple[int, dict[int, int]]] = deque()

    def join(self, name: str) -> None:
        """A worker whose events will come."""
        self._workers[name] = _Worker(self._free_bit())

    def leave(self, name: str) -> None:
        """A worker is gone for good."""
        self.clear(name)
        del self._workers[name]

    def _free_bit(self) -> int:
        taken = {worker.bit for worker in self._workers.values()} | {bit for bit, _ in self._forgotten}
        return next(1 << place for place in range(len(taken) + 1) if 1 << place not in taken)

    def blocks(self, name: str) -> int:
        """How many blocks a worker is known to hold."""
        return len(self._workers[name].names)

    def block_size(self, name: str) -> int:
        """How many tokens a worker's blocks have; 0 until it has published one."""
        return self._workers[name].size

    def apply(self, name: str, events: Sequence[KVEvent]) -> None:
        """Take a worker's events, in order."""
        worker = self._workers[name]
        for event in events:
            if isinstance(event, BlocksStored):
                self._stored(worker, event)
            elif isinstance(event, BlocksRemoved):
                self._removed(worker, event)
            else:
                self.clear(name)

    def clear(self, name: str) -> None:
        """Nothing is known of a worker's cache any more."""
        worker = self._workers[name]
        if worker.names:
            self._forgotten.append((worker.bit, worker.names))
            worker.bit, worker.names = self._free_bit(), {}
            self._sweep(_SWEPT)

    def _sweep(self, most: int) -> None:
        """Let go of so many blocks of forgotten caches."""
        while self._forgotten and most > 0:
            bit, names = self._forgotten[0]
            for _ in range(min(most, len(names))):
                number = names.popitem()[1]
                for tier in self._tiers:
                    _unset(tier, number, bit)
                most -= 1
            if not names:
                self._forgotten.popleft()

    def overlap(self, prompt: PromptBlocks) -> dict[str, Held]:
        """What each worker holds of a prompt."""
        found: dict[str, Held] = {}
        for size in {worker.size for worker in self._workers.values() if worker.size}:
            names = {worker.bit: name for name, worker in self._workers.items() if worker.size == size}
            found |= self._walk(prompt.of(size), size, names)
        return found

    def _walk(self, numbers: Sequence[int], size: int, names: Mapping[int, str]) -> dict[str, Held]:
        device, host, disk = self._tiers
        further = bool(host or disk)
        alive = sum(names)
        depth = dict.fromkeys(names, len(numbers))
        away = {bit: [0, 0] for bit in names} if further else {}
        for place, number in enumerate(numbers):
            near = device.get(number, 0)
            holders = near | host.get(number, 0) | disk.get(number, 0) if further else near
            if (still := alive & holders) != alive:
                for bit in _bits(alive & ~still):
                    depth[bit] = place
                alive = still
                if not alive:
                    break
            if further:
                for bit in _bits(alive & ~near):
                    away[bit][not host.get(number, 0) & bit] += 1
        held = {}
        for bit, name in names.items():
            in_host, on_disk = away.get(bit, (0, 0))
            total = depth[bit]
            held[name] = Held(total * size, (total - in_host - on_disk) * size, in_host * size, on_disk * size)
        return held

    def _stored(self, worker: _Worker, event: BlocksStored) -> None:
        size, hashes = event.block_size, event.block_hashes
        if event.group_idx or size < 1 or len(event.token_ids) != size * len(hashes):
            # Further groups are windows of the same tokens; only whole prefixes count here.
            return
        worker.size = size
        extras = list(event.extra_keys or ())
        lora = event.lora_name if event.lora_name is not None else event.lora_id
        if event.parent_block_hash is None:
            first = extras[0] if extras else None
            parent = root(first if lora is None else [first, lora])
        else:
            known = worker.names.get(hash(event.parent_block_hash) & SHORT)
            if known is None:
                return
            parent = known
        tier = self._tiers[_TIERS.get(event.medium, _DISK)]
        if any(extras[1:]) or (extras and extras[0] is not None and event.parent_block_hash is not None):
            numbers = _with_extras(parent, event, extras)
        else:
            numbers = chain(parent, event.token_ids, size)
        # Twice what comes, so that what was forgotten is gone before there is as much again.
        self._sweep(2 * len(hashes))
        bit = worker.bit
        for told, number in zip(hashes, numbers, strict=True):
            name = hash(told) & SHORT
            before = worker.names.get(name)
            if before is None and len(worker.names) >= self._capacity:
                return
            if before is not None and before != number:
                for other in self._tiers:
                    _unset(other, before, worker.bit)
            worker.names[name] = number
            others = tier.get(number)
            # A block of one worker has no mask of its own: that is a fifth of the memory.
            tier[number] = bit if others is None else others | bit

    def _removed(self, worker: _Worker, event: BlocksRemoved) -> None:
        if event.group_idx:
            return
        place = _TIERS.get(event.medium, _DISK)
        for told in event.block_hashes:
            name = hash(told) & SHORT
            number = worker.names.get(name)
            if number is None:
                continue
            _unset(self._tiers[place], number, worker.bit)
            if not any(tier.get(number, 0) & worker.bit for tier in self._tiers):
                del worker.names[name]


def _with_extras(parent: int, event: BlocksStored, extras: Sequence[object]) -> list[int]:
    """Blocks some of which are kept under something else besides their tokens."""
    numbers = []
    size = event.block_size
    for place in range(len(event.block_hashes)):
        (parent,) = chain(parent, event.token_ids[place * size : (place + 1) * size], size)
        extra = extras[place] if place < len(extras) else None
        if extra is not None and (place or event.parent_block_hash is not None):
            parent = hash((parent, repr(extra))) & SHORT
        numbers.append(parent)
    return numbers


def _unset(tier: dict[int, int], number: int, bit: int) -> None:
    mask = tier.get(number, 0)
    if mask & bit:
        if mask == bit:
            del tier[number]
        else:
            tier[number] = mask & ~bit


def _bits(mask: int) -> list[int]:
    bits = []
    while mask:
        bit = mask & -mask
        bits.append(bit)
        mask ^= bit
    return bits
