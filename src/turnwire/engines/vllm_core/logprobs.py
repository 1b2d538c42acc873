"""Log probabilities as the engine core sends them: arrays of ids, values and ranks, one row a token.

Promise: the sampled token comes first and its rivals follow in the engine's order; an array whose bytes lie in a
further frame reads like one that holds them itself; anything else is an error that says so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnwire.engines.interface import EngineError, TokenLogprob

__all__ = ["columns", "token_logprobs"]

_FORMATS = {"<i4": "i", "int32": "i", "<f4": "f", "float32": "f", "<i8": "q", "int64": "q"}
_UNLIKELY = -9999.0
"""Instead of minus infinity, which JSON cannot hold."""


def token_logprobs(told: Any, frames: Sequence[bytes], spell: Callable[[int], str]) -> list[TokenLogprob]:
    """The rows of `new_logprobs`, with the tokens spelled out."""
    try:
        (ids, width), (values, _) = (_array(entry, frames) for entry in told[:2])
        rows = []
        for start in range(0, len(ids), width):
            pairs = [
                (spell(token), max(value, _UNLIKELY))
                for token, value in zip(ids[start : start + width], values[start : start + width], strict=True)
            ]
            rows.append(TokenLogprob(*pairs[0], tuple(pairs[1:])))
        return rows
    except (LookupError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise EngineError("internal", f"the engine core's log probabilities cannot be read: {error!r}") from error


def columns(told: Any) -> int:
    """How many tokens each row names, the sampled one included."""
    try:
        width = int(told[0][1][1])
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise EngineError("internal", f"the engine core's log probabilities cannot be read: {error!r}") from error
    if width < 1:
        raise EngineError("internal", f"the engine core's log probabilities have {width} columns")
    return width


def _array(told: Any, frames: Sequence[bytes]) -> tuple[tuple[Any, ...], int]:
    kind, shape, data = told
    raw = frames[data] if isinstance(data, int) else data.data if isinstance(data, msgspec.msgpack.Ext) else data
    rows, width = shape
    if not (type(rows) is type(width) is int):
        # Of anything else than numbers, a product may be as large as it likes.
        raise TypeError("the shape of an array is two numbers")
    return struct.unpack(f"<{rows * width}{_FORMATS[kind]}", raw), width
