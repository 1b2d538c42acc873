"""Engine cores as they come, serve, fall silent and go.

Promise: a core serves only once its version's layout is known and the size of its vocabulary is learnt. One that dies
is noticed by its connections, one that hangs because it owes an answer and does not even answer a call; both are
reported once. One whose connection broke goes on as soon as it is back and answers. What the cores reported is kept,
so that the next process at this address can go on with them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import msgspec

from turnwire.engines.interface import EngineError
from turnwire.engines.vllm_core.attachment import Attachment, recall, remember
from turnwire.engines.vllm_core.cores import Core, Cores
from turnwire.engines.vllm_core.layouts import ADD, DEAD, UTILITY, Layout, Output, Outputs, Ready, layout_of
from turnwire.engines.vllm_core.logprobs import columns
from turnwire.engines.vllm_core.requests import probe_of
from turnwire.engines.vllm_core.wire import CoreWire
from turnwire.engines.vllm_core.zmtp import Peer
from turnwire.unreadable import UNREADABLE

__all__ = ["Patience", "Reception"]

log = logging.getLogger("turnwire.engines")

_encode = msgspec.msgpack.Encoder().encode
_PING = "get_supported_tasks"


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: until a core must greet, or one that runs must answer; until it must have loaded its model; and how long
    a core may say nothing before it is asked whether it lives, and then until it says so."""

    greeting: float = 300.0
    loading: float = 3600.0
    silence: float = 30.0
    answer: float = 60.0


class Host(Protocol):
    """Who has work for the cores: the engine."""

    def steps(self, steps: Sequence[tuple[Outputs, list[bytes]]]) -> None:
        """All that a wake-up brought: each step with its frames."""
        ...

    def lost(self, ranks: Sequence[int], words: str) -> None:
        """What runs on these cores cannot go on."""
        ...

    def owed(self, rank: int, since: float) -> tuple[bool, bool]:
        """Whether anything runs on a core, and whether a request sent before `since` has no answer at all."""
        ...


class Reception:
    """The cores at one address. `expected` is how many tokens our tokenizer knows."""

    def __init__(self, address: str, host: Host, *, state: Path, patience: Patience, expected: int, name: str) -> None:
        self.wire = CoreWire(address, self)
        self.cores = Cores()
        self._address = address
        self._host = host
        self._state = state
        self._patience = patience
        self._expected = expected
        self._name = name
        self._layout: Layout | None = None
        self._numbers = itertools.count(1)
        self._away: dict[int, Core] = {}
        self._probes: dict[str, asyncio.Future[int]] = {}
        self._refusal: EngineError | None = None
        self._greeted = False
        self._complete = False
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchdog: asyncio.TimerHandle | None = None
        # One at a time and in their order: an older one is never written over a newer one.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="vllm-core")
        self._unkept = 0

    async def open(self) -> None:
        """Bind, and wait until the cores have loaded their model; EngineError where none comes. The ports stay bound
        then, too: a core may come later. Once all of them have served, those that are left are enough."""
        if not self.wire.is_open:
            self._loop = asyncio.get_running_loop()
            self._recall()
            await self.wire.open()
            self._watch()
        if not self._served:
            log.info("waiting for vLLM's engine core to connect to %s", self._address)
        await self._wait(self._patience.greeting, lambda: self._greeted)
        await self._wait(self._patience.loading, lambda: self._served)

    @property
    def _served(self) -> bool:
        """Whether all cores serve, or some where all did once."""
        self._complete = self._complete or self.cores.complete
        return self.cores.serving if self._complete else False

    async def close(self) -> None:
        """Release the ports; the cores stay loaded and wait for the next frontend."""
        for task in self._tasks:
            task.cancel()
        if self._watchdog is not None:
            self._watchdog.cancel()
        try:
            if self._unkept:
                await self._keep()
        finally:
            await self.wire.close()

    # ------------------------------------------------------------------------------------------ what the wire says

    def messages(self, link: Peer, messages: Sequence[list[bytes]]) -> None:
        """Decode messages that came together, and hand them on."""
        if self._layout is None:
            return
        decode = self._layout.outputs.decode
        steps: list[tuple[Outputs, list[bytes]]] = []
        heard = None
        for frames in messages:
            if frames[0] == DEAD:
                steps = self._handed(steps)
                self._lose(self.cores.behind(link), "vLLM's engine core has failed; its log says why")
                continue
            try:
                step = decode(frames[0])
            except UNREADABLE as error:
                steps = self._handed(steps)
                self._unreadable(link, error)
                continue
            steps.append((step, frames))
            rank = step.engine_index
            if rank != heard:
                heard = rank
                self._heard(rank, link)
            if step.utility_output is not None:
                self._answered(rank)
        self._host.steps(steps)

    def _handed(self, steps: list[tuple[Outputs, list[bytes]]]) -> list[tuple[Outputs, list[bytes]]]:
        """Hand on what came before the news that follows; no steps are left."""
        self._host.steps(steps)
        return []

    def _unreadable(self, link: Peer, error: Exception) -> None:
        """Tokens may be in a message that nobody can read: what runs has a gap."""
        if ranks := [core.rank for core in self.cores.behind(link)]:
            self._host.lost(ranks, f"vLLM's engine core sent a message that cannot be read: {error}")
        else:
            link.drop(f"its message is not an engine core's: {error}")

    def _heard(self, rank: int, link: Peer) -> None:
        """Outputs of a core came by a connection."""
        core = self.cores.get(rank)
        if core is None:
            return
        core.heard = self._loop.time()
        if core.outputs is not link:
            before, core.outputs = core.outputs, link
            if before is not None:
                self._gap(core)
                before.drop()

    def _gap(self, core: Core) -> None:
        self._host.lost((core.rank,), "the connection to vLLM's engine core broke")

    def probed(self, output: Output) -> bool:
        """Whether an output answers a probe."""
        probe = self._probes.get(output.request_id)
        if probe is None:
            return False
        if not probe.done():
            try:
                probe.set_result(columns(output.new_logprobs) - 1)
            except EngineError as error:
                probe.set_exception(error)
        return True

    def greeted(self, rank: int) -> None:
        """A core process began; one that had this rank before is gone."""
        self._greeted = True
        self._refusal = None
        self._lose(self._known(rank), "vLLM's engine core was started again")
        self._away.pop(rank, None)
        self._news.set()

    def connected(self, rank: int) -> None:
        """Requests reach a core: one that begins, or one that was away."""
        self._lose(self._known(rank), "vLLM's engine core connected again")
        core = self._away.pop(rank, None)
        if core is not None:
            core.load = 0
            self.cores.add(core)
            if core.vocabulary:
                self._ask(core)
            else:
                self._later(self._adopt(core))

    def ready(self, rank: int, told: Ready) -> None:
        """A core has loaded its model."""
        try:
            self._layout = layout_of(told.vllm_version)
        except EngineError as error:
            self.refused(error)
            return
        self._greeted = True
        core = Core(rank, told)
        self.cores.add(core)
        self._later(self._adopt(core))

    def refused(self, error: EngineError) -> None:
        """A core that cannot be used has connected."""
        log.error("%s: %s", self._address, error.message)
        self._refusal = error
        self._news.set()

    def gone(self, rank: int) -> None:
        """Requests do not reach a core any more."""
        self._lose(self._known(rank), "vLLM's engine core went away")

    def unlinked(self, link: Peer) -> None:
        """Outputs may be missing, and none come before the core has connected again: it takes no requests until it has
        answered a call."""
        for core in self.cores:
            if core.outputs is link:
                core.outputs = None
                if core.up or core.asked is not None:
                    # Before it is said: whoever hears of it asks again at once.
                    core.up = False
                    self._ask(core)
                self._gap(core)

    def _known(self, rank: int) -> Sequence[Core]:
        core = self.cores.get(rank)
        return (core,) if core is not None else ()

    def _lose(self, cores: Sequence[Core], words: str) -> None:
        """Cores are away: what runs on them is over."""
        if cores:
            ranks = [core.rank for core in cores]
            log.warning("%s: %s (rank %s)", self._address, words, ", ".join(map(str, ranks)))
            for core in cores:
                self.cores.remove(core.rank)
                core.up, core.outputs = False, None
                self._away[core.rank] = core
            self._host.lost(ranks, words)

    # ------------------------------------------------------------------------------------------ cores come and go

    async def _adopt(self, core: Core) -> None:
        """Learn what a new core did not report, and let it serve."""
        try:
            core.vocabulary = await self._probe(core.rank)
        except (EngineError, TimeoutError) as error:
            core.vocabulary = core.vocabulary or self._expected
            log.warning("%s: the size of the engine's vocabulary could not be learnt (%r)", self._address, error)
        if self.cores.get(core.rank) is core:
            core.up = True
            self._news.set()
            await self._keep()

    async def _probe(self, rank: int) -> int:
        """The size of the vocabulary: as many log probabilities as there are tokens come with one token. The first
        request for any takes a core some seconds, during which it serves nobody; so this also saves a client that."""
        name = f"{self._name}-probe-{next(self._numbers)}"
        found = self._probes[name] = self._loop.create_future()
        try:
            self.wire.send(rank, ADD, probe_of(name))
            async with asyncio.timeout(self._patience.answer):
                return int(await found)
        finally:
            del self._probes[name]

    async def _keep(self) -> None:
        """Keep what the cores reported for the process after this one."""
        self._unkept += 1
        known = [core for core in (*self.cores, *self._away.values()) if core.vocabulary]
        attachment = Attachment(
            {core.rank: core.ready for core in known}, {core.rank: core.vocabulary for core in known}
        )
        try:
            await self._loop.run_in_executor(self._writer, remember, self._state, attachment)
        except (OSError, TypeError, ValueError, RecursionError) as error:
            log.warning("%s cannot be written (%s): after a restart, vLLM must be restarted too", self._state, error)
        self._unkept -= 1

    def _recall(self) -> None:
        """Know the cores that an earlier process at this address was connected to."""
        known = recall(self._state)
        if known is None:
            return
        for rank, ready in known.cores.items():
            try:
                self._layout = layout_of(ready.vllm_version)
            except EngineError:
                continue
            core = self._away[rank] = Core(rank, ready)
            core.vocabulary = known.vocabularies.get(rank, self._expected)

    def _ask(self, core: Core) -> None:
        """Call a method of a core, whose answer says that it lives and that its outputs arrive."""
        core.asked = self._loop.time()
        try:
            self.wire.send(core.rank, UTILITY, (_encode([0, next(self._numbers), _PING, []]),))
        except EngineError as error:
            log.info("%s: rank %d: %s", self._address, core.rank, error.message)

    def _answered(self, rank: int) -> None:
        core = self.cores.get(rank)
        if core is not None and core.asked is not None:
            core.asked = None
            if not core.up:
                log.info("%s: going on with the engine core of rank %d", self._address, core.rank)
                core.up = self._greeted = True
                self._news.set()

    def _watch(self) -> None:
        """Now and then: ask a core that owes an answer and is silent whether it lives."""
        now, patience = self._loop.time(), self._patience
        for core in self.cores:
            runs, unanswered = self._host.owed(core.rank, now - patience.silence)
            if core.asked is None:
                if runs and (unanswered or now - core.heard > patience.silence):
                    self._ask(core)
            elif now - core.asked > patience.answer:
                if core.up:
                    core.up = False
                    log.error("%s: the engine core of rank %d takes no requests any more", self._address, core.rank)
                    self._host.lost((core.rank,), "vLLM's engine core does not answer any more")
                # What asked it may have been lost.
                self._ask(core)
        self._watchdog = self._loop.call_later(patience.silence / 6, self._watch)

    # -------------------------------------------------------------------------------------------------- tools

    async def _wait(self, seconds: float, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    if self._refusal is not None:
                        raise self._refusal
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise EngineError(
                "unreachable",
                f"no engine core of vLLM is ready at {self._address} after {seconds:.0f} s; start it by `vllm serve "
                "MODEL --headless --data-parallel-address HOST --data-parallel-rpc-port PORT`",
            ) from None

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
