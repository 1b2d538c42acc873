"""A tokenizer backed by the `tokenizers` library.

Promise: `encode` recognises added tokens and adds none, gives the ids of the library's own `encode`, and lets other
threads run meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from turnwire.prompts.prompt import Detokenizer
from turnwire.prompts.size import Density
from turnwire.prompts.tokenizers.detokenizer import ByteDetokenizer, TokenBytes, WindowDetokenizer
from turnwire.prompts.tokenizers.literals import Markers, encode_around
from turnwire.prompts.tokenizers.patterns import SAFE_EXPRESSIONS
from turnwire.prompts.tokenizers.spellings import is_control, longest_of

if TYPE_CHECKING:
    import tokenizers

__all__ = ["BatchEncoder", "Cuts", "HFTokenizer", "TokenizerError", "import_tokenizers"]

_SHORT = 512

# A blank starts anew in every Unicode normal form: nothing before it composes with it or with anything after it.
_NORMAL_FORMS = frozenset(("NFC", "NFKC", "NFD", "NFKD"))


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


class BatchEncoder(Protocol):
    """Encodes texts, each as if it stood alone."""

    def __call__(self, texts: list[str]) -> list[list[int]]: ...


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


class HFTokenizer:
    """See the module's promise. `fast` is another library's encoder that was found to give the same ids."""

    def __init__(self, inner: tokenizers.Tokenizer, *, name: str, fast: BatchEncoder | None = None) -> None:
        inner.no_truncation()
        inner.no_padding()
        self.name = name
        self._inner = inner
        self._fast = fast
        self._added = inner.get_added_tokens_decoder()
        self._pipes: dict[str, Any] = _pipes(inner)
        self._byte_level = _has_type(self._pipes["decoder"], "ByteLevel")

    def prepare(self) -> None:
        """Work out now what the first request would wait for."""
        _ = self.density, self.markers, self.cuts

    @property
    def fast(self) -> bool:
        """Whether another library encodes."""
        return self._fast is not None

    def encode(self, text: str) -> list[int]:
        return self._fast([text])[0] if self._fast is not None else self.encode_many([text])[0]

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """Each text's ids, as `encode` gives them."""
        if self._fast is not None:
            return self._fast(texts)
        if sum(map(len, texts)) < _SHORT:  # then starting the library's threads costs more than they save
            return [self._inner.encode(text, add_special_tokens=False).ids for text in texts]
        # Of the library's encoders this one lets other threads run and computes no offsets.
        found = self._inner.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def encode_literal(self, text: str, literal: Sequence[tuple[int, int]]) -> list[int]:
        return encode_around(text, literal, self.markers, self.encode, self.encode_plain)

    def may_cut(self, text: str, at: int) -> bool:
        return text.startswith(self._clean, at) if text[at : at + 1] in self._clean_first else False

    @cached_property
    def _clean(self) -> tuple[str, ...]:
        """The added tokens beside which text may be cut, unless a longer one begins there too."""
        whole = {text for text in self.special_tokens if text not in self.cuts.clean}
        return tuple(text for text in self.cuts.clean if not any(other.startswith(text) for other in whole))

    @cached_property
    def _clean_first(self) -> frozenset[str]:
        return frozenset(text[0] for text in self._clean)

    def encode_plain(self, text: str, first: bool) -> list[int]:
        """The ids of text without a single control token, whatever it spells. `first`: it begins its text."""
        ids = self._plainly(text, first)
        if self._control_ids.isdisjoint(ids):
            return ids
        # The vocabulary itself joins characters to a control token: keep those characters apart.
        ids, at = [], 0
        for found in self._control_spellings.finditer(text):
            for end in (found.start(), *range(found.start() + 1, found.end() + 1)):
                if end > at:
                    ids += self._plainly(text[at:end], first and at == 0)
                    at = end
        return ids + (self._plainly(text[at:], first and at == 0) if at < len(text) else [])

    def _plainly(self, text: str, first: bool) -> list[int]:
        beginning, later, moved = self._plain
        found: list[int] = (beginning if first else later).encode(text, add_special_tokens=False).ids
        return [moved.get(id_, id_) for id_ in found] if moved else found

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        if not self._byte_level:
            return self._inner.decode(list(ids), skip_special_tokens=skip_special)
        detokenizer = self.detokenizer(skip_special=skip_special)
        return detokenizer.feed(ids) + detokenizer.flush()

    def detokenizer(self, *, skip_special: bool = False) -> Detokenizer:
        if self._byte_level:
            return ByteDetokenizer(self._skipping if skip_special else self._spelling)
        return WindowDetokenizer(lambda ids: self._inner.decode(list(ids), skip_special_tokens=skip_special))

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        return {token.content: id_ for id_, token in self._added.items()}

    @cached_property
    def control_tokens(self) -> dict[str, int]:
        return {token.content: id_ for id_, token in self._added.items() if is_control(token.content, token.special)}

    @cached_property
    def density(self) -> Density | None:
        """How much text a token can hold. Byte-level tokens hold as many characters as bytes at most; other
        vocabularies may make one token of any unknown text."""
        if not self._byte_level or self._pipes["model"]["type"] != "BPE":
            return None
        forms = _parts(self._pipes["normalizer"])
        if any(part["type"] not in _NORMAL_FORMS for part in forms):
            return None
        if any(token.lstrip or token.rstrip for token in self._added.values()):
            return None  # such a token takes any number of blanks along
        longest = max(map(len, self._inner.get_vocab(with_added_tokens=True)))
        return Density(longest, bool(forms), self.cuts.after_letter)

    @cached_property
    def markers(self) -> Markers:
        """Every added token, and which of them take blanks along."""
        added = self._added.values()
        return Markers(
            expression=longest_of(self.special_tokens) if self._added else None,
            takes_before=frozenset(token.content for token in added if token.lstrip),
            takes_after=frozenset(token.content for token in added if token.rstrip),
        )

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.control_tokens.values())

    @cached_property
    def _control_spellings(self) -> re.Pattern[str]:
        return longest_of(self.control_tokens)

    @cached_property
    def _plain(self) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer, dict[int, int]]:
        """The same tokenizer without control tokens, over the same vocabulary in memory: for what begins a text, and
        for what comes later; and the ids that its other added tokens have here, by those they have there."""
        ordinary = {id_: token for id_, token in self._added.items() if token.content not in self.control_tokens}

        def made(pre_tokenizer: Any) -> tokenizers.Tokenizer:
            plain: tokenizers.Tokenizer = import_tokenizers().Tokenizer(self._inner.model)
            if self._inner.normalizer is not None:
                plain.normalizer = self._inner.normalizer
            if pre_tokenizer is not None:
                plain.pre_tokenizer = pre_tokenizer
            plain.add_tokens(list(ordinary.values()))
            return plain

        beginning = made(self._inner.pre_tokenizer)
        later = made(_never_first(self._pipes["pre_tokenizer"])) if _first_differs(self._pipes) else beginning
        there = {id_: beginning.token_to_id(token.content) for id_, token in ordinary.items()}
        return beginning, later, {other: id_ for id_, other in there.items() if other is not None and other != id_}

    @property
    def vocab_size(self) -> int:
        return self._inner.get_vocab_size()

    @cached_property
    def cuts(self) -> Cuts:
        """Where this tokenizer's texts may be cut."""
        added = self._added.values()
        first = [token.content for token in added if not token.normalized]
        greedy = {token.content for token in added if token.lstrip or token.rstrip or token.single_word}
        inside = [token.content for token in added if token.normalized]
        return Cuts(
            markers=longest_of(first) if first else None,
            clean={text: self.special_tokens[text] for text in first if text not in greedy},
            after_letter=not greedy and not any(" " in text for text in inside) and _cuts_after_letter(self._pipes),
            first_differs=_first_differs(self._pipes),
        )

    @cached_property
    def _spelling(self) -> TokenBytes:
        return TokenBytes(self._inner.id_to_token, {id_: t.content.encode() for id_, t in self._added.items()})

    @cached_property
    def _skipping(self) -> TokenBytes:
        fixed = {id_: b"" if t.special else t.content.encode() for id_, t in self._added.items()}
        return TokenBytes(self._inner.id_to_token, fixed)


def _pipes(inner: tokenizers.Tokenizer) -> dict[str, Any]:
    """The tokenizer's own description of its steps, without the vocabulary."""
    found: dict[str, Any] = {}
    for step in ("normalizer", "pre_tokenizer", "decoder", "model"):
        part = getattr(inner, step)
        state = None if part is None else part.__getstate__()
        if step == "model":
            found[step] = {"dropout": getattr(part, "dropout", None), "type": type(part).__name__}
        else:
            found[step] = None if state is None else msgspec.json.decode(state)
    return found


def _parts(step: Any) -> list[dict[str, Any]]:
    """A step's parts in order; a sequence is flattened."""
    if step is None:
        return []
    for key in ("pretokenizers", "normalizers", "decoders"):
        if key in step:
            return [inner for part in step[key] for inner in _parts(part)]
    return [step]


def _has_type(step: Any, kind: str) -> bool:
    return any(part["type"] == kind for part in _parts(step))


def _cuts_after_letter(pipes: dict[str, Any]) -> bool:
    """Whether every step is one that we know to end a word between a letter and a blank."""
    if pipes["model"]["type"] != "BPE" or pipes["model"]["dropout"]:
        return False
    if any(part["type"] not in _NORMAL_FORMS for part in _parts(pipes["normalizer"])):
        return False
    splits = False
    for part in _parts(pipes["pre_tokenizer"]):
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


def _first_differs(pipes: dict[str, Any]) -> bool:
    """Whether the first part of a text gets a blank that later parts do not get."""
    return any(part.get("prepend_scheme") == "first" for part in _parts(pipes["pre_tokenizer"]))


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
