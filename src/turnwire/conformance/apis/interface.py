"""What the rules ask of an API.

Promise: an API is one object; a rule never looks at the wire of a certain API itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from turnwire.conformance.exchange import Exchange
from turnwire.conformance.turn import Message, Turn
from turnwire.conformance.words import ApiName

__all__ = ["Api", "Ask", "Tool"]


class Tool(msgspec.Struct, frozen=True):
    """A tool that is offered."""

    name: str
    about: str
    properties: dict[str, str]

    @property
    def schema(self) -> dict[str, Any]:
        properties = {name: {"type": kind} for name, kind in self.properties.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is asked for. `thoughts` is whether earlier thinking is sent back, `system` the parts of the system
    prompt, `previous` the id of a stored answer that the conversation goes on from."""

    model: str
    messages: tuple[Message, ...]
    system: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    stream: bool = True
    most: int = 2048
    forced: bool = False
    thoughts: bool = True
    store: bool = False
    previous: str | None = None


class Api(Protocol):
    """One API from a client's side."""

    name: ApiName
    path: str
    # Where tokens of a request are counted, and the field that has them; None where the API has no such route.
    counting: tuple[str, str] | None
    # What must be in a refusal of a prompt that is too long, so that a harness compacts.
    overflow: Sequence[str]

    def body(self, ask: Ask) -> dict[str, Any]:
        """The request's body."""

    def read(self, exchange: Exchange) -> Turn:
        """The turn that an answer holds, streamed or not."""

    def error(self, document: object) -> str | None:
        """The message of an error in the API's own shape, or None where it is in another."""
