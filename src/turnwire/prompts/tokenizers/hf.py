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
from turnwire.prompts.tokenizers.detokenizer import ByteDetokenizer, TokenBytes, WindowDetokenizer
from turnwire.prompts.tokenizers.patterns import SAFE_EXPRESSIONS

if TYPE_CHECKING:
    import tokenizers

__all__ = ["BatchEncoder", "Cuts", "HFTokenizer", "TokenizerError", "import_tokenizers"]

# A blank starts anew in every Unicode normal form: nothing before it composes with it or anything behind it.
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
    `clean` stand alone, so the text may be cut on both sides of them. `after_letter` says that it may also be cut
    between an ASCII letter and a blank. `first_differs` says that a text's first part is treated differently."""

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

    def encode(self, text: str) -> list[int]:
        return self.encode_many([text])[0]

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """Each text's ids, as `encode` gives them."""
        if self._fast is not None:
            return self._fast(texts)
        # Of the library's encoders this one lets other threads run and computes no offsets.
        found = self._inner.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

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
            markers=_longest_of(first) if first else None,
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


def _longest_of(texts: list[str]) -> re.Pattern[str]:
    """An expression that finds the leftmost, longest of the texts; a tree, because there may be thousands of them."""
    root: dict[str, Any] = {}
    for text in texts:
        node = root
        for char in text:
            node = node.setdefault(char, {})
        node[""] = {}

    def spell(node: dict[str, Any]) -> str:
        ends = "" in node
        branches = [re.escape(char) + spell(below) for char, below in node.items() if char]
        if not branches:
            return ""
        if len(branches) == 1 and not ends:
            return branches[0]
        return "(?:" + "|".join(branches) + ")" + ("?" if ends else "")

    return re.compile("(" + spell(root) + ")")


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
