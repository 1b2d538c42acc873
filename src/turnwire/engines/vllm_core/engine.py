"""The vLLM adapter over the engine core's own wire: token ids in, ids of every request in one message per step.

Promise: as for every engine. Nothing is sent that the core could not digest (it checks nothing and would end for
everybody); text, stop strings and end tokens are found here; a core that dies, hangs or is restarted is noticed without
a request's help, its generations end at once, and it serves again when it is back. A core that runs when this process
starts again goes on serving; what it still writes for the process before is aborted.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from turnwire.engines.bridge import refuse
from turnwire.engines.http.spelling import Speller
from turnwire.engines.interface import (
    Capabilities,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Generation,
    Receiver,
)
from turnwire.engines.kv_source import KVSource, kv_source
from turnwire.engines.vllm_core.attachment import state_file
from turnwire.engines.vllm_core.cores import Core
from turnwire.engines.vllm_core.generation import CoreGeneration
from turnwire.engines.vllm_core.layouts import ABORT, ADD, Output, Outputs
from turnwire.engines.vllm_core.reception import Patience, Reception
from turnwire.engines.vllm_core.requests import add_of
from turnwire.engines.vocabulary import id_count
from turnwire.prompts.prompt import Tokenizer

__all__ = ["VLLMCoreEngine"]

log = logging.getLogger("turnwire.engines")

_encode = msgspec.msgpack.Encoder().encode
_STRAYS = 1024
"""Foreign requests that are remembered as aborted."""


class VLLMCoreEngine:
    """The engine cores that connect to `address` (tcp://HOST:PORT and the two ports after it). `limit` bounds the
    generations in flight; `state` is the file that keeps what the cores reported."""

    name = "vLLM core"
    capabilities = Capabilities(
        yields="tokens",
        guided=frozenset({"json_schema", "regex", "lark", "gbnf"}),
        priority=True,
        cache_salt=True,
        cached_tokens=True,
    )

    def __init__(
        self,
        address: str,
        tokenizer: Tokenizer,
        *,
        state: Path | None = None,
        limit: int = 16384,
        patience: Patience | None = None,
    ) -> None:
        self._host = urlsplit(address).hostname or "127.0.0.1"
        self._tokenizer = tokenizer
        self._limit = limit
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._running: dict[str, CoreGeneration] = {}
        self._strays: OrderedDict[str, None] = OrderedDict()
        self._reception = Reception(
            address,
            self,
            state=state or state_file(address),
            patience=patience or Patience(),
            expected=id_count(tokenizer),
            name=self._prefix,
        )
        self._cores = self._reception.cores
        self._wire = self._reception.wire

    # ------------------------------------------------------------------------------------------------- engine

    async def start(self) -> EngineInfo:
        """Bind, and wait until the cores have loaded their model."""
        self._loop = asyncio.get_running_loop()
        await self._reception.open()
        return EngineInfo(
            name="vllm-core",
            version=self._cores.version,
            window=self._cores.window,
            kv_events=self._kv_events(),
            warnings=self._warnings(),
        )

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Start a generation; see the interface's promise."""
        self._count += 1
        name = f"{self._prefix}-{self._count}"
        try:
            core = self._send(request, name)
        except EngineError as error:
            return refuse(error, receiver)
        core.load += 1
        generation = self._running[name] = CoreGeneration(
            self,
            name,
            core,
            receiver,
            Speller(self._tokenizer, request.sampling.stop),
            self._spelled,
            prompt=len(request.prompt_ids),
            constrained=request.constraint is not None,
            asked=self._loop.time(),
        )
        return generation

    async def health(self) -> bool:
        """Whether a core would take work now."""
        return self._wire.is_open and self._cores.serving

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Not offered."""
        raise EngineError("invalid_request", "vLLM's engine core serves no embeddings here")

    async def close(self) -> None:
        """End what runs and release the ports."""
        for generation in tuple(self._running.values()):
            self._fail(generation, EngineError("disconnected", "the engine was closed"))
        await self._reception.close()

    def _kv_events(self) -> tuple[KVSource, ...]:
        told = ((core.rank, core.ready.kv_events_config) for core in self._cores)
        found = (kv_source(config, self._host, rank) for rank, config in told if config)
        return tuple(source for source in found if source is not None)

    def _warnings(self) -> tuple[str, ...]:
        ours, theirs = id_count(self._tokenizer), self._cores.vocabulary
        if ours <= theirs:
            return ()
        return (
            f"the tokenizer has {ours} tokens, the engine's model {theirs}: --tokenizer is probably another model's; "
            "a prompt with an id that the engine does not have is refused",
        )

    # -------------------------------------------------------------------------------------------- generations

    def _send(self, request: GenerateRequest, name: str) -> Core:
        """Ask a core: the one that was asked, or EngineError."""
        if len(self._running) >= self._limit:
            raise EngineError("overloaded", f"{self._limit} generations are running already", retry_after=2)
        core = self._cores.choose(request.hints.session)
        add = add_of(request, name, window=core.ready.max_model_len, vocabulary=core.vocabulary)
        self._wire.send(core.rank, ADD, add)
        return core

    def drop(self, generation: CoreGeneration, *, running: bool) -> None:
        """A generation is over; the core is asked to stop where it still works on it."""
        del self._running[generation.id]
        generation.core.load -= 1
        if running:
            self._abort(generation.core.rank, generation.id, owed=True)

    def later(self, generation: CoreGeneration) -> None:
        """Deliver what was kept while a receiver was paused."""
        self._loop.call_soon(self._deliver, generation)

    def _deliver(self, generation: CoreGeneration) -> None:
        try:
            generation.deliver()
        except Exception:
            self._break_off(generation)

    def _fail(self, generation: CoreGeneration, error: EngineError) -> None:
        try:
            generation.fail(error)
        except Exception:
            self._break_off(generation)

    def _break_off(self, generation: CoreGeneration) -> None:
        """End the one generation that could not be delivered, with an error: nobody waits for it in vain."""
        log.exception("output could not be delivered")
        try:
            generation.break_off(EngineError("internal", "the engine's output could not be handled"))
        except Exception:
            log.exception("a receiver failed")

    def _abort(self, rank: int, request_id: str, *, owed: bool) -> bool:
        """Whether the core could be asked."""
        try:
            self._wire.send(rank, ABORT, (_encode([request_id]),), owed=owed)
        except EngineError as error:
            log.debug("an abort could not be sent: %s", error.message)
            return False
        return True

    def _spelled(self, token: int) -> str:
        return self._tokenizer.decode((token,))

    # ------------------------------------------------------------------------------------------ what the cores say

    def steps(self, steps: Sequence[tuple[Outputs, list[bytes]]]) -> None:
        """Read all steps of a wake-up, then give each touched generation its share once."""
        touched: dict[CoreGeneration, None] = {}
        get = self._running.get
        for step, frames in steps:
            for output in step.outputs:
                generation = get(output.request_id)
                if generation is None:
                    self._stray(step.engine_index, output)
                else:
                    generation.take(output, frames)
                    touched[generation] = None
        for generation in touched:
            self._deliver(generation)

    def _stray(self, rank: int, output: Output) -> None:
        """An output that no generation waits for: a probe's, the last ones of a request that was aborted, or those of
        a request that an earlier process made."""
        name = output.request_id
        if self._reception.probed(output) or name.startswith(self._prefix):
            return
        if name not in self._strays and output.finish_reason is None and self._abort(rank, name, owed=False):
            self._strays[name] = None
            if len(self._strays) > _STRAYS:
                self._strays.popitem(last=False)

    def lost(self, ranks: Sequence[int], words: str) -> None:
        """End what runs on these cores: `unreachable` where nothing was said yet, so that it may be asked elsewhere."""
        # What a core that is not reached goes on writing for these is then known to be nobody's.
        self._prefix = secrets.token_hex(4)
        for generation in tuple(self._running.values()):
            if generation.core.rank in ranks:
                said = generation.answered
                self._fail(generation, EngineError("disconnected" if said else "unreachable", words))

    def owed(self, rank: int, since: float) -> tuple[bool, bool]:
        """Whether anything runs on a core, and whether a request sent before `since` has no answer at all."""
        own = [generation for generation in self._running.values() if generation.core.rank == rank]
        return bool(own), any(not generation.answered and generation.asked < since for generation in own)
