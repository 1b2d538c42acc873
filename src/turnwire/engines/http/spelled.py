"""What adapters of engines that give token ids only share: the tokenizer that spells them, and how a stream is cut.

Promise: a reading's ids and log probabilities end with the token that completed a stop string, as its text does.
"""

from __future__ import annotations

from turnwire.engines.http.engine import HTTPEngine, Reading
from turnwire.engines.http.spelling import Speller, SpellingTokenizer
from turnwire.engines.interface import GenerateRequest, TokenLogprob

__all__ = ["SpelledReading", "SpellingEngine"]


class SpelledReading(Reading):
    """A stream of ids. `prompt_tokens` counts where the engine reports no count of its own."""

    def __init__(self, engine: str, prompt_tokens: int, speller: Speller) -> None:
        self._engine = engine
        self._prompt = prompt_tokens
        self._speller = speller

    def _spell(self, ids: list[int], logprobs: list[TokenLogprob]) -> str:
        """The text that became certain; what comes after a stop string is taken out of both lists."""
        text, taken = self._speller.feed(ids)
        del ids[taken:], logprobs[taken:]
        return text


class SpellingEngine(HTTPEngine):
    """Base of the adapters whose engine gives ids: the model's own tokenizer comes along."""

    def __init__(
        self, base_url: str, tokenizer: SpellingTokenizer, *, model: str | None = None, api_key: str | None = None
    ) -> None:
        super().__init__(base_url, model=model, api_key=api_key)
        self._tokenizer = tokenizer

    def _speller(self, request: GenerateRequest) -> Speller:
        return Speller(self._tokenizer, request.sampling.stop)
