"""An engine core of our own for tests: the wire of vLLM 0.32's, over real ZMQ sockets, playing one script line.

It is as unforgiving as the real one: a prompt beyond the window, an id beyond the vocabulary, an empty prompt or a
request id in use ends it for everybody, and what does not decode makes it deaf.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from turnwire.engines.scripted.prefix_cache_model import PrefixCache
from turnwire.engines.scripted.script import Line, Script
from turnwire.turns import Sampling

from .toytokenizer import ToyTokenizer

EOS = 260
FINISH = {"stop": 0, "length": 1}


def free_address() -> str:
    """An address whose port and the two after it are free."""
    for _ in range(100):
        port = random.randrange(20000, 60000)
        held = [socket.socket() for _ in range(3)]
        try:
            for step, probe in enumerate(held):
                probe.bind(("127.0.0.1", port + step))
        except OSError:
            continue
        finally:
            for probe in held:
                probe.close()
        return f"tcp://127.0.0.1:{port}"
    raise RuntimeError("no three free ports in a row")


def array(kind: str, shape: tuple[int, int], values: list[Any], frames: list[bytes]) -> list[Any]:
    """An array as it travels: in the message itself while it is short, else in a frame of its own."""
    data = struct.pack(f"<{len(values)}{ {'<i4': 'i', '<f4': 'f', '<i8': 'q'}[kind] }", *values)
    if len(data) < 256:
        return [kind, list(shape), msgspec.msgpack.Ext(3, data)]
    frames.append(data)
    return [kind, list(shape), len(frames)]


class EngineCore:
    """One core. `requests` are the ADDs received, `aborts` counts running requests that were aborted; `deaf` reads no
    request any more; `header_delay` holds the first output back."""

    def __init__(
        self,
        address: str,
        line: Line,
        *,
        rank: int = 0,
        size: int = 1,
        window: int = 1000,
        vocabulary: int = 4096,
        version: str = "0.32.0",
    ) -> None:
        self.line = line
        self.rank = rank
        self.requests: list[list[Any]] = []
        self.aborts = 0
        self.calls: list[str] = []
        self.header_delay = 0.0
        self.deaf = False
        self.dead = asyncio.Event()
        self.ready: dict[str, Any] = {
            "max_model_len": window,
            "num_gpu_blocks": 100,
            "block_size": 16,
            "vllm_version": version,
            "data_parallel_size": size,
            "data_parallel_rank": rank,
            "instance_id": "x",
            "kv_events_config": None,
        }
        self.vocabulary = vocabulary
        self._address = address
        self._tokenizer = ToyTokenizer()
        self._cache = PrefixCache()
        self._context = zmq.asyncio.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def start(self, *, hash: str | None = None) -> None:
        """Connect, be told where, and say ready."""
        name = self.rank.to_bytes(2, "little")
        hands = self._context.socket(zmq.DEALER)
        hands.setsockopt(zmq.IDENTITY, name)
        hands.connect(self._address)
        await self._say(hands, {"status": "HELLO", "local": False, "headless": True})
        told = msgspec.msgpack.decode(await hands.recv())
        self._input = self._context.socket(zmq.DEALER)
        self._input.setsockopt(zmq.IDENTITY, name)
        self._input.connect(told["addresses"]["inputs"][0])
        self._output = self._context.socket(zmq.PUSH)
        self._output.connect(told["addresses"]["outputs"][0])
        await self._say(self._input, self.ready)
        await self._say(hands, {"status": "READY", "local": False, "headless": True, "parallel_config_hash": hash})
        self._reader = asyncio.ensure_future(self._read())

    def kill(self) -> None:
        """End as a process that is killed: connections close, nothing is said."""
        self.dead.set()
        for task in (self._reader, *self._running.values()):
            if task is not None:
                task.cancel()
        self._context.destroy(linger=0)

    async def die(self) -> None:
        """End as a core whose loop has failed."""
        await self._output.send(b"ENGINE_CORE_DEAD")
        await asyncio.sleep(0.05)
        self.kill()

    async def send(self, outputs: list[list[Any]], utility: Any = None, frames: list[bytes] | None = None) -> None:
        """One step."""
        stats = {"num_running_reqs": len(self._running), "step_counter": 0}
        message = [self.rank, outputs, stats, time.monotonic(), utility, None, None, None, "default"]
        await self._output.send_multipart([msgspec.msgpack.encode(message), *(frames or [])])

    async def _say(self, channel: Any, value: object) -> None:
        await channel.send(msgspec.msgpack.encode(value))

    async def _read(self) -> None:
        while True:
            kind, payload = await self._input.recv_multipart()
            if self.deaf:
                continue
            told = msgspec.msgpack.decode(payload)
            if kind == b"\x00":
                await self._add(told)
            elif kind == b"\x01":
                for name in told:
                    if (task := self._running.pop(name, None)) is not None:
                        self.aborts += 1
                        task.cancel()
            elif kind == b"\x03":
                _client, number, method, _args = told
                self.calls.append(method)
                await self.send([], [number, None, [None, ["generate"]]])

    async def _add(self, told: list[Any]) -> None:
        name, prompt, params = told[0], told[1], told[3]
        if len(told) < 9:
            self.deaf = True
            return
        if params.get("logprobs") == -1:
            wide = self.vocabulary + 1
            frames: list[bytes] = []
            logprobs = [
                array("<i4", (1, wide), [0] * wide, frames),
                array("<f4", (1, wide), [-1.0] * wide, frames),
                array("<i8", (1, 1), [0], frames),
                None,
            ]
            await self.send([[name, [0], logprobs, None, None, 1, *[None] * 12]], frames=frames)
            return
        self.requests.append(told)
        fits = 0 < len(prompt) <= self.ready["max_model_len"] and all(0 <= id < self.vocabulary for id in prompt)
        if not fits or name in self._running:
            await self.die()
            return
        self._running[name] = asyncio.ensure_future(self._play(name, prompt, params, told[7]))

    async def _play(self, name: str, prompt: list[int], params: dict[str, Any], salt: str | None) -> None:
        line = self.line
        sequence = self._cache.sequence(prompt, salt)
        cached = self._cache.match(sequence)
        await asyncio.sleep(self.header_delay + line.first_delay_ms / 1000)
        self._cache.store(sequence)
        played = Script([line], self._tokenizer).perform(line, Sampling(max_tokens=params["max_tokens"]))
        if line.finish == "disconnect" and line.after == 0:
            self.kill()
            return
        stats = {"num_prompt_tokens": len(prompt), "num_cached_tokens": cached}
        batches = [list(batch.ids) for batch in played.batches]
        if played.reason == "stop":
            batches[-1:] = [[*(batches[-1] if batches else ()), EOS]]
        for number, ids in enumerate(batches, 1):
            last = number == len(batches) and played.reason is not None
            frames: list[bytes] = []
            output = [name, ids, self._logprobs(ids, params, frames), None, None]
            output += [FINISH[played.reason or "stop"] if last else None, None, None, None, None, None]
            output += [stats if number == 1 else None, *[None] * 6]
            if last:
                del self._running[name]
            await self.send([output], frames=frames)
            if line.delay_ms:
                await asyncio.sleep(line.delay_ms / 1000)
        if played.reason is None:
            await asyncio.sleep(3600 if line.finish == "hang" else 0.02)
            if line.finish == "disconnect":
                self.kill()
                return
            del self._running[name]
            await self.send([[name, [], None, None, None, 3, *[None] * 12]])

    def _logprobs(self, ids: list[int], params: dict[str, Any], frames: list[bytes]) -> list[Any] | None:
        wanted = params.get("logprobs")
        if wanted is None:
            return None
        wide = wanted + 1
        rows = [token for token in ids for _ in range(wide)]
        values = [-0.5 - column for _ in ids for column in range(wide)]
        return [
            array("<i4", (len(ids), wide), rows, frames),
            array("<f4", (len(ids), wide), values, frames),
            array("<i8", (len(ids), 1), [1] * len(ids), frames),
            None,
        ]
