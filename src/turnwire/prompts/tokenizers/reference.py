"""The `tokenizers` library, by whose ids all others are judged.

Promise: `Reference` gives the ids of the library's own `encode` without truncation or padding, and lets other threads
run meanwhile.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from turnwire.prompts.tokenizers.detokenizer import ByteDecoding, Decoding, WindowDecoding
from turnwire.prompts.tokenizers.facts import Facts, facts_of

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Reference", "TokenizerError", "import_tokenizers"]

_SHORT = 512


class TokenizerError(ValueError):
    """A tokenizer that cannot be loaded; the message says what to change."""


def import_tokenizers() -> Any:
    """The `tokenizers` library, or a TokenizerError that says how to get it."""
    try:
        import tokenizers
    except ImportError:
        raise TokenizerError(
            "the `tokenizers` library is not installed; install it with: pip install 'turnwire[server]'"
        ) from None
    return tokenizers


class Reference:
    """The library's tokenizer as an `Encoder`; see the module's promise."""

    fast = False

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self.facts: Facts = facts_of(inner)

    def encode(self, text: str) -> list[int]:
        return self.encode_many([text])[0]

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        if sum(map(len, texts)) < _SHORT:  # then starting the library's threads costs more than they save
            return [self._inner.encode(text, add_special_tokens=False).ids for text in texts]
        # Of the library's encoders this one lets other threads run and computes no offsets.
        found = self._inner.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def encode_uncontrolled(self, text: str, first: bool) -> list[int]:
        beginning, later, moved = self._plain
        found: list[int] = (beginning if first else later).encode(text, add_special_tokens=False).ids
        return [moved.get(id_, id_) for id_ in found] if moved else found

    def spell(self, token: int) -> str | None:
        """A token as the vocabulary writes it."""
        return self._inner.id_to_token(token)

    @property
    def decoding(self) -> Decoding:
        """How ids become text."""
        if self.facts.byte_level:
            return ByteDecoding(self.spell, self.facts.added)
        return WindowDecoding(lambda ids, skip: self._inner.decode(list(ids), skip_special_tokens=skip))

    @cached_property
    def _plain(self) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer, dict[int, int]]:
        """The same tokenizer without control tokens, over the same vocabulary in memory: for what begins a text, and
        for what comes later; and the ids that its other added tokens have here, by those they have there."""
        library, ordinary = import_tokenizers(), self.facts.ordinary

        def made(pre_tokenizer: Any) -> tokenizers.Tokenizer:
            plain: tokenizers.Tokenizer = library.Tokenizer(self._inner.model)
            if self._inner.normalizer is not None:
                plain.normalizer = self._inner.normalizer
            if pre_tokenizer is not None:
                plain.pre_tokenizer = pre_tokenizer
            plain.add_tokens([library.AddedToken(**msgspec.structs.asdict(token)) for token in ordinary.values()])
            return plain

        beginning = made(self._inner.pre_tokenizer)
        later = made(_never_first(self.facts.steps["pre_tokenizer"])) if self.facts.first_differs else beginning
        there = {id_: beginning.token_to_id(token.content) for id_, token in ordinary.items()}
        return beginning, later, {other: id_ for id_, other in there.items() if other is not None and other != id_}


def _never_first(pre_tokenizer: Any) -> Any:
    """A pre-tokenizer that treats every text as one that comes later."""

    def changed(step: Any) -> Any:
        if isinstance(step, dict):
            never = {"prepend_scheme": "never"} if step.get("prepend_scheme") == "first" else {}
            return {key: changed(value) for key, value in step.items()} | never
        return [changed(item) for item in step] if isinstance(step, list) else step

    parts = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    model = {"type": "BPE", "vocab": {}, "merges": []}
    described = {"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": changed(pre_tokenizer)}
    whole = msgspec.json.encode(described | dict.fromkeys(parts)).decode()
    return import_tokenizers().Tokenizer.from_str(whole).pre_tokenizer
