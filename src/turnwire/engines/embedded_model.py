"""What the embedded engine must know of a GGUF file before it loads it.

Promise: reads the header only, never the weights.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from turnwire.engines.interface import EngineError

__all__ = ["ModelFacts", "read_facts"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class ModelFacts(msgspec.Struct, frozen=True):
    """`window` is what the model was trained for; `fragments` maps the bytes of vocabulary entries that are no whole
    text by themselves to their ids."""

    window: int
    fragments: Mapping[bytes, int]


def read_facts(path: Path) -> ModelFacts:
    """The facts, or EngineError where the file is no GGUF."""
    try:
        header = _header(path)
        window = int(header[f"{header['general.architecture']}.context_length"])
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise EngineError("internal", f"{path} is not a readable GGUF model file: {error}.") from error
    return ModelFacts(window, _fragments(header.get("tokenizer.ggml.model"), header.get("tokenizer.ggml.tokens", [])))


def _header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        _, _, count = struct.unpack_from("<IQQ", data, 4)
        at = 24
        header: dict[str, Any] = {}
        for _ in range(count):
            key, at = _text(data, at)
            (kind,) = struct.unpack_from("<I", data, at)
            header[key.decode()], at = _value(data, at + 4, kind)
        return header


def _text(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + size], at + 8 + size


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind == 8:
        text, at = _text(data, at)
        return text.decode("utf-8", "replace"), at
    if kind == 9:
        item, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if item in _SCALARS:
            layout = struct.Struct(f"<{count}{_SCALARS[item]}")
            return layout.unpack_from(data, at), at + layout.size
        items = []
        for _ in range(count):
            value, at = _value(data, at, item)
            items.append(value)
        return items, at
    layout = struct.Struct("<" + _SCALARS[kind])
    return layout.unpack_from(data, at)[0], at + layout.size


def _fragments(kind: object, tokens: list[str]) -> dict[bytes, int]:
    spell = _byte_level_spelling() if kind == "gpt2" else None
    found: dict[bytes, int] = {}
    for token, name in enumerate(tokens):
        if spell is None:
            if len(name) == 6 and name.startswith("<0x"):
                found[bytes([int(name[3:5], 16)])] = token
            continue
        spelling = bytes(spell[c] for c in name) if all(c in spell for c in name) else b""
        if spelling and not _is_text(spelling):
            found[spelling] = token
    return found


def _is_text(spelling: bytes) -> bool:
    try:
        spelling.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _byte_level_spelling() -> dict[str, int]:
    """The alphabet in which byte-level vocabularies are written: printable bytes stand for themselves, the others for
    the characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
