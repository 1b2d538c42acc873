"""How much of earlier prompts one model's caches hold.

Promise: values alone; what is kept in all is proportional to the memory that is given.
"""

from __future__ import annotations

import msgspec

__all__ = ["CacheBounds"]

_MIB = 1024 * 1024
_USUAL = 512 * _MIB
"""The memory for which the defaults are meant."""


class CacheBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of texts with their ids (`parts`), of messages and of renderings; tokens of tokenized texts, of whole
    prompts and of recalled turns."""

    parts: int = 64 * _MIB
    messages: int = 48 * _MIB
    renderings: int = 32 * _MIB
    texts: int = 4_000_000
    prompts: int = 750_000
    recalled: int = 2_000_000

    @classmethod
    def within(cls, memory: int) -> CacheBounds:
        """The bounds for a model that is given so many bytes."""
        usual = cls()
        return cls(**{name: getattr(usual, name) * memory // _USUAL for name in cls.__struct_fields__})
