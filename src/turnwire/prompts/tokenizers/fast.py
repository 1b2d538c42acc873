"""A faster library, which the server brings where it is built for the machine; taken only where it gives the same ids.

Promise: `compared` holds it against what the reference says (`evidence`), and finds out how much of the reference it
can stand in for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from turnwire.prompts.tokenizers.detokenizer import ByteDecoding, Decoding
from turnwire.prompts.tokenizers.evidence import (
    Evidence,
    encodings,
    replaceable,
    spellings,
    uncontrolled_encodings,
)
from turnwire.prompts.tokenizers.hf import Encoder
from turnwire.prompts.tokenizers.reference import Reference

__all__ = ["FastEncoder", "compared", "import_fast"]


class FastEncoder:
    """fastokens' tokenizer as an `Encoder`; `plainly` encodes text in which no control token is recognised."""

    fast = True

    def __init__(self, inner: Any, plainly: Callable[[str, bool], list[int]]) -> None:
        self._inner = inner
        self.encode_uncontrolled = plainly

    def encode(self, text: str) -> list[int]:
        found: list[int] = self._inner.encode(text).ids
        return found

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return [self._inner.encode(text).ids for text in texts]


def import_fast() -> Any | None:
    """fastokens; None where it is not installed."""
    # Each of its own threads takes tens of megabytes and longer to start than a whole prompt takes without them.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    try:
        return import_module("fastokens")
    except ImportError:
        return None


def compared(fast: Any, evidence: Evidence, reference: Callable[[], Reference]) -> tuple[Encoder, Decoding]:
    """What encodes and what decodes: the reference where `fast` (fastokens' tokenizer of the same file) encodes
    otherwise; both of them where it only encodes alike; `fast` alone where it is equal in everything, and then the
    reference is not asked for."""
    own = FastEncoder(fast, _ordinary(fast))
    if not _encodes_alike(fast, own, evidence):
        whole = reference()
        return whole, whole.decoding
    if _stands_in(fast, own, evidence):
        return own, ByteDecoding(fast.id_to_token, evidence.facts.added)
    whole = reference()
    return FastEncoder(fast, whole.encode_uncontrolled), whole.decoding


def _encodes_alike(fast: Any, own: FastEncoder, evidence: Evidence) -> bool:
    def digest() -> bytes:
        fast.no_truncation()
        fast.no_padding()
        return encodings(own.encode, evidence.facts)

    return _gives(evidence.encodings, digest)


def _stands_in(fast: Any, own: FastEncoder, evidence: Evidence) -> bool:
    """Whether text in which no token is recognised, and every token's spelling, are equal too."""
    facts = evidence.facts
    return (
        replaceable(facts)
        and _gives(evidence.uncontrolled, lambda: uncontrolled_encodings(own.encode_uncontrolled, facts))
        and _gives(evidence.spellings, lambda: spellings(fast.id_to_token, facts))
    )


def _ordinary(fast: Any) -> Callable[[str, bool], list[int]]:
    def plainly(text: str, first: bool) -> list[int]:
        found: list[int] = fast.encode_ordinary(text).ids
        return found

    return plainly


def _gives(expected: bytes, digest: Callable[[], bytes]) -> bool:
    try:
        return digest() == expected
    except Exception:  # what it cannot encode is a reason to do without it, whatever it raises
        return False
