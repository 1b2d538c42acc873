"""Reads what an open GGUF file says about its model: the header and the metadata, never the weights.

Promise: bounded. A file that lies about its sizes is refused with a GGUFError; nothing beyond the metadata is read.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, TypeAlias

import msgspec

__all__ = ["GGUFError", "GGUFFacts", "Value", "facts_of", "read_metadata"]

Value: TypeAlias = int | float | bool | str | list["Value"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_BYTES = 512 * 1024 * 1024
_MOST_KEYS = 65_536
_MOST_ITEMS = 4_000_000
_MOST_DEPTH = 4


class GGUFError(ValueError):
    """Not a GGUF file we can read; the message says why."""


class GGUFFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a model file says about itself. `metadata` holds everything it said."""

    metadata: dict[str, Value]
    name: str | None = None
    architecture: str | None = None
    window: int | None = None
    chat_template: str | None = None
    chat_templates: dict[str, str] = {}
    bos_id: int | None = None
    eos_id: int | None = None


class _Reader:
    """Reads values front to back and stops at the budget."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = min(size, _MOST_BYTES)
        self.order = "<"

    def take(self, count: int) -> bytes:
        if count > self._left:
            raise GGUFError("the metadata is cut short or claims to be larger than it can be")
        self._left -= count
        found = self._file.read(count)
        if len(found) != count:
            raise GGUFError("the file ends inside its metadata")
        return found

    def number(self, code: str) -> int | float | bool:
        found: int | float | bool = struct.unpack(self.order + code, self.take(struct.calcsize(code)))[0]
        return found

    def count(self, most: int, what: str) -> int:
        found = int(self.number("Q"))
        if found > most:
            raise GGUFError(f"{found} {what}; at most {most} are read")
        return found

    def string(self) -> str:
        return self.take(self.count(_MOST_BYTES, "bytes in a string")).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Value:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            if depth >= _MOST_DEPTH:
                raise GGUFError("arrays are nested too deep")
            inner = int(self.number("I"))
            length = self.count(_MOST_ITEMS, "items in an array")
            if inner in _SCALARS:
                code = _SCALARS[inner]
                return list(struct.unpack(f"{self.order}{length}{code}", self.take(length * struct.calcsize(code))))
            return [self.value(inner, depth + 1) for _ in range(length)]
        if kind not in _SCALARS:
            raise GGUFError(f"a value of unknown kind {kind}")
        return self.number(_SCALARS[kind])


def read_metadata(file: BinaryIO, size: int) -> dict[str, Value]:
    """All metadata of an open GGUF file (version 2 or 3) of `size` bytes."""
    reader = _Reader(file, size)
    if reader.take(4) != b"GGUF":
        raise GGUFError("it does not start with GGUF")
    version = int(reader.number("I"))
    if version > 0xFFFF:  # written by a big-endian machine
        reader.order = ">"
        version = int.from_bytes(struct.pack("<I", version), "big")
    if version not in (2, 3):
        raise GGUFError(f"version {version}; versions 2 and 3 are read")
    reader.number("Q")  # how many tensors; they are none of our business
    found: dict[str, Value] = {}
    for _ in range(reader.count(_MOST_KEYS, "metadata keys")):
        key = reader.string()
        found[key] = reader.value(int(reader.number("I")))
    return found


def facts_of(metadata: dict[str, Value]) -> GGUFFacts:
    """The metadata, and the parts of it that prompts are built from under plain names."""

    def text(key: str) -> str | None:
        found = metadata.get(key)
        return found if isinstance(found, str) else None

    def number(key: str) -> int | None:
        found = metadata.get(key)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    architecture = text("general.architecture")
    named = {
        key.removeprefix("tokenizer.chat_template."): value
        for key, value in metadata.items()
        if key.startswith("tokenizer.chat_template.") and isinstance(value, str)
    }
    return GGUFFacts(
        metadata=metadata,
        name=text("general.name"),
        architecture=architecture,
        window=number(f"{architecture}.context_length") if architecture else None,
        chat_template=text("tokenizer.chat_template"),
        chat_templates=named,
        bos_id=number("tokenizer.ggml.bos_token_id"),
        eos_id=number("tokenizer.ggml.eos_token_id"),
    )
