"""The tokenizer that a GGUF file carries in its metadata.

Promise: the ids of the model's own tokenizer, for byte-level BPE vocabularies whose way of splitting words is in our
table. Any other kind is refused with a TokenizerError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from turnwire.prompts.tokenizers.detokenizer import byte_alphabet
from turnwire.prompts.tokenizers.gguf_file import Value
from turnwire.prompts.tokenizers.patterns import BY_GGUF_NAME, PATTERNS
from turnwire.prompts.tokenizers.ranks import byte_level
from turnwire.prompts.tokenizers.reference import TokenizerError

if TYPE_CHECKING:
    import tokenizers

__all__ = ["from_gguf_metadata"]

_CONTROL, _USER_DEFINED, _UNUSED, _NORMAL = 3, 4, 5, 1
_WHOLE_WORDS = frozenset(("cl100k", "o200k", "tekken"))
_INSTEAD = "give the model's tokenizer.json instead (--tokenizer)"


def from_gguf_metadata(metadata: Mapping[str, Value]) -> tokenizers.Tokenizer:
    """The tokenizer described by `tokenizer.ggml.*`."""
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise TokenizerError(f"the GGUF file's tokenizer is of kind {model!r}; only 'gpt2' is read: {_INSTEAD}")
    pre = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if pre not in BY_GGUF_NAME:
        known = ", ".join(sorted(BY_GGUF_NAME))
        raise TokenizerError(f"the GGUF file splits words as {pre!r}; known are {known}: {_INSTEAD}")
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    merges = _strings(metadata, "tokenizer.ggml.merges")
    types = metadata.get("tokenizer.ggml.token_type")
    kinds = types if isinstance(types, list) and len(types) == len(tokens) else [_NORMAL] * len(tokens)
    alphabet = byte_alphabet()
    ranks: dict[bytes, int] = {}
    added: dict[str, tuple[int, bool]] = {}
    for id_, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind in (_CONTROL, _USER_DEFINED):
            added[token] = (id_, kind == _CONTROL)
        elif kind != _UNUSED:
            try:
                ranks[bytes([alphabet[char] for char in token])] = id_
            except KeyError:
                raise TokenizerError(f"token {id_} ({token!r}) is not spelled in bytes: {_INSTEAD}") from None
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    name = BY_GGUF_NAME[str(pre)]
    return byte_level(ranks, PATTERNS[name], added, merges=pairs, whole_words=name in _WHOLE_WORDS)


def _strings(metadata: Mapping[str, Value], key: str) -> list[str]:
    found = metadata.get(key)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise TokenizerError(f"the GGUF file has no {key}: {_INSTEAD}")
    return [str(item) for item in found]
