"""A prefix cache as simple as it can be, that publishes what it does: the judge of what is believed of one."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec


class PublishingCache:
    """Blocks of `size` ids, at most `capacity` of them; the least recently used goes, ends before beginnings."""

    def __init__(self, size: int, capacity: int) -> None:
        self.size = size
        self.capacity = capacity
        self.blocks: OrderedDict[tuple[Any, ...], None] = OrderedDict()
        self.messages: list[bytes] = []

    def holds(self, ids: Sequence[int], salt: str | None = None) -> int:
        """How many leading ids would be reused: all but the last, in whole blocks."""
        count = 0
        for prefix in self._prefixes(ids[: max(len(ids) - 1, 0)], salt):
            if prefix not in self.blocks:
                break
            count += self.size
        return count

    def read(self, ids: Sequence[int], salt: str | None = None) -> None:
        """Read a prompt: what is new is stored, what does not fit any more is removed."""
        prefixes = self._prefixes(ids, salt)[: self.capacity]
        new = [prefix for prefix in prefixes if prefix not in self.blocks]
        for prefix in reversed(prefixes):
            self.blocks[prefix] = None
            self.blocks.move_to_end(prefix)
        removed = [self.blocks.popitem(last=False)[0] for _ in range(len(self.blocks) - self.capacity)]
        events: list[dict[str, Any]] = [
            {"type": "BlockRemoved", "block_hashes": [name(prefix)], "medium": "GPU"} for prefix in removed
        ]
        if new:
            parent = new[0][:-1]
            events.append(
                {
                    "type": "BlockStored",
                    "block_hashes": [name(prefix) for prefix in new],
                    "parent_block_hash": name(parent) if len(parent) > 1 else None,
                    "token_ids": [token for prefix in new for token in prefix[-1]],
                    "block_size": self.size,
                    "medium": "GPU",
                    "extra_keys": [[salt] if salt and len(prefix) == 2 else None for prefix in new],
                    "group_idx": 0,
                    "something_new": 1,
                }
            )
        if events:
            self.publish(events)

    def clear(self) -> None:
        self.blocks.clear()
        self.publish([{"type": "AllBlocksCleared"}])

    def publish(self, events: list[dict[str, Any]]) -> None:
        self.messages.append(msgspec.msgpack.encode([1.5, events, 0]))

    def _prefixes(self, ids: Sequence[int], salt: str | None) -> list[tuple[Any, ...]]:
        """Each block as all that it stands for."""
        blocks = [tuple(ids[start : start + self.size]) for start in range(0, len(ids) - self.size + 1, self.size)]
        return [(salt, *blocks[:count]) for count in range(1, len(blocks) + 1)]


def name(prefix: tuple[Any, ...]) -> int:
    """A block's name on the wire."""
    return int.from_bytes(hashlib.sha256(repr(prefix).encode()).digest()[:8], "big")
