"""The engine cores at one address: which serve, how busy each is, and which one a session's turns go to.

Promise: sans-IO. A session stays with the core that holds its prefix unless that one is clearly busier than another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from turnwire.engines.interface import EngineError
from turnwire.engines.vllm_core.layouts import Ready
from turnwire.engines.vllm_core.zmtp import Peer

__all__ = ["Core", "Cores"]

_SESSIONS = 4096
_SLACK = 4
"""How many more generations its own core may have before a session goes elsewhere."""


class Core:
    """One engine core. `vocabulary` is the number of its model's tokens, 0 before it is learnt; `heard` is when it last
    said anything, `asked` since when it owes an answer to a call, `outputs` the connection that it said it on."""

    __slots__ = ("asked", "heard", "load", "outputs", "rank", "ready", "up", "vocabulary")

    def __init__(self, rank: int, ready: Ready) -> None:
        self.rank = rank
        self.ready = ready
        self.up = False
        self.vocabulary = 0
        self.load = 0
        self.heard = 0.0
        self.asked: float | None = None
        self.outputs: Peer | None = None


class Cores:
    """All of them, by rank."""

    def __init__(self) -> None:
        self._cores: dict[int, Core] = {}
        self._sessions: OrderedDict[str, int] = OrderedDict()

    def __iter__(self) -> Iterator[Core]:
        return iter(tuple(self._cores.values()))

    def add(self, core: Core) -> None:
        """Another one, or in the place of that of its rank."""
        self._cores[core.rank] = core

    def get(self, rank: int) -> Core | None:
        return self._cores.get(rank)

    def remove(self, rank: int) -> Core | None:
        """Forget a core: the one that was known."""
        return self._cores.pop(rank, None)

    def behind(self, link: Peer) -> list[Core]:
        """Those whose outputs come by a connection, as far as is known: else those of which no connection is known."""
        return [core for core in self._cores.values() if core.outputs is link] or [
            core for core in self._cores.values() if core.outputs is None
        ]

    @property
    def serving(self) -> bool:
        return any(core.up for core in self._cores.values())

    @property
    def complete(self) -> bool:
        """Whether all that belong together serve."""
        up = [core for core in self._cores.values() if core.up]
        return bool(up) and len(up) >= up[0].ready.data_parallel_size

    @property
    def version(self) -> str:
        """Whose they are."""
        return next(iter(self._cores.values())).ready.vllm_version

    @property
    def vocabulary(self) -> int:
        """The smallest vocabulary: the ids that every core has."""
        return min(core.vocabulary for core in self._cores.values())

    @property
    def window(self) -> int:
        """The smallest window: what every core can take."""
        return min(core.ready.max_model_len for core in self._cores.values())

    def choose(self, session: str | None) -> Core:
        """The core for the next generation, or EngineError(unreachable)."""
        serving = [core for core in self._cores.values() if core.up]
        if not serving:
            raise EngineError("unreachable", "no engine core of vLLM is connected")
        if len(serving) == 1:
            return serving[0]
        best = min(serving, key=lambda core: core.load)
        if session is None:
            return best
        own = self._cores.get(self._sessions.get(session, -1))
        if own is not None and own.up and own.load <= best.load + _SLACK:
            best = own
        self._sessions[session] = best.rank
        self._sessions.move_to_end(session)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return best
