"""What the gateway and a decoding process say to each other, and how it is framed.

Promise: a frame is four bytes of length and a value. Conversations cross in slices that are small enough to be taken
over between two other things; they are data and never code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from turnwire.gateway.door.limits import RequestLimits
from turnwire.prompts.size import Density
from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.anthropic import HostedToolUnavailable
from turnwire.protocols.hosted.offer import HostedOffer
from turnwire.protocols.responses.tools import PackedTools, Toolbox
from turnwire.protocols.wire import ErrorKind, Inbound, TurnFailure
from turnwire.turns import Message

__all__ = [
    "ApiName",
    "Ask",
    "Failed",
    "Outcome",
    "Read",
    "Refers",
    "Settled",
    "TooLong",
    "ask_in",
    "failed",
    "failure_in",
    "framed",
    "inbound_in",
    "packed",
    "read_in",
    "read_items",
    "read_messages",
    "slices",
    "told",
]

ApiName = Literal["chat", "messages", "responses"]
_SLICE = 128 * 1024
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_MESSAGES = msgspec.msgpack.Decoder(list[Message])
_ITEMS = msgspec.msgpack.Decoder(list[dict[str, Any]])


class Read(msgspec.Struct, frozen=True):
    """A request: its API and headers, the limits and hosted tools it gets; `size` bytes of body follow the frame."""

    api: ApiName
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


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request is refused. `hosted` is what a refusal for want of a hosted tool holds beside."""

    kind: ErrorKind
    message: str
    param: str | None
    code: str | None
    retry_after: float | None
    prompt_tokens: int | None
    window: int | None
    details: dict[str, Any] | None
    hosted: tuple[str, str, str, bool] | None


class Refers(msgspec.Struct, frozen=True, tag=True):
    """The request can only be understood with what is stored."""


class Outcome(msgspec.Struct, frozen=True, tag=True):
    """A request that was understood: all of it but its messages and the items it came as."""

    inbound: msgspec.Raw


class TooLong(msgspec.Struct, frozen=True, tag=True):
    """The conversation has at least so many tokens, and is dropped."""

    least: int


class Settled(msgspec.Struct, frozen=True, tag=True):
    """The conversation follows: so many frames of messages, and so many of items."""

    messages: int
    items: int


_ANSWER: msgspec.msgpack.Decoder[Failed | Refers | Outcome | TooLong | Settled] = msgspec.msgpack.Decoder(
    Failed | Refers | Outcome | TooLong | Settled
)
_READ = msgspec.msgpack.Decoder(Read)
_ASK = msgspec.msgpack.Decoder(Ask)


def failed(failure: TurnFailure) -> Failed:
    """A refusal on its way."""
    hosted = None
    if isinstance(failure, HostedToolUnavailable):
        hosted = (failure.tool, failure.query, failure.model, failure.stream)
    return Failed(
        failure.kind,
        failure.message,
        failure.param,
        failure.code,
        failure.retry_after,
        failure.prompt_tokens,
        failure.window,
        dict(failure.details) if failure.details is not None else None,
        hosted,
    )


def failure_in(answer: Failed) -> TurnFailure:
    """The refusal as it was raised."""
    if answer.hosted is not None:
        tool, query, model, stream = answer.hosted
        return HostedToolUnavailable(tool, query, model=model, stream=stream)
    return TurnFailure(
        answer.kind,
        answer.message,
        param=answer.param,
        code=answer.code,
        retry_after=answer.retry_after,
        prompt_tokens=answer.prompt_tokens,
        window=answer.window,
        details=answer.details,
    )


def packed(inbound: Inbound[Any]) -> Outcome:
    """An understood request on its way."""
    return Outcome(msgspec.Raw(msgspec.msgpack.encode(inbound, enc_hook=_packed_tools)))


def inbound_in(answer: Outcome, api: ApiName, offer: HostedOffer) -> Inbound[Any]:
    """The request as it was understood, with the hosted tools it got."""

    def unpacked(kind: type, value: Any) -> Toolbox:
        return Toolbox.unpacked(msgspec.convert(value, PackedTools), offer)

    echo: Any = {"chat": chat.Echo, "messages": anthropic.Echo, "responses": responses.Echo}[api]
    found: Inbound[Any] = msgspec.msgpack.decode(answer.inbound, type=Inbound[echo], dec_hook=unpacked)
    return found


def _packed_tools(value: Any) -> PackedTools:
    assert isinstance(value, Toolbox)
    return value.packed()


def framed(value: bytes | object) -> bytes:
    """A frame of bytes, or of any of the values above."""
    data = value if isinstance(value, bytes) else _encode(value)
    return len(data).to_bytes(4, "little") + data


def read_in(frame: bytes) -> Read:
    """What is to be read."""
    return _READ.decode(frame)


def ask_in(frame: bytes) -> Ask:
    """What is asked of what was read."""
    return _ASK.decode(frame)


def told(frame: bytes, *kinds: type[_T]) -> _T:
    """The answer in a frame, which is one of these kinds."""
    value = _ANSWER.decode(frame)
    if not isinstance(value, kinds):
        raise ConnectionError(f"{type(value).__name__} at the wrong time")
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
