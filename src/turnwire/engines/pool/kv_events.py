"""What engines publish of their prefix caches, as vLLM and SGLang send it, and the order it must be taken in.

Promise: sans-IO. Messages are applied in the order of their numbers, each once. A gap is filled by a replay where the
engine offers one; a gap that stays, a number that goes back and a lost connection mean that nothing is known any more.
Unknown fields and unknown events are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

__all__ = ["BlocksRemoved", "BlocksStored", "CacheCleared", "KVEvent", "KVFeed", "KVSink", "decode_events"]

_HELD = 4096
"""Messages that may wait for a replay."""


class BlocksStored(msgspec.Struct, tag="BlockStored", tag_field="type"):
    """Blocks that follow one another. `extra_keys` holds, block by block, what else they are kept under (a salt)."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    medium: str | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    extra_keys: list[object] | None = None
    group_idx: int | None = None


class BlocksRemoved(msgspec.Struct, tag="BlockRemoved", tag_field="type"):
    """Blocks that are gone from one tier."""

    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class CacheCleared(msgspec.Struct, tag="AllBlocksCleared", tag_field="type"):
    """All blocks are gone."""


KVEvent: TypeAlias = BlocksStored | BlocksRemoved | CacheCleared


class _Batch(msgspec.Struct, array_like=True):
    time: float
    events: list[msgspec.Raw]


_BATCH = msgspec.msgpack.Decoder(_Batch)
_EVENT = msgspec.msgpack.Decoder(KVEvent)


class _Kind(msgspec.Struct):
    type: str


_KIND = msgspec.msgpack.Decoder(_Kind)
_KNOWN = {"BlockStored", "BlockRemoved", "AllBlocksCleared"}


def decode_events(payload: bytes) -> list[KVEvent]:
    """The events of a message; one of UNREADABLE where it is none."""
    return [_EVENT.decode(event) for event in _BATCH.decode(payload).events if _KIND.decode(event).type in _KNOWN]


class KVSink(Protocol):
    """Who keeps what one engine's cache holds."""

    def apply(self, events: Sequence[KVEvent]) -> None:
        """Events, in order."""
        ...

    def clear(self) -> None:
        """Nothing is known any more."""
        ...


class KVFeed:
    """One engine's messages on their way to the sink. Whoever reads the socket looks at `wanted` after each call: the
    number from which a replay is needed, or None. `replays` says whether the engine offers any. `complete` says whether
    all that the engine ever published has been applied, so that what is not known is not held."""

    def __init__(self, sink: KVSink, *, replays: bool) -> None:
        self._sink = sink
        self._replays = replays
        self._next: int | None = None
        self._held: dict[int, bytes] = {}
        self._brought = False
        self._whole = False
        self.wanted: int | None = 0 if replays else None

    @property
    def complete(self) -> bool:
        return self._whole and self.wanted is None

    def live(self, number: int, payload: bytes) -> None:
        """A message as it is published."""
        if self._next is not None and number < self._next:
            self.lost()
        if self.wanted is not None:
            self._hold(number, payload)
        elif self._next is None or number == self._next:
            self._take(number, payload)
        elif self._replays:
            self.wanted, self._brought = self._next, False
            self._hold(number, payload)
        else:
            self._skip_to(number, payload)

    def replayed(self, number: int, payload: bytes) -> None:
        """A message of a replay."""
        if self.wanted is None or number < self.wanted:
            return
        self._brought = True
        self._held.pop(number, None)
        if self._next is None or number == self._next:
            self._take(number, payload)
        else:
            self._skip_to(number, payload)
        self.wanted = self._next

    def replay_over(self, *, came: bool = True) -> None:
        """All that the engine still had has come, or (not `came`) it does not answer: go on with what was published
        meanwhile."""
        if self.wanted is None:
            return
        self._brought = self._brought and came
        held, self._held = self._held, {}
        self.wanted = None
        if self._next is None and not held and came:
            # It has published nothing so far.
            self._next, self._whole = 0, True
        for number in sorted(held):
            if self.wanted is not None:
                self._held[number] = held[number]
            elif self._next is None or number == self._next:
                self._take(number, held[number])
            elif number > self._next and self._brought:
                # Some came between the replay's end and the first one published: once more.
                self.wanted, self._brought = self._next, False
                self._held[number] = held[number]
            elif number > self._next:
                self._skip_to(number, held[number])

    def lost(self) -> None:
        """The connection broke, or the engine began anew."""
        self._sink.clear()
        self._next, self._whole, self._brought = None, False, False
        self._held.clear()
        self.wanted = 0 if self._replays else None

    def _skip_to(self, number: int, payload: bytes) -> None:
        """What is missing may be removals: only what is stored from here on is certain."""
        self._sink.clear()
        self._whole = False
        self._take(number, payload)

    def _hold(self, number: int, payload: bytes) -> None:
        if len(self._held) >= _HELD:
            # The replay never came; begin with what there is.
            self._brought = False
            self.replay_over()
            self.live(number, payload)
        else:
            self._held[number] = payload

    def _take(self, number: int, payload: bytes) -> None:
        if self._next is None:
            # Without its past, blocks whose beginning was never seen are not counted.
            self._whole = number == 0
        self._next = number + 1
        events = decode_events(payload)
        self._sink.apply(events)
        # After an empty cache everything is known, whatever was missed before.
        self._whole = self._whole or any(isinstance(event, CacheCleared) for event in events)
