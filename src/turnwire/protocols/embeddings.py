"""The Embeddings API: texts in, vectors out, as numbers or as base64.

Promise: sans-IO. Every field is honoured, noted or refused with its path; vectors leave in the order of the inputs.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import Literal

import msgspec

from turnwire.protocols.completions.request import texts_or_ids
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.fields.table import EMBEDDINGS
from turnwire.protocols.limits import Limits
from turnwire.turns import Note

__all__ = ["Asked", "answer", "decode"]

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
    fields = Fields(body, EMBEDDINGS, limits or Limits())
    encoding = fields.text("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise invalid("encoding_format", "must be float or base64")
    inputs = texts_or_ids(fields.value("input"), "input")
    if len(inputs) > _MOST_INPUTS:
        raise invalid("input", f"{len(inputs)} inputs; the limit is {_MOST_INPUTS}")
    return Asked(
        model=fields.model(),
        inputs=inputs,
        encoding="base64" if encoding == "base64" else "float",
        dimensions=fields.whole("dimensions", 1),
        notes=fields.finish(),
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
