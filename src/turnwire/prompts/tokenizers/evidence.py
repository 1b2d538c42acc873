"""What the reference says of a tokenizer file: short enough to be told by one process to another.

Promise: whoever gives equal digests gave equal ids for texts that exercise what tokenizers differ in (added tokens,
blanks, digits, scripts, broken sequences), or an equal spelling for every id of the vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from hashlib import blake2b

import msgspec

from turnwire.prompts.tokenizers.facts import Facts
from turnwire.prompts.tokenizers.reference import Reference

__all__ = ["Evidence", "encodings", "evidence_of", "replaceable", "spellings", "uncontrolled_encodings"]

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


class Evidence(msgspec.Struct, frozen=True):
    """The facts of a tokenizer and the digests of what its reference answers. The last two are empty where no other
    encoder could stand in for the reference altogether."""

    facts: Facts
    encodings: bytes
    uncontrolled: bytes = b""
    spellings: bytes = b""


def evidence_of(reference: Reference) -> Evidence:
    """What a reference says."""
    facts = reference.facts
    encoded = encodings(reference.encode, facts)
    if not replaceable(facts):
        return Evidence(facts, encoded)
    plain = uncontrolled_encodings(reference.encode_uncontrolled, facts)
    return Evidence(facts, encoded, plain, spellings(reference.spell, facts))


def replaceable(facts: Facts) -> bool:
    """Whether an encoder that is equal in everything could do without the reference. An added token that is ordinary
    text is recognised by the reference where control tokens are not, and by no other."""
    return facts.byte_level and not facts.ordinary and not facts.first_differs


def encodings(encode: Callable[[str], list[int]], facts: Facts) -> bytes:
    """The digest of the ids of every probe."""
    return _digest(map(encode, _probes(facts)))


def uncontrolled_encodings(encode: Callable[[str, bool], list[int]], facts: Facts) -> bytes:
    """The digest of the ids of every probe, with no control token recognised."""
    return _digest(encode(probe, True) for probe in _probes(facts))


def spellings(spell: Callable[[int], str | None], facts: Facts) -> bytes:
    """The digest of every token's spelling."""
    return _digest(map(spell, range(max(facts.size, *facts.added, 0) + _BEYOND)))


def _digest(answers: Iterable[list[int] | str | None]) -> bytes:
    found, encode = blake2b(digest_size=32), msgspec.msgpack.Encoder().encode
    for answer in answers:
        found.update(encode(answer))
    return found.digest()


def _probes(facts: Facts) -> list[str]:
    added = [token.content for token in facts.added.values()]
    return [*_PROBES, "x ".join(added[:64]), " x".join(added[-64:]), *_mixed(added[:64])]


def _mixed(added: list[str]) -> list[str]:
    """Texts in which scripts, blanks, digits, signs and added tokens meet in ever other ways, always the same ones."""
    chance = random.Random(0)  # noqa: S311 - the same texts every time
    parts = [*" \n\t'\"._-/=#0123456789", "  ", "\n\n", "\r\n", "'ll", "n't", "\u00a0", "\u0301", *added]
    words = [word for probe in _PROBES for word in probe.split(" ")]
    return ["".join(chance.choices(words + parts, k=40)) for _ in range(150)]
