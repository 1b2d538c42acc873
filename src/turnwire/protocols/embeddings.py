"""The Embeddings API: texts in, vectors out, as numbers or as base64.

Promise: sans-IO. Every field is honoured, noted or refused with its path; vectors leave in the order of the inputs.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import Any, Literal

import msgspec

from turnwire.protocols.chat.fields import Fields
from turnwire.protocols.json_body import invalid
from turnwire.protocols.limits import Limits
from turnwire.turns import Note

__all__ = ["Asked", "answer", "decode"]

_HONOURED = frozenset({"model", "input", "encoding_format", "dimensions", "user"})
_MOST_INPUTS = 2048


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; each input is text or token ids. `dimensions` is what the client expects a vector to have."""

    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    encoding: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    notes: tuple[Note, ...] = ()


def decode(body: bytes, *, limits: Limits | None = None) -> Asked:
    """Decode `POST /v1/embeddings`."""
    fields = Fields(body, limits or Limits())
    encoding = fields.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise invalid("encoding_format", "must be float or base64")
    fields.note_unknown(_HONOURED)
    return Asked(
        model=fields.model(),
        inputs=_inputs(fields.get("input")),
        encoding=encoding,
        dimensions=fields.count("dimensions", 1),
        notes=tuple(fields.notes),
    )


def answer(asked: Asked, vectors: Sequence[Sequence[float]], tokens: int) -> bytes:
    """The answer's JSON. `tokens` is what the inputs were counted as."""
    size = len(vectors[0])
    if asked.dimensions not in (None, size):
        raise invalid("dimensions", f"this model's vectors have {size} numbers and cannot be made {asked.dimensions}")
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if asked.encoding == "base64" else vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": asked.model, "usage": usage})


def _packed(vector: Sequence[float]) -> str:
    """Little-endian 32-bit floats."""
    numbers = array("f", vector)
    if byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()


def _inputs(value: Any) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, str) or _is_ids(value):
        return (_input(value, "input"),)
    if not isinstance(value, list) or not value:
        raise invalid("input", "must be a string, a list of token ids, or a list of either with at least one entry")
    if len(value) > _MOST_INPUTS:
        raise invalid("input", f"{len(value)} inputs; the limit is {_MOST_INPUTS}")
    return tuple(_input(entry, f"input.{index}") for index, entry in enumerate(value))


def _input(value: Any, path: str) -> str | tuple[int, ...]:
    if isinstance(value, str):
        if not value:
            raise invalid(path, "must not be empty")
        return value
    if _is_ids(value):
        return tuple(value)
    raise invalid(path, "must be a string or a list of token ids")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(entry) is int and entry >= 0 for entry in value)
