"""A faster library, which the server brings where it is built for the machine; taken only where it gives the same ids.

Promise: `compared` holds it against the reference on texts that exercise what tokenizers differ in (added tokens,
blanks, digits, scripts, broken sequences) and on every id of the vocabulary, and says how much of the reference it can
stand in for.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from turnwire.prompts.tokenizers.detokenizer import ByteDecoding, Decoding
from turnwire.prompts.tokenizers.facts import Facts
from turnwire.prompts.tokenizers.hf import Encoder
from turnwire.prompts.tokenizers.reference import Reference

__all__ = ["FastEncoder", "compared", "import_fast"]

_PROBES = (
    "",
    " ",
    "Hello, world! It's 12345 o'clock;\tshe'll\n\n  wait...\r\n\r\n   ",
    "def f(x: int) -> str:\n    return f'{x!r:>10}'  # comment\n\n\n",
    '{"k": [1.5e-3, null, true], "\\u00e9": "a\\nb"}',
    "你好，世界。 日本語のテキスト 한국어 текст на русском العربية हिन्दी ไทย",
    "e\u0301 \u00e9 \ufb01 \u212b \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u200b\u00a0\ufeff",
    "<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>\n\n<tool_call>\n{}\n</tool_call><tool_call",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=================================--------- ~~~~ ////",
)

# Engines pad their vocabularies: ids a little beyond the last one are asked for too.
_BEYOND = 1024


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


def compared(fast: Any | None, reference: Reference) -> tuple[Encoder, Decoding]:
    """What encodes and what decodes: the reference where `fast` (fastokens' tokenizer of the same file) is None or
    encodes otherwise; both of them where it only encodes alike; `fast` alone where it is equal in everything, and then
    nothing given out holds the reference."""
    if fast is None or not _encodes_alike(fast, reference):
        return reference, reference.decoding
    if _stands_in(fast, reference):
        return FastEncoder(fast, _ordinary(fast)), ByteDecoding(fast.id_to_token, reference.facts.added)
    return FastEncoder(fast, reference.encode_uncontrolled), reference.decoding


def _encodes_alike(fast: Any, reference: Reference) -> bool:
    def encodings() -> Iterator[tuple[object, object]]:
        fast.no_truncation()
        fast.no_padding()
        for probe in _probes(reference.facts):
            yield fast.encode(probe).ids, reference.encode(probe)

    return _equal(encodings())


def _stands_in(fast: Any, reference: Reference) -> bool:
    """Whether text in which no token is recognised, and every token's spelling, are equal too. An added token that is
    ordinary text is recognised by the reference there, and not by `fast`."""
    facts = reference.facts
    if facts.ordinary or facts.first_differs or not facts.byte_level:
        return False
    plainly, ids = _ordinary(fast), range(max(facts.size, *facts.added, 0) + _BEYOND)
    return _equal(
        (plainly(probe, True), reference.encode_uncontrolled(probe, True)) for probe in _probes(facts)
    ) and _equal((fast.id_to_token(id_), reference.spell(id_)) for id_ in ids)


def _ordinary(fast: Any) -> Callable[[str, bool], list[int]]:
    def plainly(text: str, first: bool) -> list[int]:
        found: list[int] = fast.encode_ordinary(text).ids
        return found

    return plainly


def _equal(pairs: Iterable[tuple[object, object]]) -> bool:
    try:
        return all(one == other for one, other in pairs)
    except Exception:  # what it cannot encode is a reason to do without it, whatever it raises
        return False


def _probes(facts: Facts) -> list[str]:
    added = [token.content for token in facts.added.values()]
    return [*_PROBES, "x ".join(added[:64]), " x".join(added[-64:]), *_mixed(added[:64])]


def _mixed(added: list[str]) -> list[str]:
    """Texts in which scripts, blanks, digits, signs and added tokens meet in ever other ways, always the same ones."""
    chance = random.Random(0)  # noqa: S311 - the same texts every time
    parts = [*" \n\t'\"._-/=#0123456789", "  ", "\n\n", "\r\n", "'ll", "n't", "\u00a0", "\u0301", *added]
    words = [word for probe in _PROBES for word in probe.split(" ")]
    return ["".join(chance.choices(words + parts, k=40)) for _ in range(150)]
