"""What a turn was said after: one digest of all that precedes a message, by which a remembered turn is found again.

Promise: two positions have equal digests only where everything before them is equal, as far as a client can be relied
on to send it back. Thoughts do not count, since many clients drop them, nor does the layout of text in assistant
messages or the writing of arguments; every other word, call, result, image and tool does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b

import msgspec

from turnwire.conventions import letters_and_digits
from turnwire.prompts.prompt import HistoryKey
from turnwire.tool_sets import ToolSet
from turnwire.turns import Message, OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock

__all__ = ["History", "PrefixDigests", "said_digest"]

_encode = msgspec.msgpack.Encoder().encode
_SIZE = 16
_ONE_BY_ONE = 12
_KEPT = 6
_MOST_UNDATED = 256 * 1024
_CLOCK = re.compile(
    # All begin with one digit, so that the search jumps from digit to digit.
    r"\d(?:\d{3}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d?:\d\d(?::\d\d(?:\.\d{1,9})?)?"
    r"|\d?/\d\d?/\d{4})"
)


class History:
    """The digests of one conversation in its stable form: of its messages, of what follows its system text (of
    assistant messages that is what they said), and of its tools."""

    def __init__(
        self, messages: Sequence[Message], digests: Sequence[bytes], said: PrefixDigests, tools: ToolSet
    ) -> None:
        self._messages = messages
        self._start = 1 if messages and messages[0].role == "system" else 0
        self._strict = tools.digest(*digests[: self._start])
        self._said = said

    @cached_property
    def _loose(self) -> bytes:
        return _undated(self._messages[0].text) if self._start else _digest(b"")

    def before(self, position: int) -> HistoryKey:
        """The key of the message at `position`."""
        chain = self._said.before(position - self._start)
        return HistoryKey(strict=_digest(self._strict, chain), loose=lambda: (_digest(self._loose, chain),))

    def coming(self) -> HistoryKey:
        """The key of the turn that the whole conversation is the prompt of. Some clients end each request with a user
        message that they take back in the next one, so a second loose digest is without it."""
        key = self.before(len(self._messages))
        if not self._ends_with_aside():
            return key
        chain = self._said.before(len(self._messages) - 1 - self._start)
        return HistoryKey(strict=key.strict, loose=lambda: (*key.loose, _digest(self._loose, chain)))

    def _ends_with_aside(self) -> bool:
        """Whether the last message is next to another user message and brings no results itself."""
        last = self._messages[-2:]
        return (
            len(last) == 2
            and last[0].role == last[1].role == "user"
            and not any(isinstance(block, ToolResultBlock) for block in last[1].blocks)
        )


class PrefixDigests:
    """One digest of the first so many of a list of digests, which are of one size or empty. A few are worked out one by
    one, many in one go; what is known of a list is known of one that it grew to. May be shared by threads."""

    __slots__ = ("_hashed", "_known", "digests")

    def __init__(self, digests: Iterable[bytes] = ()) -> None:
        self.digests = tuple(digests)
        self._hashed = blake2b(b"".join(self.digests), digest_size=_SIZE)
        self._known = {len(self.digests): self._hashed.digest()}

    def grown(self, fresh: Sequence[bytes]) -> PrefixDigests:
        """Those of a list that goes on with `fresh`."""
        made = PrefixDigests()
        made.digests = self.digests + tuple(fresh)
        made._hashed = self._hashed.copy()
        made._hashed.update(b"".join(fresh))
        made._known = dict(list(self._known.items())[-_KEPT:])
        made._known[len(made.digests)] = made._hashed.digest()
        return made

    def before(self, place: int) -> bytes:
        """The digest of those before `place`."""
        place = max(place, 0)
        found = self._known.get(place)
        if found is not None:
            return found
        if len(self._known) < _ONE_BY_ONE:
            found = self._known[place] = blake2b(b"".join(self.digests[:place]), digest_size=_SIZE).digest()
            return found
        hashed = blake2b(digest_size=_SIZE)
        known = {0: hashed.digest()}
        for end, digest in enumerate(self.digests, 1):
            hashed.update(digest)
            known[end] = hashed.digest()
        self._known = known
        return known[place]


def said_digest(message: Message) -> bytes:
    """An assistant message by what clients send back of it; empty where that is nothing."""
    parts: list[bytes] = []
    words = "".join("".join([block.text for block in message.blocks if isinstance(block, TextBlock)]).split())
    if words:
        parts += (b"text", words.encode("utf-8", "surrogatepass"))
    for block in message.blocks:
        if isinstance(block, ToolCallBlock):
            parts += (b"call", letters_and_digits(block.id).encode("utf-8", "surrogatepass"))
            parts += (block.name.encode("utf-8", "surrogatepass"), _arguments(block.arguments))
        elif not isinstance(block, TextBlock | ReasoningBlock):
            parts += (b"other", block.payload.encode() if isinstance(block, OpaqueBlock) else _encode(block))
    return _digest(b"assistant", *parts) if parts else b""


def _arguments(text: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="deterministic")
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=16)
def _undated(text: str) -> bytes:
    """One digest of the system text without dates and times: a clock in it does not make another conversation."""
    plain = text if len(text) > _MOST_UNDATED else _CLOCK.sub("", text)
    return _digest(plain.encode("utf-8", "surrogatepass"))


def _digest(*parts: bytes) -> bytes:
    sized = [piece for part in parts for piece in (len(part).to_bytes(4, "little"), part)]
    return blake2b(b"".join(sized), digest_size=_SIZE).digest()
