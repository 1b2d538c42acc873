"""A process that decodes large bodies, one after the other, for as long as its gateway lives.

Promise: it reads from its standard input only, ends when that ends, and yields to the gateway. A request that
it cannot decode is answered; a defect ends the process, and the gateway says so to the client.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import msgspec

from turnwire.gateway.door.bodies import expand
from turnwire.gateway.large_bodies.exchange import (
    Ask,
    Read,
    Refers,
    Settled,
    TooLong,
    ask_in,
    failed,
    framed,
    packed,
    read_in,
    slices,
)
from turnwire.prompts.size import Density, may_exceed, minimum_tokens
from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Message

__all__ = ["main", "serve"]

_NICE = 5


class _Sized:
    """Stands for the model's tokenizer, of which no more is needed here."""

    def __init__(self, density: Density | None) -> None:
        self.density = density


def main() -> None:
    os.nice(_NICE)
    with socket.socket(fileno=os.dup(0)) as wire:
        serve(wire)


def serve(wire: socket.socket) -> None:
    """Decode what comes until the other end closes."""
    with wire.makefile("rb") as stream:
        while head := stream.read(4):
            request = read_in(stream.read(int.from_bytes(head, "little")))
            body = stream.read(request.size)
            if len(body) < request.size:
                return
            try:
                found = _decoded(request, body)
            except TurnFailure as failure:
                wire.sendall(framed(failed(failure)))
                continue
            del body
            if found is None:
                wire.sendall(framed(Refers()))
                continue
            inbound, messages, items = _parted(found)
            wire.sendall(framed(packed(inbound)))
            head = stream.read(4)
            if not head:
                return
            asked = ask_in(stream.read(int.from_bytes(head, "little")))
            _settle(wire, request, asked, msgspec.structs.replace(inbound.conversation, messages=messages), items)


def _decoded(request: Read, body: bytes) -> Inbound[Any] | None:
    limits = request.limits.wire
    body = expand(body, request.headers.get("content-encoding", ""), limits.body_bytes)
    if request.api == "responses":
        return _response(body, request, limits)
    if request.api == "chat":
        return chat.decode(body, request.headers, limits=limits)
    return anthropic.decode(body, request.headers, limits=limits, offer=request.offer)


def _response(body: bytes, request: Read, limits: Limits) -> Inbound[Any] | None:
    asked = responses.read_request(body, limits)
    if asked.previous_response_id is not None or asked.references:
        return None
    return responses.decode_request(asked, request.headers, offer=request.offer)


def _parted(whole: Inbound[Any]) -> tuple[Inbound[Any], tuple[Message, ...], list[dict[str, Any]]]:
    """The request without what makes it large, and that."""
    messages, items = whole.conversation.messages, getattr(whole.echo, "input_items", [])
    echo = msgspec.structs.replace(whole.echo, input_items=[]) if items else whole.echo
    conversation = msgspec.structs.replace(whole.conversation, messages=())
    return msgspec.structs.replace(whole, conversation=conversation, echo=echo), messages, items


def _settle(wire: socket.socket, request: Read, asked: Ask, conversation: Any, items: list[dict[str, Any]]) -> None:
    try:
        request.limits.check(conversation, request.size, fetches=asked.fetches)
    except TurnFailure as failure:
        wire.sendall(framed(failed(failure)))
        return
    if asked.density is not None and may_exceed(conversation, asked.window):
        # There is time here to look at all of it.
        least = minimum_tokens(
            conversation, _Sized(asked.density), enough=asked.window, most_read=request.limits.wire.body_bytes
        )
        if least > asked.window:
            wire.sendall(framed(TooLong(least)))
            return
    said, kept = list(slices(conversation.messages)), list(slices(items))
    wire.sendall(framed(Settled(len(said), len(kept))))
    for data in (*said, *kept):
        wire.sendall(framed(data))


if __name__ == "__main__":
    main()
