"""Ids back to text, a batch at a time, never splitting a code point.

Promise: the pieces that `feed` returns, joined with `flush`, are what decoding all ids at once gives; only how broken
bytes are replaced may differ, and only in vocabularies that are not byte-level. Work per token is constant.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from turnwire.prompts.prompt import Detokenizer
from turnwire.prompts.tokenizers.facts import AddedToken

__all__ = [
    "ByteDecoding",
    "ByteDetokenizer",
    "Decoding",
    "TokenBytes",
    "WindowDecoding",
    "WindowDetokenizer",
    "byte_alphabet",
]

_REPLACEMENT = "\ufffd"
_HELD_IDS = 8


def byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: printable Latin-1 bytes stand for
    themselves, the others for the code points from 256 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


class TokenBytes(dict[int, bytes]):
    """The bytes of each token of a byte-level vocabulary, worked out on first use."""

    def __init__(self, spell: Callable[[int], str | None], fixed: dict[int, bytes]) -> None:
        super().__init__(fixed)
        self._spell = spell
        self._alphabet = byte_alphabet()

    def __missing__(self, token: int) -> bytes:
        spelled = self._spell(token)
        if spelled is None:  # an id the vocabulary does not have; engines pad their vocabularies
            found = b""
        else:
            try:
                found = bytes([self._alphabet[char] for char in spelled])
            except KeyError:
                found = spelled.encode()
        self[token] = found
        return found


class ByteDetokenizer:
    """For byte-level vocabularies: a table of bytes per token, and the bytes of an unfinished code point held back."""

    def __init__(self, table: TokenBytes) -> None:
        self._table = table
        self._held = b""

    def feed(self, ids: Sequence[int]) -> str:
        raw = self._table[ids[0]] if len(ids) == 1 else b"".join(map(self._table.__getitem__, ids))
        if self._held:
            raw = self._held + raw
        text, used = utf_8_decode(raw, "replace", False)
        self._held = raw[used:]
        return text

    def lengths(self, ids: Sequence[int]) -> list[int] | None:
        """How many characters each id spells, None where one of them is not in ASCII."""
        spelled = list(map(self._table.__getitem__, ids))
        return list(map(len, spelled)) if b"".join(spelled).isascii() else None

    def flush(self) -> str:
        text, _ = utf_8_decode(self._held, "replace", True)
        self._held = b""
        return text


class WindowDetokenizer:
    """For every other vocabulary: decodes a short window and gives out what the newest ids added to it. Text that ends
    in a replacement character waits for more ids, but not for more than a code point can need."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._given = 0

    def feed(self, ids: Sequence[int]) -> str:
        self._window.extend(ids)
        before = self._window[: self._given]
        known = self._decode(before) if before else ""
        text = self._decode(self._window)
        if len(text) <= len(known):
            return ""
        if text.endswith(_REPLACEMENT) and len(self._window) - self._given < _HELD_IDS + len(ids):
            return self._early(known)
        return self._give(text[len(known) :])

    def _early(self, known: str) -> str:
        """What can be given out although the window's end cannot: everything before the unfinished code point."""
        for end in range(len(self._window) - 1, max(self._given, len(self._window) - _HELD_IDS), -1):
            text = self._decode(self._window[:end])
            if len(text) > len(known) and not text.endswith(_REPLACEMENT):
                rest = self._window[end:]
                del self._window[end:]
                given = self._give(text[len(known) :])
                self._window.extend(rest)
                return given
        return ""

    def _give(self, text: str) -> str:
        # The ids just given stay as context: a vocabulary may treat the first token of a text differently.
        del self._window[: self._given]
        self._given = len(self._window)
        return text

    def flush(self) -> str:
        known = self._decode(self._window[: self._given]) if self._given else ""
        text = self._decode(self._window)[len(known) :]
        self._window.clear()
        self._given = 0
        return text


class Decoding(Protocol):
    """How a tokenizer's ids become text."""

    def detokenizer(self, skip_special: bool) -> Detokenizer: ...

    def decode(self, ids: Sequence[int], skip_special: bool) -> str: ...


class ByteDecoding:
    """Of a byte-level vocabulary: `spell` gives a token as it is written there, `added` are those written as text."""

    def __init__(self, spell: Callable[[int], str | None], added: Mapping[int, AddedToken]) -> None:
        self._whole = TokenBytes(spell, {id_: token.content.encode() for id_, token in added.items()})
        kept = {id_: b"" if token.special else token.content.encode() for id_, token in added.items()}
        self._skipping = TokenBytes(spell, kept)

    def detokenizer(self, skip_special: bool) -> Detokenizer:
        return ByteDetokenizer(self._skipping if skip_special else self._whole)

    def decode(self, ids: Sequence[int], skip_special: bool) -> str:
        detokenizer = self.detokenizer(skip_special)
        return detokenizer.feed(ids) + detokenizer.flush()


class WindowDecoding:
    """Of every other vocabulary: `decode` is a library's."""

    def __init__(self, decode: Callable[[Sequence[int], bool], str]) -> None:
        self.decode = decode

    def detokenizer(self, skip_special: bool) -> Detokenizer:
        return WindowDetokenizer(lambda ids: self.decode(ids, skip_special))
