"""A tokenizer as a `tokenizer.json` describes it, whichever library encodes.

Promise: `encode` recognises added tokens and adds none, gives the ids of the `tokenizers` library's own `encode`, and
lets other threads run meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from turnwire.prompts.prompt import Detokenizer
from turnwire.prompts.size import Density
from turnwire.prompts.tokenizers.detokenizer import Decoding
from turnwire.prompts.tokenizers.facts import Cuts, Facts, cuts_of, density_of, markers_of
from turnwire.prompts.tokenizers.literals import Markers, encode_around
from turnwire.prompts.tokenizers.spellings import longest_of

__all__ = ["Encoder", "HFTokenizer"]


class Encoder(Protocol):
    """What makes ids of text. `fast`: in less time than a cache of text parts is looked up."""

    @property
    def fast(self) -> bool: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """The ids of several texts, each as if it stood alone."""
        ...

    def encode_uncontrolled(self, text: str, first: bool) -> list[int]:
        """The ids of text in which no control token is recognised, although the vocabulary may still join characters
        to one. `first`: it begins its text."""
        ...


class HFTokenizer:
    """See the module's promise."""

    def __init__(self, facts: Facts, encoder: Encoder, decoding: Decoding, *, name: str) -> None:
        self.name = name
        self._facts = facts
        self._encoder = encoder
        self._decoding = decoding
        self.encode = encoder.encode
        self.encode_many = encoder.encode_many

    def called(self, name: str) -> HFTokenizer:
        """The same tokenizer, with nothing of it twice in memory, by another name."""
        return HFTokenizer(self._facts, self._encoder, self._decoding, name=name)

    def prepare(self) -> None:
        """Work out now what the first request would wait for."""
        _ = self.density, self.markers, self.cuts

    @property
    def fast(self) -> bool:
        """Whether short texts are encoded in less time than their parts are looked up."""
        return self._encoder.fast

    def encode_literal(self, text: str, literal: Sequence[tuple[int, int]]) -> list[int]:
        return encode_around(text, literal, self.markers, self.encode, self.encode_plain)

    def may_cut(self, text: str, at: int) -> bool:
        if text[at : at + 1] not in self._clean_first or not text.startswith(self._clean, at):
            return False
        # A token that began before would go on here.
        return at == 0 or text[at - 1 : at + 1] not in self._inside

    @cached_property
    def _clean(self) -> tuple[str, ...]:
        """The added tokens beside which text may be cut, unless a longer one begins there too."""
        whole = {text for text in self.special_tokens if text not in self.cuts.clean}
        return tuple(text for text in self.cuts.clean if not any(other.startswith(text) for other in whole))

    @cached_property
    def _clean_first(self) -> frozenset[str]:
        return frozenset(text[0] for text in self._clean)

    @cached_property
    def _inside(self) -> frozenset[str]:
        """The pairs of characters in added tokens of which the second one may begin a token."""
        pairs = (pair for text in self.special_tokens for pair in map("".join, pairwise(text)))
        return frozenset(pair for pair in pairs if pair[1] in self._clean_first)

    def encode_plain(self, text: str, first: bool) -> list[int]:
        """The ids of text without a single control token, whatever it spells. `first`: it begins its text."""
        plainly = self._encoder.encode_uncontrolled
        ids = plainly(text, first)
        if self._control_ids.isdisjoint(ids):
            return ids
        # The vocabulary itself joins characters to a control token: keep those characters apart.
        ids, at = [], 0
        for found in self._control_spellings.finditer(text):
            for end in (found.start(), *range(found.start() + 1, found.end() + 1)):
                if end > at:
                    ids += plainly(text[at:end], first and at == 0)
                    at = end
        return ids + (plainly(text[at:], first and at == 0) if at < len(text) else [])

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return self._decoding.decode(ids, skip_special)

    def detokenizer(self, *, skip_special: bool = False) -> Detokenizer:
        return self._decoding.detokenizer(skip_special)

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        return {token.content: id_ for id_, token in self._facts.added.items()}

    @cached_property
    def control_tokens(self) -> dict[str, int]:
        return {token.content: id_ for id_, token in self._facts.added.items() if token.control}

    @property
    def vocab_size(self) -> int:
        return self._facts.size

    @cached_property
    def cuts(self) -> Cuts:
        """Where this tokenizer's texts may be cut."""
        return cuts_of(self._facts)

    @cached_property
    def markers(self) -> Markers:
        """Every added token, and which of them take blanks along."""
        return markers_of(self._facts)

    @cached_property
    def density(self) -> Density | None:
        """How much text a token can hold, where that is known."""
        return density_of(self._facts, self.cuts)

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.control_tokens.values())

    @cached_property
    def _control_spellings(self) -> re.Pattern[str]:
        return longest_of(self.control_tokens)
