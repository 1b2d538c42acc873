"""What the gateway and a decoding process say to each other, and how it is framed.

Promise: a frame is four bytes of length and a value. Conversations cross in slices that are small enough to be taken
over between two other things. Both ends are this program: frames are pickled where a value has no other form.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from turnwire.gateway.door.limits import RequestLimits
from turnwire.prompts.size import Density
from turnwire.protocols.hosted.offer import HostedOffer
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Message

__all__ = [
    "Ask",
    "Failed",
    "Outcome",
    "Read",
    "Refers",
    "Settled",
    "TooLong",
    "failed",
    "failure_in",
    "framed",
    "read_items",
    "read_messages",
    "slices",
    "told",
]

_SLICE = 128 * 1024
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_MESSAGES = msgspec.msgpack.Decoder(list[Message])
_ITEMS = msgspec.msgpack.Decoder(list[dict[str, Any]])


class Read(msgspec.Struct, frozen=True):
    """A request: its API and headers, the limits and hosted tools it gets; `size` bytes of body follow the frame."""

    api: Literal["chat", "messages", "responses"]
    headers: dict[str, str]
    limits: RequestLimits
    offer: HostedOffer
    size: int


class Ask(msgspec.Struct, frozen=True):
    """What becomes of a conversation that was read: it is dropped if it has more than `window` tokens for certain
    (None: nobody can say), else sent. `fetches`: the engine would go and get what a reference points to."""

    window: int
    density: Density | None
    fetches: bool


class Failed(msgspec.Struct, frozen=True):
    """The request is refused."""

    kind: type[TurnFailure]
    values: dict[str, Any]


class Refers(msgspec.Struct, frozen=True):
    """The request can only be understood with what is stored."""


class Outcome(msgspec.Struct, frozen=True):
    """A request that was understood: all of it but its messages and the items it came as."""

    inbound: Inbound[Any]


class TooLong(msgspec.Struct, frozen=True):
    """The conversation has at least so many tokens, and is dropped."""

    least: int


class Settled(msgspec.Struct, frozen=True):
    """The conversation follows: so many frames of messages, and so many of items."""

    messages: int
    items: int


def failed(failure: TurnFailure) -> Failed:
    """A refusal on its way."""
    return Failed(type(failure), {**vars(failure), "args": failure.args})


def failure_in(answer: Failed) -> TurnFailure:
    """The refusal as it was raised."""
    failure = answer.kind.__new__(answer.kind)
    for name, value in answer.values.items():
        setattr(failure, name, value)
    return failure


def framed(value: bytes | object) -> bytes:
    """A frame of bytes, or of any of the values above."""
    data = value if isinstance(value, bytes) else pickle.dumps(value)
    return len(data).to_bytes(4, "little") + data


def told(frame: bytes, *kinds: type[_T]) -> _T:
    """The value in a frame, which is one of these kinds."""
    value = pickle.loads(frame)  # noqa: S301 - both ends are this program, and nothing of it is the client's
    if not isinstance(value, kinds):
        raise TypeError(f"{type(value).__name__} at the wrong time")
    return value


def slices(values: Sequence[Message] | Sequence[dict[str, Any]]) -> Iterator[bytes]:
    """Lists of values of about the same size in bytes; a value is never cut."""
    held: list[bytes] = []
    size = 0
    for value in values:
        data = _encode(value)
        held.append(data)
        size += len(data)
        if size >= _SLICE:
            yield _list(held)
            held, size = [], 0
    if held:
        yield _list(held)


def _list(encoded: Sequence[bytes]) -> bytes:
    return _encode([msgspec.Raw(data) for data in encoded])


def read_messages(data: bytes) -> list[Message]:
    return _MESSAGES.decode(data)


def read_items(data: bytes) -> list[dict[str, Any]]:
    return _ITEMS.decode(data)
