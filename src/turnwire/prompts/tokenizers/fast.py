"""A faster encoder, which the server brings where it is built for the machine; taken only where it gives the same ids.

Promise: `equal_encoder` compares it with the reference on texts that exercise what tokenizers differ in (added tokens,
blanks, digits, scripts, broken sequences) and gives None at the first difference.
"""

from __future__ import annotations

import os
import random
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from turnwire.prompts.tokenizers.hf import BatchEncoder

if TYPE_CHECKING:
    import tokenizers

__all__ = ["equal_encoder"]

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


class _Cuts(msgspec.Struct):
    """What a tokenizer's file does to the length of what it encodes; prompts want none of it."""

    truncation: dict[str, Any] | None = None
    padding: dict[str, Any] | None = None


def equal_encoder(reference: tokenizers.Tokenizer, described: str) -> BatchEncoder | None:
    """fastokens' encoder for the same `tokenizer.json` text, where it is installed, can read it and agrees; else
    None."""
    # Each of its own threads takes tens of megabytes and longer to start than a whole prompt takes without them.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    try:
        fastokens: Any = import_module("fastokens")
    except ImportError:
        return None
    try:
        cuts = msgspec.json.decode(described, type=_Cuts)
        if cuts.truncation is not None or cuts.padding is not None:
            reference.no_truncation()
            reference.no_padding()
            described = reference.to_str()
        fast = fastokens.Tokenizer.from_json_str(described)
        added = [token.content for token in reference.get_added_tokens_decoder().values()]
        probes = [*_PROBES, "x ".join(added[:64]), " x".join(added[-64:]), *_mixed(added[:64])]
        for probe in probes:
            expected: list[int] = reference.encode(probe, add_special_tokens=False).ids
            if fast.encode(probe).ids != expected:
                return None
    except Exception:  # a file it cannot read is a reason to do without it, whatever it raises
        return None

    def encode(texts: list[str]) -> list[list[int]]:
        return [fast.encode(text).ids for text in texts]

    return encode


def _mixed(added: list[str]) -> list[str]:
    """Texts in which scripts, blanks, digits, signs and added tokens meet in ever other ways, always the same ones."""
    chance = random.Random(0)  # noqa: S311 - the same texts every time
    parts = [*" \n\t'\"._-/=#0123456789", "  ", "\n\n", "\r\n", "'ll", "n't", "\u00a0", "\u0301", *added]
    words = [word for probe in _PROBES for word in probe.split(" ")]
    return ["".join(chance.choices(words + parts, k=40)) for _ in range(150)]
