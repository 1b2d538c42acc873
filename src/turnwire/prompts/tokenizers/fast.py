"""A faster library, which the server brings where it is built for the machine; taken only where it gives the same ids.

Promise: `compared` holds it against what the reference says (`evidence`), and finds out how much of the reference it
can stand in for.
"""

from __future__ import annotations

import os
import threading
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


# What a thread encodes first is shared between it and the library's own thread: that makes its table a small one. The
# other may take both texts, so it is done again. Their words are too long for a table of 32 MB that the library's
# threads have in common.
_FIRST = ["a" * 40] * 2
_TIMES = 100
# If the other took them every time, the large tables are made by this one: it is long enough for the library to let
# Python's other threads run meanwhile.
_LONG = " ".join(["a" * 40] * 1024)


class FastTokenizer(threading.local):
    """fastokens' tokenizer as each thread finds it: prepared when the thread first uses it.

    A thread that begins with a text of its own gets a copy of a table of the whole vocabulary, which is made for the
    first one: 16 MB each. One that begins with its part of a shared task has a table of what it has seen, 2 MB at
    first; either gives the same ids. On a machine with one core tasks are not shared, and the large tables are made.
    """

    def __init__(self, inner: Any) -> None:
        for _ in range(_TIMES):
            inner.encode_batch(_FIRST)
        inner.encode(_LONG)
        self.encode: Callable[[str], Any] = inner.encode
        self.encode_ordinary: Callable[[str], Any] = inner.encode_ordinary


class FastEncoder:
    """The faster library's tokenizer as an `Encoder`; `plainly` encodes text in which no control token is
    recognised."""

    fast = True

    def __init__(self, tokenizer: FastTokenizer, plainly: Callable[[str, bool], list[int]]) -> None:
        self.tokenizer = tokenizer
        self.encode_uncontrolled = plainly

    def encode(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text).ids
        return found

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        encode = self.tokenizer.encode
        return [encode(text).ids for text in texts]


def import_fast() -> Any | None:
    """fastokens; None where it is not installed."""
    # One thread of its own: with none, each thread that encodes takes sixteen megabytes. More would only take longer to
    # start than most prompts take.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "2")
    try:
        return import_module("fastokens")
    except ImportError:
        return None


def compared(fast: Any, evidence: Evidence, reference: Callable[[], Reference]) -> tuple[Encoder, Decoding]:
    """What encodes and what decodes: the reference where `fast` (fastokens' tokenizer of the same file) encodes
    otherwise; both of them where it only encodes alike; `fast` alone where it is equal in everything, and then the
    reference is not asked for."""
    own = _encodes_alike(fast, evidence)
    if own is None:
        whole = reference()
        return whole, whole.decoding
    if _stands_in(fast, own, evidence):
        return own, ByteDecoding(fast.id_to_token, evidence.facts.added)
    whole = reference()
    return FastEncoder(own.tokenizer, whole.encode_uncontrolled), whole.decoding


def _encodes_alike(fast: Any, evidence: Evidence) -> FastEncoder | None:
    """The encoder, where its ids are equal."""
    try:
        fast.no_truncation()
        fast.no_padding()
        tokenizer = FastTokenizer(fast)
        found = FastEncoder(tokenizer, _ordinary(tokenizer))
        return found if encodings(found.encode, evidence.facts) == evidence.encodings else None
    except Exception:  # as in `_gives`
        return None


def _stands_in(fast: Any, own: FastEncoder, evidence: Evidence) -> bool:
    """Whether text in which no token is recognised, and every token's spelling, are equal too."""
    facts = evidence.facts
    return (
        replaceable(facts)
        and _gives(evidence.uncontrolled, lambda: uncontrolled_encodings(own.encode_uncontrolled, facts))
        and _gives(evidence.spellings, lambda: spellings(fast.id_to_token, facts))
    )


def _ordinary(tokenizer: FastTokenizer) -> Callable[[str, bool], list[int]]:
    def plainly(text: str, first: bool) -> list[int]:
        found: list[int] = tokenizer.encode_ordinary(text).ids
        return found

    return plainly


def _gives(expected: bytes, digest: Callable[[], bytes]) -> bool:
    try:
        return digest() == expected
    except Exception:  # what it cannot encode is a reason to do without it, whatever it raises
        return False
