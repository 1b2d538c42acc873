"""Prompts as they were put together last, so that the next turn only adds to them.

Promise: an assembled prompt is used again only for the very conversation it was made from: the same messages, tools and
switches, and turns recalled under the same scope. Memory is bounded; several threads may share one cache.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import msgspec

from turnwire.prompts.prompt import Section
from turnwire.token_ids import TokenIds
from turnwire.turns import Note

__all__ = ["AssembledPrompt", "AssembledPromptCache"]


class AssembledPrompt(msgspec.Struct, frozen=True, gc=False):
    """A prompt up to the place where an assistant turn begins. `notes` are those of its rendered parts; `grown_from` is
    the key of the one it was made from."""

    ids: TokenIds
    sections: tuple[Section, ...]
    notes: tuple[Note, ...]
    grown_from: bytes | None = None


class AssembledPromptCache:
    """The prompts used last, two for each conversation, up to a number of tokens in all."""

    def __init__(self, max_tokens: int = 750_000) -> None:
        self._max = max_tokens
        self._held: OrderedDict[bytes, AssembledPrompt] = OrderedDict()
        self._tokens = 0
        self._lock = Lock()

    def get(self, key: bytes) -> AssembledPrompt | None:
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: bytes, prompt: AssembledPrompt) -> None:
        with self._lock:
            self._drop(key)
            # The one before last is dropped: an edit or a second answer goes back one turn, seldom two.
            before = self._held.get(prompt.grown_from) if prompt.grown_from is not None else None
            if before is not None and before.grown_from is not None:
                self._drop(before.grown_from)
            self._held[key] = prompt
            self._tokens += len(prompt.ids)
            while self._tokens > self._max:
                self._drop(next(iter(self._held)))

    def _drop(self, key: bytes) -> None:
        dropped = self._held.pop(key, None)
        if dropped is not None:
            self._tokens -= len(dropped.ids)

    def __len__(self) -> int:
        return len(self._held)
