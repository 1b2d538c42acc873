"""What is known of a tokenizer apart from its vocabulary: its added tokens, its steps, its size.

Promise: facts are taken once and hold no library's object, so that the library they were taken from can be let go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from turnwire.prompts.size import Density
from turnwire.prompts.tokenizers.literals import Markers
from turnwire.prompts.tokenizers.patterns import SAFE_EXPRESSIONS
from turnwire.prompts.tokenizers.spellings import is_control, longest_of

if TYPE_CHECKING:
    import tokenizers

__all__ = ["AddedToken", "Cuts", "Facts", "cuts_of", "density_of", "facts_of", "markers_of"]

# A blank starts anew in every Unicode normal form: nothing before it composes with it or with anything after it.
_NORMAL_FORMS = frozenset(("NFC", "NFKC", "NFD", "NFKD"))


class AddedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is found in a text before the vocabulary is asked."""

    content: str
    special: bool
    normalized: bool
    lstrip: bool
    rstrip: bool
    single_word: bool

    @property
    def control(self) -> bool:
        """Whether only the template and the model may write it."""
        return is_control(self.content, self.special)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`added` has the added tokens by id, `steps` the tokenizer's own description of what it does (`normalizer`,
    `pre_tokenizer`, `decoder`, `model`), `size` counts its tokens and `longest` the characters of the longest one's
    spelling, which is 0 where spellings do not bound what a token holds."""

    added: dict[int, AddedToken]
    steps: dict[str, Any]
    size: int
    longest: int = 0

    @property
    def byte_level(self) -> bool:
        """Whether tokens are spelled in an alphabet of bytes."""
        return any(part["type"] == "ByteLevel" for part in _parts(self.steps["decoder"]))

    @property
    def first_differs(self) -> bool:
        """Whether the first part of a text gets a blank that later parts do not get."""
        return any(part.get("prepend_scheme") == "first" for part in _parts(self.steps["pre_tokenizer"]))

    @property
    def ordinary(self) -> dict[int, AddedToken]:
        """The added tokens that are text to their model."""
        return {id_: token for id_, token in self.added.items() if not token.control}


class Cuts(msgspec.Struct, frozen=True, kw_only=True):
    """Where text may be cut so that the parts' tokens, joined, are the whole's tokens.

    `markers` finds the added tokens that are cut out of the text before anything else happens to it; those named in
    `clean` are apart from other text, so the text may be cut on both sides of them. `after_letter` says that it may
    also be cut between an ASCII letter and a blank. `first_differs` says that a text's first part is treated
    differently."""

    markers: re.Pattern[str] | None
    clean: dict[str, int]
    after_letter: bool
    first_differs: bool


def facts_of(inner: tokenizers.Tokenizer) -> Facts:
    """The facts of a tokenizer of the `tokenizers` library."""
    names, found = AddedToken.__struct_fields__, inner.get_added_tokens_decoder()
    added = {id_: AddedToken(**{name: getattr(token, name) for name in names}) for id_, token in found.items()}
    facts = Facts(added=added, steps=_steps(inner), size=inner.get_vocab_size())
    if not facts.byte_level:
        return facts
    return msgspec.structs.replace(facts, longest=max(map(len, inner.get_vocab(with_added_tokens=True)), default=0))


def cuts_of(facts: Facts) -> Cuts:
    """Where the tokenizer's texts may be cut."""
    added = facts.added.items()
    greedy = {token.content for _, token in added if token.lstrip or token.rstrip or token.single_word}
    inside = [token.content for _, token in added if token.normalized]
    first = {token.content: id_ for id_, token in added if not token.normalized}
    return Cuts(
        markers=longest_of(first) if first else None,
        clean={text: id_ for text, id_ in first.items() if text not in greedy},
        after_letter=not greedy and not any(" " in text for text in inside) and _cuts_after_letter(facts.steps),
        first_differs=facts.first_differs,
    )


def markers_of(facts: Facts) -> Markers:
    """Every added token, and which of them take blanks along."""
    added = facts.added.values()
    return Markers(
        expression=longest_of([token.content for token in added]) if added else None,
        takes_before=frozenset(token.content for token in added if token.lstrip),
        takes_after=frozenset(token.content for token in added if token.rstrip),
    )


def density_of(facts: Facts, cuts: Cuts) -> Density | None:
    """How much text a token can hold. Byte-level tokens hold as many characters as bytes at most; other vocabularies
    may make one token of any unknown text."""
    if not facts.byte_level or facts.steps["model"]["type"] != "BPE":
        return None
    forms = _parts(facts.steps["normalizer"])
    if any(part["type"] not in _NORMAL_FORMS for part in forms):
        return None
    if any(token.lstrip or token.rstrip for token in facts.added.values()):
        return None  # such a token takes any number of blanks along
    return Density(facts.longest, bool(forms), cuts.after_letter)


def _steps(inner: tokenizers.Tokenizer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": {"dropout": getattr(inner.model, "dropout", None), "type": type(inner.model).__name__}
    }
    for step in ("normalizer", "pre_tokenizer", "decoder"):
        part = getattr(inner, step)
        found[step] = None if part is None else msgspec.json.decode(part.__getstate__())
    return found


def _parts(step: Any) -> list[dict[str, Any]]:
    """A step's parts in order; a sequence is flattened."""
    if step is None:
        return []
    for key in ("pretokenizers", "normalizers", "decoders"):
        if key in step:
            return [inner for part in step[key] for inner in _parts(part)]
    return [step]


def _cuts_after_letter(steps: dict[str, Any]) -> bool:
    """Whether every step is one that we know to end a word between a letter and a blank."""
    if steps["model"]["type"] != "BPE" or steps["model"]["dropout"]:
        return False
    if any(part["type"] not in _NORMAL_FORMS for part in _parts(steps["normalizer"])):
        return False
    splits = False
    for part in _parts(steps["pre_tokenizer"]):
        if part["type"] == "Split":
            if part["pattern"].get("Regex") not in SAFE_EXPRESSIONS:
                return False
            splits = True
        elif part["type"] == "ByteLevel":
            if part["add_prefix_space"]:
                return False
            splits = splits or part["use_regex"]
        elif part["type"] != "Digits":
            return False
    return splits
