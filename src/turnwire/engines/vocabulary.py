"""Whether the tokenizer here is that of the model an engine serves, and which ids the engine can take.

Promise: sans-IO. An id that the engine's model does not have is never sent to it: some engines end by one, for all
their users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnwire.engines.interface import EngineError
from turnwire.token_ids import TokenIds

__all__ = ["Vocabulary", "check_ids", "differences", "foreign", "id_count", "sample"]

_SAMPLES = 48


class Vocabulary(Protocol):
    """The part of a tokenizer that is compared."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_tokens(self) -> dict[str, int]: ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str: ...


def id_count(tokenizer: Vocabulary) -> int:
    """One more than the highest id that the tokenizer can give."""
    return max(tokenizer.vocab_size, 1 + max(tokenizer.special_tokens.values(), default=0))


def sample(count: int) -> list[int]:
    """Ids to compare: spread over all, the last one among them."""
    step = max(count // _SAMPLES, 1)
    return sorted({*range(0, count, step), count - 1})


def differences(tokenizer: Vocabulary, ids: Sequence[int], theirs: Sequence[str]) -> list[tuple[int, str, str]]:
    """The ids that spell something else at the engine: with our text and the engine's. Parts of characters, which
    have no text of their own, are not compared."""
    found = []
    for token, text in zip(ids, theirs, strict=False):
        ours = tokenizer.decode((token,))
        if ours != text and "\ufffd" not in ours and "\ufffd" not in text:
            found.append((token, ours, text))
    return found


def foreign(tokenizer: Vocabulary, ids: Sequence[int], theirs: Sequence[str]) -> list[str]:
    """The warning that the tokenizer here is not the engine's, where it is not."""
    if not (found := differences(tokenizer, ids, theirs)):
        return []
    token, ours, text = found[0]
    return [
        f"the tokenizer is not the server's: token {token} is {ours!r} here and {text!r} there "
        f"({len(found)} of {len(ids)} differ); give the model's own with --tokenizer"
    ]


def check_ids(ids: Sequence[int], count: int) -> None:
    """EngineError where an id is not below `count`."""
    if isinstance(ids, TokenIds) and ids.below(count):
        return
    if max(ids, default=0) >= count or min(ids, default=0) < 0:
        wrong = next(token for token in ids if not 0 <= token < count)
        raise EngineError(
            "invalid_request",
            f"the prompt has the token id {wrong}, but the engine's vocabulary ends at {count - 1}; "
            "the tokenizer is not this model's",
        )
