"""The values of the prompt room: a built prompt, its sections, and the turns that can be recalled exactly.

Promise: `Prompt.ids` is what the engine gets, token for token; `sections` cover it without gaps, so that a divergence
at token k can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from turnwire.prompts.size import Density
from turnwire.turns import Block, Message, Note

__all__ = [
    "BegunTurn",
    "Detokenizer",
    "HistoryKey",
    "Prompt",
    "Recall",
    "RecalledTurn",
    "ScopedRecall",
    "Section",
    "Tokenizer",
    "TurnForesight",
]


class Section(msgspec.Struct, frozen=True, gc=False):
    """A run of prompt tokens `[start, end)` and where it came from: `turn` is an assistant turn replayed exactly,
    `message` is one rendered by the template, `frame` is template text between them."""

    kind: Literal["system", "tools", "message", "turn", "frame", "generation"]
    index: int
    start: int
    end: int


class HistoryKey:
    """What precedes a turn, as digests. `strict` covers the system text, the tools and every message. `loose`, for
    turns whose random call ids already show where they come from, leaves out the tools and the clock in the system
    text; a turn may have several. These are found out when they are asked for: a turn without calls never does, and a
    long system text that is new takes a millisecond."""

    __slots__ = ("_loose", "strict")

    def __init__(self, *, strict: bytes, loose: tuple[bytes, ...] | Callable[[], tuple[bytes, ...]]) -> None:
        self.strict = strict
        self._loose = loose

    @property
    def loose(self) -> tuple[bytes, ...]:
        if not isinstance(self._loose, tuple):
            self._loose = self._loose()
        return self._loose

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HistoryKey) and (self.strict, self.loose) == (other.strict, other.loose)

    def __hash__(self) -> int:
        return hash(self.strict)


class TurnForesight(Protocol):
    """Knows what the template will make of a turn when its client sends it back."""

    def restores(self, ids: Sequence[int], kept: int, rest: Sequence[Block]) -> bool:
        """Whether the client's words for `rest`, written after the first `kept` ids, give all of `ids` again."""
        ...


class BegunTurn(msgspec.Struct, frozen=True, gc=False):
    """The words of the client's that a turn begins with, and the tokens that they are in the prompt."""

    text: str
    ids: Sequence[int]


class Prompt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A prompt ready for an engine. `tail` is the rendered text after the last message (the generation header and any
    pre-filled thought), from which the parser's start state is derived. `history` is the key under which the turn it
    asks for can be found again; `stamp` is the template's clock, where it has one; `foresight` tells at the turn's end
    whether it can be written again from its words. `begun` is how the client began the turn, where it did and did so
    with text: the prompt and its `tail` end with that."""

    ids: Sequence[int]
    tail: str
    sections: tuple[Section, ...] = ()
    notes: tuple[Note, ...] = ()
    history: HistoryKey | None = None
    stamp: str = ""
    foresight: TurnForesight | None = None
    begun: BegunTurn | None = None

    @property
    def header(self) -> str:
        """The tail without what the client began."""
        return self.tail if self.begun is None else self.tail[: -len(self.begun.text)]


class RecalledTurn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One assistant turn as the model wrote it: its output token ids and raw text. `complete` is false where only a
    leading part could be recalled, that of the message's first `blocks` blocks. `tail` is the end of the prompt it was
    written after (`Prompt.tail`), if that is known; it tells a turn begun inside a thought from one begun outside."""

    ids: Sequence[int]
    text: str
    complete: bool = True
    blocks: int = 0
    tail: str | None = None


class Recall(Protocol):
    """Where exact turns come from: seals in the message itself, or a store that knows what each turn was said after."""

    def recall(
        self, message: Message, history: HistoryKey | None = None
    ) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
        """The turn that an assistant message shows, which follows `history`; or None with notes that say why (foreign,
        tampered, missing). Without a history only seals can tell."""
        ...


class ScopedRecall(Recall, Protocol):
    """A recall that says what its answers depend on besides message and history (tenant, model, session): what was
    recalled without a note is recalled again alike under the same scope, so it need not be asked for."""

    @property
    def scope(self) -> str: ...


class Detokenizer(Protocol):
    """Turns ids into text incrementally and never splits a code point."""

    def feed(self, ids: Sequence[int]) -> str: ...

    def flush(self) -> str:
        """What was held back, with replacement characters for bytes that never completed."""
        ...


class Tokenizer(Protocol):
    """Exact tokenization. `encode` of prompt text recognises special tokens and adds none."""

    def encode(self, text: str) -> list[int]: ...

    def encode_literal(self, text: str, literal: Sequence[tuple[int, int]]) -> list[int]:
        """The same, but the ascending spans `literal` are ordinary characters even where they spell a special token."""
        ...

    def may_cut(self, text: str, at: int) -> bool:
        """Whether a special token starts at `at` and the ids of what comes before and after, each by itself, are those
        of the whole."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str: ...

    def detokenizer(self, *, skip_special: bool = False) -> Detokenizer: ...

    @property
    def special_tokens(self) -> dict[str, int]:
        """Every added or special token's text and id."""
        ...

    @property
    def control_tokens(self) -> dict[str, int]:
        """Those of them that only the template and the model may write."""
        ...

    @property
    def density(self) -> Density | None:
        """How much text a token can hold; None where that has no bound."""
        ...

    @property
    def vocab_size(self) -> int: ...
