"""A turn's tokens so far, whichever workers produced them, and how the next worker goes on from there.

Promise: sans-IO. The text that leaves is what the ids spell, also where a character, held text or a stop string was
cut between two workers; counts are those of one turn.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from turnwire.engines.http.spelling import Speller
from turnwire.engines.interface import Completion, GenerateRequest, TokenBatch
from turnwire.prompts.prompt import Tokenizer

__all__ = ["Migration"]


class Migration:
    """One turn on its way. `ids` are all its tokens so far whose ids are known, `emitted` the characters that left, and
    `said` what came of the worker that it is on. `structured` is set once events, which no other worker can continue,
    have left; `stopped` is the stop string that a turn met after it had moved."""

    __slots__ = (
        "_held",
        "_leg_start",
        "_request",
        "_speller",
        "_text_only",
        "_tokenizer",
        "emitted",
        "ids",
        "said",
        "stopped",
        "structured",
    )

    def __init__(self, request: GenerateRequest, tokenizer: Tokenizer) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self.ids = array("I")
        self.emitted = 0
        self._held = ""
        self._leg_start = 0
        self._text_only = False
        self._speller: Speller | None = None
        self.said = 0
        self.stopped: str | None = None
        self.structured = False

    @property
    def fresh(self) -> bool:
        """Nothing has reached the client yet."""
        return not self.emitted and not self.structured

    @property
    def running(self) -> bool:
        """Whether output only has to be counted on its way out: it is of the turn's first worker, and not its first."""
        return self.said > 0 and not self._leg_start

    @property
    def count(self) -> int:
        """How many tokens there are."""
        return len(self.ids)

    @property
    def movable(self) -> bool:
        """Whether another worker can go on: nothing was said yet, or every token's id is known and no grammar is
        half-way through."""
        if self.structured or self._text_only:
            return False
        return not self.ids or self._request.constraint is None

    def request(self) -> GenerateRequest:
        """The request for the next worker: the prompt plus the tokens so far."""
        self.said = 0
        self._leg_start = len(self.ids)
        if not self.ids:
            return self._request
        wanted = self._request.sampling.max_tokens
        left = None if wanted is None else wanted - len(self.ids)
        return msgspec.structs.replace(
            self._request,
            prompt_ids=[*self._request.prompt_ids, *self.ids],
            resumed=self._request.resumed + len(self.ids),
            sampling=msgspec.structs.replace(self._request.sampling, max_tokens=left),
        )

    def passed(self, batch: TokenBatch) -> TokenBatch:
        """Take note of a batch on its way out."""
        ids = batch.ids
        if self._leg_start:
            # The new worker knows nothing of a character cut between the two, nor of text held back: decode here.
            text, taken = self._spelled(ids)
            ids = ids[:taken]
            batch = TokenBatch(text, ids, batch.logprobs[:taken])
        if ids:
            self.said += len(ids)
            self.ids.extend(ids)
        else:
            self.said += 1
            self._text_only = self._text_only or (bool(batch.text) and not self._leg_start)
        # Once the ids are noted, which may be none that can be.
        self.emitted += len(batch.text)
        return batch

    def _spelled(self, ids: Sequence[int]) -> tuple[str, int]:
        """The text that became certain, and how many of `ids` it took; none after a stop string."""
        speller = self._speller or self._spell_again()
        held, self._held = self._held, ""
        if self.stopped is not None:
            return held, 0
        text, taken = speller.feed(ids)
        self.stopped = speller.stopped_by
        return held + text, taken

    def _spell_again(self) -> Speller:
        """Spell what there is, as the next worker's tokens will be: what no client got of it is `_held`. The worker
        that wrote it may have gone right behind a stop string."""
        speller = self._speller = Speller(self._tokenizer, self._request.sampling.stop)
        text, taken = speller.feed(self.ids.tolist())
        self._held = text[self.emitted :]
        self.stopped = speller.stopped_by
        del self.ids[taken:]
        return speller

    def rest(self, completion: Completion | None = None) -> str:
        """What was held back of the text, now that no token follows; where the turn has not moved, its worker said it
        itself before its `completion`."""
        if completion is not None and (not self._leg_start or completion.stop_sequence is not None):
            return ""
        held, _ = self._spelled(())
        assert self._speller is not None
        rest = held + self._speller.flush()
        self.stopped = self._speller.stopped_by
        return rest

    def completed(self, completion: Completion) -> Completion:
        """The end, with the counts of the whole turn."""
        if not self._leg_start:
            return completion
        prompt = len(self._request.prompt_ids)
        cached = min(completion.cached_tokens, prompt)
        if self.stopped is not None:
            # The worker may not have seen it, and have gone on behind it, perhaps to another one.
            return Completion("stop_sequence", prompt, len(self.ids), cached, self.stopped)
        return msgspec.structs.replace(
            completion,
            prompt_tokens=prompt,
            output_tokens=self._leg_start + completion.output_tokens,
            cached_tokens=cached,
        )

    def already_complete(self) -> Completion | None:
        """The end, where nothing is left to generate: the budget was spent exactly when the worker failed, the worker
        failed right behind a stop string, or two workers wrote one that neither saw whole."""
        if self._speller is None and self.ids and self._request.sampling.stop:
            self._spell_again()
        wanted, prompt, count = self._request.sampling.max_tokens, len(self._request.prompt_ids), len(self.ids)
        if self.stopped is not None:
            return Completion("stop_sequence", prompt, count, 0, self.stopped)
        if wanted is None or not 0 < wanted <= count:
            return None
        return Completion("length", prompt, count)
