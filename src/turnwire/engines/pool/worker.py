"""One worker of a pool: its engine, what it can do, its load, its cache, its health.

Promise: what a worker can do is what was found when it last came up; a turn is given only to one that can do all that
the turn asks for.
"""

from __future__ import annotations

import asyncio

from turnwire.engines.bridge import pull
from turnwire.engines.interface import Constraint, Engine, EngineError, EngineInfo, GenerateRequest, Hints
from turnwire.engines.pool.health import Health, State
from turnwire.engines.pool.prefix_index import PrefixIndex
from turnwire.turns import Conversation, Sampling

__all__ = ["Worker"]

_PROBE_SECONDS = 6.0
_START_SECONDS = 120.0


class Worker:
    """See the module. `active` counts running turns; `info` is what was found; a `draining` worker gets no new turn."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.active = 0
        self.draining = False
        self.info: EngineInfo | None = None
        self.health = Health()
        self.cache = PrefixIndex()
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
        if request.hints.cache_salt and not capabilities.cache_salt:
            return "separate caches for tenants"
        window = self.info.window if self.info is not None else None
        return "a window this large" if window is not None and len(request.prompt_ids) >= window else None

    # ---------------------------------------------------------------------------------------------------- probing

    async def start(self) -> EngineInfo:
        """Connect or load, and find out what it is; also after it was gone. EngineError if it cannot be had."""
        self._discovered = False
        self.info = await self.engine.start()
        self._discovered = True
        return self.info

    def gone(self) -> None:
        """It went away: what it had cached is lost, and what comes back may be another."""
        self.cache.clear()
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
        return True


def _kind(constraint: Constraint) -> str:
    return next(name for name in Constraint.__struct_fields__ if getattr(constraint, name) is not None)
