"""What is known of the messages of a conversation, which come again with every turn, and a few more with them.

Promise: what is known of messages is what would be found out about them anew; of a conversation that went on, only the
new messages are looked at. Equal messages get equal answers, whichever objects they come as. What is kept is bounded,
and may be shared by threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, Protocol, TypeAlias, TypeVar

from turnwire.turns import Message

__all__ = ["ConversationMemory", "KnownMessages"]

Messages: TypeAlias = tuple[Message, ...]
_Key: TypeAlias = tuple[int, Message, Message, Message]

_LOOKED_BACK = 8  # messages that a turn adds, at most, for what was known before it to be found


class KnownMessages(Protocol):
    """What is known of `messages`; `size` is roughly their bytes."""

    @property
    def messages(self) -> Messages: ...

    @property
    def size(self) -> int: ...


K = TypeVar("K", bound=KnownMessages)


class ConversationMemory(Generic[K]):
    """The conversations asked about last, as they were then, up to a number of bytes in all. `learn` says what is known
    of messages, given what is known of the first of them or None."""

    def __init__(self, learn: Callable[[K | None, Messages], K], *, max_bytes: int) -> None:
        self._learn = learn
        self._max = max_bytes
        self._last: K | None = None
        self._held: OrderedDict[_Key, K] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def of(self, messages: Messages) -> K:
        """What is known of these messages."""
        last = self._last
        if last is not None and last.messages is messages:
            return last  # one request asks many times
        found = self.nearest(messages)
        if found is None or len(found.messages) < len(messages):
            before, found = found, self._learn(found, messages)
            if not messages or found.size > self._max // 4:
                return found
            self._put(found, before)
        self._last = found
        return found

    def nearest(self, messages: Messages) -> K | None:
        """What is known of the longest known beginning of these messages that is nearly as long as they are."""
        for size in range(len(messages), max(len(messages) - _LOOKED_BACK, 0), -1):
            key = _key(messages, size)
            found = self._held.get(key)
            # Of two conversations that are looked for by the same, the last one is kept.
            if found is not None and found.messages == messages[:size]:
                with self._lock:
                    if key in self._held:
                        self._held.move_to_end(key)
                return found
        return None

    def _put(self, made: K, before: K | None) -> None:
        with self._lock:
            if before is not None:
                self._drop(_key(before.messages, len(before.messages)))
            key = _key(made.messages, len(made.messages))
            self._drop(key)
            self._held[key] = made
            self._bytes += made.size
            while self._bytes > self._max:
                self._drop(next(iter(self._held)))

    def _drop(self, key: _Key) -> None:
        dropped = self._held.pop(key, None)
        if dropped is not None:
            self._bytes -= dropped.size

    def __len__(self) -> int:
        return len(self._held)


def _key(messages: Messages, size: int) -> _Key:
    """By what the first `size` messages are looked for: few conversations have the same ones in these places."""
    return size, messages[0], messages[size // 2], messages[size - 1]
