"""One worker of a pool: its engine, what it can do, its load, its cache, its health.

Promise: what a worker can do is what was found when it last came up; a turn is given only to one that can do all that
the turn asks for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from turnwire.engines.bridge import pull
from turnwire.engines.interface import Constraint, Engine, EngineError, EngineInfo, GenerateRequest, Hints
from turnwire.engines.kv_source import KVSource
from turnwire.engines.pool.health import Health, State
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_estimate import KVEstimate
from turnwire.engines.pool.kv_index import Held, KVIndex
from turnwire.engines.pool.routing.in_flight import InFlight
from turnwire.engines.pool.routing.load import Load
from turnwire.turns import Conversation, Sampling

__all__ = ["CacheFeed", "Worker"]

log = logging.getLogger("turnwire.workers")

_PROBE_SECONDS = 6.0
_START_SECONDS = 120.0
_ESTIMATED = 64
"""Tokens in a block of the estimate."""


class CacheFeed(Protocol):
    """What brings a worker's events into the index, under `name`. `complete`: what is not in the index is not held."""

    name: str

    @property
    def complete(self) -> bool: ...

    def gone(self) -> None:
        """The worker went away."""
        ...

    async def close(self) -> None:
        """Bring nothing more."""
        ...


class Worker:
    """See the module. `active` counts running turns; `info` is what was found; a `draining` worker gets no new turn.
    `label` is shown to clients in place of the name, which is an address."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.label = ""
        self.active = 0
        self.load = Load()
        self.reading = InFlight()
        self.draining = False
        self.info: EngineInfo | None = None
        self.health = Health()
        self.index: KVIndex | None = None
        self._estimate = KVEstimate()
        self._feeds: list[CacheFeed] = []
        self._discovered = True

    @property
    def state(self) -> State:
        return self.health.state

    @property
    def down(self) -> bool:
        return self.health.state == "down"

    def admits(self, now: float) -> bool:
        """Whether a turn may be given to it."""
        return not self.draining and self.health.admits(now)

    def lack(self, request: GenerateRequest) -> str | None:
        """What a turn asks for and this worker cannot do."""
        capabilities = self.engine.capabilities
        if request.constraint is not None and _kind(request.constraint) not in capabilities.guided:
            return "guided decoding of this kind"
        if request.images and not capabilities.images:
            return "images"
        if request.hints.cache_salt and not capabilities.cache_salt:
            return "separate caches for tenants"
        window = self.info.window if self.info is not None else None
        return "a window this large" if window is not None and len(request.prompt_ids) >= window else None

    # ------------------------------------------------------------------------------------------------------ cache

    @property
    def publishes(self) -> bool:
        """Whether it publishes all that its cache holds."""
        return bool(self._feeds) and all(feed.complete for feed in self._feeds)

    def holds(self, prompt: PromptBlocks, told: Mapping[str, Held], now: float) -> Held:
        """What its cache holds of a prompt's beginning: as it publishes itself (`told`, the index's answer), else as it
        probably does."""
        said = max((told[feed.name] for feed in self._feeds if feed.name in told), key=_tokens, default=Held())
        if self.publishes:
            return said
        probably = _ESTIMATED * self._estimate.overlap(prompt.of(_ESTIMATED), now)
        return said if said.tokens >= probably else Held(probably, probably)

    def reads(self, prompt: PromptBlocks) -> int:
        """How many leading tokens of a prompt it is reading now, for other turns."""
        size = self._block_size
        return size * self.reading.overlap(prompt.of(size)) if len(self.reading) else 0

    def takes(self, prompt: PromptBlocks, turn: int, now: float) -> None:
        """A turn's prompt goes there: those that follow at once will find it."""
        self.reading.add(turn, prompt.of(self._block_size))
        if not self.publishes:
            self._estimate.sent(prompt.of(_ESTIMATED), now)

    def served(self, prompt: PromptBlocks, said: Sequence[int], now: float) -> None:
        """A prompt was read there to its end, and an answer written."""
        if not self.publishes:
            self._estimate.served(prompt.then(_ESTIMATED, said), now)

    @property
    def _block_size(self) -> int:
        told = self.index.block_size(self._feeds[0].name) if self._feeds and self.index is not None else 0
        return told or _ESTIMATED

    def _listen(self, sources: Sequence[KVSource]) -> None:
        if self._feeds or self.index is None or not sources:
            return
        try:
            from turnwire.engines.pool.kv_subscriber import KVSubscriber
        except ImportError:
            log.warning("%s publishes KV events; to receive them: pip install turnwire[kv-events]", self.name)
            return
        # An engine that was started again holds nothing that it was sent before.
        feeds = [
            KVSubscriber(source, self.index, f"{self.name}#{rank}", self._estimate.clear)
            for rank, source in enumerate(sources)
        ]
        self.listen_to([feed for feed in feeds if feed.open()])

    def listen_to(self, feeds: Sequence[CacheFeed]) -> None:
        """Believe of its cache what the index knows under the names of these feeds."""
        self._feeds = list(feeds)

    # ---------------------------------------------------------------------------------------------------- probing

    async def start(self) -> EngineInfo:
        """Connect or load, and find out what it is; also after it was gone. EngineError if it cannot be had."""
        self._discovered = False
        self.info = await self.engine.start()
        self._discovered = True
        self._listen(self.info.kv_events)
        return self.info

    async def close(self) -> None:
        """Close the engine, and stop listening to its cache."""
        feeds, self._feeds = self._feeds, []
        for feed in feeds:
            await feed.close()
        await self.engine.close()

    def gone(self) -> None:
        """It went away: what it had cached is lost, and what comes back may be another."""
        self._estimate.clear()
        for feed in self._feeds:
            feed.gone()
        self._discovered = False

    async def probe(self, thorough: bool) -> tuple[bool, bool]:
        """Whether it does what is asked of it, and whether it answers at all."""
        try:
            if self.info is not None or self._discovered:
                async with asyncio.timeout(_PROBE_SECONDS):
                    if not await self.engine.health():
                        return False, False
            if not self._discovered:
                async with asyncio.timeout(_START_SECONDS):
                    await self.start()
        except (EngineError, TimeoutError):
            return False, False
        except Exception:
            # It may be another server by now; whoever asks goes on asking.
            log.exception("a defect in the adapter of %s", self.name)
            return False, False
        if thorough and self.engine.capabilities.yields == "tokens":
            return await self._generates(), True
        return True, True

    async def _generates(self) -> bool:
        """Whether one token of one token comes out."""
        request = GenerateRequest(
            prompt_ids=[1],
            sampling=Sampling(max_tokens=1),
            hints=Hints(request_id=f"probe-{self.name}"),
            conversation=Conversation(model="", messages=()),
        )
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                async for _step in pull(self.engine, request):
                    pass
        except EngineError as error:
            # Whoever refuses such a short prompt is alive and has an opinion.
            return error.kind in ("invalid_request", "context_overflow")
        except TimeoutError:
            return False
        except Exception:
            log.exception("a defect in the adapter of %s", self.name)
            return False
        return True


def _tokens(held: Held) -> int:
    return held.tokens


def _kind(constraint: Constraint) -> str:
    return next(name for name in Constraint.__struct_fields__ if getattr(constraint, name) is not None)
