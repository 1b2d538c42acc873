"""A small library that is searched by meaning: texts and their embeddings, in memory.

Promise: texts are embedded once, when the first search comes; the nearest come first. It is offered to a model as a
tool like any other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any

import msgspec

from turnwire.agent.endpoint import Endpoint
from turnwire.agent.tools import Tool

__all__ = ["Library", "Passage"]

_AT_ONCE = 64


class Passage(msgspec.Struct, frozen=True):
    """A text and how near it is to what was searched for, up to 1."""

    text: str
    score: float


class Library:
    """`model` is the embedding model. `input_types`: send `input_type` query and passage, which some models need.
    `endpoint` is used where it is given, instead of one for `base_url`."""

    def __init__(
        self,
        base_url: str,
        model: str,
        texts: Iterable[str] = (),
        *,
        api_key: str | None = None,
        input_types: bool = False,
        endpoint: Endpoint | None = None,
    ) -> None:
        self._endpoint = endpoint or Endpoint(base_url, api_key=api_key)
        self._model = model
        self._texts = list(texts)
        self._vectors: list[list[float]] = []
        self._input_types = input_types
        self._embedding = asyncio.Lock()

    def add(self, *texts: str) -> None:
        """More texts."""
        self._texts += texts

    async def search(self, query: str, count: int = 3) -> list[Passage]:
        """The nearest texts."""
        async with self._embedding:
            for start in range(len(self._vectors), len(self._texts), _AT_ONCE):
                self._vectors += await self._embed(self._texts[start : start + _AT_ONCE], "passage")
        (wanted,) = await self._embed([query], "query")
        scored = [
            Passage(text, sum(map(mul, wanted, vector)))
            for text, vector in zip(self._texts, self._vectors, strict=False)
        ]
        return sorted(scored, key=lambda passage: -passage.score)[:count]

    def tool(self, name: str, description: str, *, count: int = 3) -> Tool:
        """The search as a tool; the model reads the texts as a list."""

        async def search(query: str) -> str:
            """Search.

            Args:
                query: What to look for, in a few words or a question.
            """
            found = await self.search(query, count)
            return "\n".join(f"- {passage.text}" for passage in found) or "Nothing was found."

        return Tool(search, name=name, description=description)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    async def _embed(self, texts: Sequence[str], kind: str) -> list[list[float]]:
        extra: dict[str, Any] = {"input_type": kind} if self._input_types else {}
        return [_unit(vector) for vector in await self._endpoint.embed(self._model, texts, **extra)]


def _unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else vector
