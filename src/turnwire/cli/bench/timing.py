"""Times to the first token, and what can be said of a list of them.

Promise: the clock starts when the request is sent and stops at the first event that the engine's first token made; the
first request of a condition is kept apart; an interval is drawn from the measured times alone, with a fixed seed.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

__all__ = ["Client", "Timed", "interval"]

_LONGEST_ANSWER = 1 << 22


class Timed(msgspec.Struct):
    """One condition: times to the first token in ms, the first apart; tokens read from the cache and in the prompt; the
    engine's own part of each time where the engine reports it."""

    about: str
    cold: float
    times: list[float]
    cached: list[int]
    prompt: list[int]
    engine: list[float] = []

    @property
    def median(self) -> float:
        """The middle of the times."""
        return statistics.median(self.times)

    @property
    def share(self) -> float | None:
        """The middle of what was not the engine's time."""
        if not self.engine:
            return None
        return statistics.median(whole - part for whole, part in zip(self.times, self.engine, strict=True))


def interval(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """Between which bounds 95 of 100 medians lie, of samples drawn from `values` with replacement."""
    dice = random.Random(1)  # noqa: S311
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws) - 1]


class Client:
    """Asks one gateway over Messages. `last` asks the engine for its own time of the request just made."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        model: str | None = None,
        key: str | None = None,
        last: Callable[[], Awaitable[float]] | None = None,
    ) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._model = model
        self._headers = {"x-api-key": key} if key else {}
        self._last = last

    async def count(self, body: dict[str, Any]) -> int:
        """Prompt tokens of a request, as the gateway counts them."""
        asked = {k: v for k, v in body.items() if k not in ("max_tokens", "stream")}
        answer = await self._post("/v1/messages/count_tokens", asked)
        return int(msgspec.json.decode(answer)["input_tokens"])

    async def first_token(self, body: dict[str, Any]) -> tuple[float, int, int]:
        """Milliseconds until the first token, then cached and all prompt tokens."""
        began = time.perf_counter()
        data, first = b"", 0.0
        async with self._ask("/v1/messages", body) as answer:
            await self._refused(answer)
            while piece := await answer.content.readany():
                data += piece
                if not first and (b"content_block_start" in data or b"message_delta" in data):
                    first = (time.perf_counter() - began) * 1000
                if len(data) > _LONGEST_ANSWER:
                    raise RuntimeError("the answer to a request for one token is longer than 4 MiB")
        usage: dict[str, Any] = {}
        for line in data.split(b"\n"):
            if line.startswith(b"data: ") and (b'"message_start"' in line or b'"message_delta"' in line):
                event = msgspec.json.decode(line[6:])
                usage.update(event.get("usage") or event.get("message", {}).get("usage") or {})
        cached = int(usage.get("cache_read_input_tokens") or 0)
        return first, cached, cached + int(usage.get("input_tokens") or 0)

    async def said(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The blocks of a whole answer."""
        answer = await self._post("/v1/messages", body | {"stream": False})
        blocks: list[dict[str, Any]] = msgspec.json.decode(answer)["content"]
        return blocks

    async def measure(self, about: str, bodies: list[dict[str, Any]]) -> Timed:
        """Send all, one after another."""
        made = Timed(about, 0.0, [], [], [], [])
        for number, body in enumerate(bodies):
            took, cached, prompt = await self.first_token(body)
            if not number:
                made.cold = took
                continue
            made.times.append(took)
            made.cached.append(cached)
            made.prompt.append(prompt)
            if self._last is not None:
                made.engine.append(await self._last())
        return made

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        payload = body | ({"model": self._model} if self._model else {})
        return self._session.post(self._url + path, json=payload, headers=self._headers)

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        async with self._ask(path, body) as answer:
            await self._refused(answer)
            return bytes(await answer.read())

    async def _refused(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status != 200:
            raise RuntimeError(f"{self._url} answered {answer.status}: {(await answer.text())[:500]}")
