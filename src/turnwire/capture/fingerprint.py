"""Short names for what decides a prompt.

Promise: equal fingerprints of two tokenizers mean equal ids for equal texts, as far as a few hundred characters of many
scripts can tell.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from turnwire.prompts.prompt import Tokenizer

__all__ = ["fingerprint", "tokenizer_print"]

_PROBE = (
    "The quick brown fox: 12,345.67 € — naïve café?\n\n\tdef f(x):\n        return {'a': [1, 2]}  # ok\r\n"
    "Γειά σου Κόσμε. Привет, мир! שלום مرحبا नमस्ते 你好，世界。こんにちは 안녕하세요 🙂👩‍💻"
    "  <tool_call>\\u0041</tool_call>"
)


def fingerprint(value: object) -> str:
    """A short name for a value that JSON can hold."""
    return sha256(msgspec.json.encode(value)).hexdigest()[:32]


def tokenizer_print(tokenizer: Tokenizer) -> str:
    """The tokenizer by its size, its special tokens and how it cuts a text of many scripts."""
    return fingerprint([tokenizer.vocab_size, sorted(tokenizer.special_tokens.items()), tokenizer.encode(_PROBE)])
