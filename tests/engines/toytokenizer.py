"""A tokenizer for tests: special tokens, then words and single characters, then bytes of anything else."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

SPECIAL = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>")


class ToyDetokenizer:
    """Decodes ids; holds back an incomplete code point."""

    def __init__(self, tokenizer: ToyTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> str:
        return self._decoder.decode(b"".join(map(self._tokenizer.bytes_of, ids)))

    def flush(self) -> str:
        return self._decoder.decode(b"", True)


_IDS = {text: 256 + number for number, text in enumerate(SPECIAL)}
_TEXTS = {token: text for text, token in _IDS.items()}


class ToyTokenizer:
    """Ids: 0-255 bytes, then special tokens, then words in order of first sight; the same in every instance."""

    def __init__(self) -> None:
        self.special_tokens = {text: _IDS[text] for text in SPECIAL}
        self._ids = _IDS
        self._texts = _TEXTS
        self._pattern = re.compile("|".join(map(re.escape, SPECIAL)) + r"|[A-Za-z]+ ?|[\x00-\x7f]|[^\x00-\x7f]")

    @property
    def vocab_size(self) -> int:
        return 256 + len(self._ids)

    def bytes_of(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else self._texts[token].encode()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self._pattern.findall(text):
            if len(piece) == 1:
                ids.extend(piece.encode())
                continue
            if piece not in self._ids:
                self._ids[piece] = 256 + len(self._ids)
                self._texts[self._ids[piece]] = piece
            ids.append(self._ids[piece])
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        detokenizer = self.detokenizer(skip_special=skip_special)
        return detokenizer.feed(ids) + detokenizer.flush()

    def detokenizer(self, *, skip_special: bool = False) -> ToyDetokenizer:
        assert not skip_special, "engines must spell special tokens out"
        return ToyDetokenizer(self)
