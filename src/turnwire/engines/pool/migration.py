"""A turn's tokens so far, whichever workers produced them, and how the next worker goes on from there.

Promise: sans-IO. The text that leaves is what the ids spell, also where a character or held text was cut between two
workers; counts are those of one turn.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from turnwire.engines.interface import Completion, GenerateRequest, TokenBatch
from turnwire.prompts.prompt import Detokenizer, Tokenizer

__all__ = ["Migration"]


class Migration:
    """One turn on its way. `structured` is set once events, which no other worker can continue, have left."""

    __slots__ = (
        "_detokenizer",
        "_emitted",
        "_ids",
        "_leg_start",
        "_legs",
        "_request",
        "_text_only",
        "_tokenizer",
        "said",
        "structured",
    )

    def __init__(self, request: GenerateRequest, tokenizer: Tokenizer) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._ids = array("I")
        self._emitted = 0
        self._legs = 0
        self._leg_start = 0
        self._text_only = False
        self._detokenizer: Detokenizer | None = None
        self.said = 0
        self.structured = False

    @property
    def fresh(self) -> bool:
        """Nothing has reached the client yet."""
        return not self._emitted and not self.structured

    @property
    def ids(self) -> Sequence[int]:
        """All tokens so far whose ids are known."""
        return self._ids

    @property
    def count(self) -> int:
        """How many tokens there are."""
        return len(self._ids)

    @property
    def movable(self) -> bool:
        """Whether another worker can go on: nothing was said yet, or every token's id is known and no grammar is
        half-way through."""
        if self.structured or self._text_only:
            return False
        return not self._ids or self._request.constraint is None

    def request(self) -> GenerateRequest:
        """The request for the next worker: the prompt plus the tokens so far."""
        self._legs += 1
        self.said = 0
        self._leg_start = len(self._ids)
        if not self._ids:
            return self._request
        wanted = self._request.sampling.max_tokens
        left = None if wanted is None else wanted - len(self._ids)
        return msgspec.structs.replace(
            self._request,
            prompt_ids=[*self._request.prompt_ids, *self._ids],
            resumed=len(self._ids),
            sampling=msgspec.structs.replace(self._request.sampling, max_tokens=left),
        )

    def passed(self, batch: TokenBatch) -> TokenBatch:
        """Take note of a batch on its way out."""
        ids = batch.ids
        if self._legs > 1:
            # The new worker knows nothing of a character cut between the two, nor of text held back: decode here.
            batch = TokenBatch(self._decoded(ids), ids, batch.logprobs)
        self._emitted += len(batch.text)
        if ids:
            self.said += len(ids)
            self._ids.extend(ids)
        else:
            self.said += 1
            self._text_only = self._text_only or bool(batch.text)
        return batch

    def _decoded(self, ids: Sequence[int]) -> str:
        held = ""
        if self._detokenizer is None:
            self._detokenizer = self._tokenizer.detokenizer()
            held = self._detokenizer.feed(self._ids.tolist())[self._emitted :]
        return held + self._detokenizer.feed(ids)

    def completed(self, completion: Completion) -> Completion:
        """The end, with the counts of the whole turn."""
        if self._legs == 1:
            return completion
        prompt = len(self._request.prompt_ids)
        return msgspec.structs.replace(
            completion,
            prompt_tokens=prompt,
            output_tokens=self._leg_start + completion.output_tokens,
            cached_tokens=min(completion.cached_tokens, prompt),
        )

    def already_complete(self) -> Completion | None:
        """The end, if the budget was spent exactly when the worker failed: nothing is left to generate."""
        wanted = self._request.sampling.max_tokens
        if wanted is None or len(self._ids) < wanted:
            return None
        return Completion("length", len(self._request.prompt_ids), len(self._ids))
