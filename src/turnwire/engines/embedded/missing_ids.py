"""Ids that llama.cpp left out of its stream, worked out from the bytes that became visible.

Promise: what is found spells exactly those bytes with exactly as many tokens. llama.cpp holds back tokens that end
inside a code point and then reports only the last id of the group; each of the others is a vocabulary entry that is no
whole text by itself, and there are few of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwire.engines.interface import GenerateRequest
from turnwire.engines.llamacpp import LlamaCppReading, LlamaCppTokenizer
from turnwire.prompts.tokenizers.detokenizer import byte_alphabet

__all__ = ["EmbeddedReading", "Fragments"]


class Fragments:
    """The entries of a vocabulary that are not a whole text. `kind` is the vocabulary's kind as GGUF names it:
    byte-level ones spell bytes as characters, the others have one entry per byte (`<0xE2>`)."""

    def __init__(self, kind: object, tokens: Sequence[str]) -> None:
        alphabet = byte_alphabet() if kind == "gpt2" else None
        self._ids: dict[bytes, int] = {}
        for token, name in enumerate(tokens):
            if alphabet is None:
                if len(name) == 6 and name.startswith("<0x"):
                    self._ids[bytes([int(name[3:5], 16)])] = token
            elif all(character in alphabet for character in name):
                spelled = bytes(alphabet[character] for character in name)
                if not _is_text(spelled):
                    self._ids[spelled] = token
        self._spelled = {token: spelled for spelled, token in self._ids.items()}

    def recover(self, text: str, count: int, told: Sequence[int]) -> list[int] | None:
        """The `count` ids that spell `text` and end with the reported one; None where that cannot be."""
        last = self._spelled.get(told[-1]) if told else None
        whole = text.encode("utf-8")
        if last is None or not whole.endswith(last):
            return None
        found = self._partition(whole[: len(whole) - len(last)], count - 1)
        return None if found is None else [*found, told[-1]]

    def _partition(self, spelled: bytes, parts: int) -> tuple[int, ...] | None:
        """`spelled` in exactly `parts` fragments, longest first, as byte-pair merging does. A group is one or two code
        points, so the search is short."""
        if parts == 0:
            return None if spelled else ()
        for size in range(len(spelled) - parts + 1, 0, -1):
            token = self._ids.get(spelled[:size])
            if token is not None:
                rest = self._partition(spelled[size:], parts - 1)
                if rest is not None:
                    return (token, *rest)
        return None


def _is_text(spelled: bytes) -> bool:
    try:
        spelled.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class EmbeddedReading(LlamaCppReading):
    """The stream of the server in this process, whose vocabulary is at hand."""

    def __init__(
        self, request: GenerateRequest, tokenizer: LlamaCppTokenizer, specials: frozenset[int], fragments: Fragments
    ) -> None:
        super().__init__(request, tokenizer, specials)
        self._fragments = fragments

    def _take(self, chunk: Any, count: int, texts: list[str], ids: list[int]) -> None:
        found = self._fragments.recover(chunk.content, count, chunk.tokens) if count > len(chunk.tokens) else None
        if found is None:
            super()._take(chunk, count, texts, ids)
            return
        ids += found
        texts.append(self._finder.feed(chunk.content))
