"""Bounds on what a request may hold, shared by every API.

Promise: a decoder that is given a Limits refuses what is over one of them with the name of the field and of the limit,
before it has spent more than linear work on the body.
"""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The defaults fit the largest requests seen from agent harnesses with a wide margin. `depth` bounds the nesting of
    any JSON value that is kept (schemas, tool arguments)."""

    body_bytes: int = 64 * 1024 * 1024
    messages: int = 50_000
    blocks: int = 20_000
    tools: int = 2_048
    stop_sequences: int = 64
    choices: int = 16
    name_chars: int = 512
    depth: int = 128
    header_chars: int = 512
