"""A scripted engine core on vLLM 0.32's own wire (ZMQ, msgpack): what its frontends attach to.

Promise: one message a step with the new token of every running request, all 18 positions of an output as a real core
sends them; aborted requests say no more.

    python -m benchmarks.engines.core HANDSHAKE_PORT PLAYBOOK COUNTER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq

from benchmarks.engines.playbook import Counter, Playbook, next_step

ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
STOP, LENGTH = 0, 1
DEFAULT_LIMIT = 16  # what a frontend leaves out
NOTHING = (None, None, None)  # logprobs, prompt logprobs, pooling
_GREETING = {"local": False, "headless": True}
READY = {
    "max_model_len": 262144,
    "num_gpu_blocks": 100000,
    "block_size": 16,
    "dp_stats_address": None,
    "dtype": "bfloat16",
    "vllm_version": "0.32.0",
    "world_size": 1,
    "data_parallel_size": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "data_parallel_rank": 0,
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
    "instance_id": "scripted",
    "supports_lora": False,
    "max_loras": 0,
    "mamba_block_size": None,
    "kv_cache_size_tokens": 1600000,
    "kv_cache_max_concurrency": 6.1,
    "kv_events_config": None,
    "weight_transfer_backend": None,
    "enable_sleep_mode": False,
    "supports_draft_weight_updates": False,
    "effective_attention_block_size": 16,
}
ANSWERS = {"get_supported_tasks": ["generate"], "is_sleeping": False, "reset_prefix_cache": True}


class Added(msgspec.Struct, array_like=True):
    """A request as far as a script needs it. What its prompt is nobody reads: to make objects of some 50,000 ids takes
    longer than a gateway takes for all of the request, and would count as the gateway's."""

    name: str
    prompt: msgspec.Raw
    features: Any = None
    sampling: dict[str, Any] | None = None


def length(packed: bytes | memoryview) -> int:
    """How many items a msgpack array has."""
    first = packed[0]
    if first < 0xA0:
        return first & 0x0F
    return int.from_bytes(packed[1 : 3 if first == 0xDC else 5])


class Running:
    """One request: what it is answered with, and how far that is."""

    __slots__ = ("at", "finish", "first", "ids")

    def __init__(self, ids: list[int], prompt: int, most: int | None) -> None:
        cut = most is not None and most < len(ids)
        self.ids = ids[:most] if cut else ids
        self.finish = LENGTH if cut else STOP
        self.at = 0
        self.first: dict[str, int] | None = {
            "num_prompt_tokens": prompt,
            "num_computed_tokens": prompt,
            "num_cached_tokens": 0,
            "num_local_cached_tokens": 0,
            "num_external_cached_tokens": 0,
            "num_cache_creation_tokens": 0,
        }


class Core:
    """The engine core's side of the wire."""

    def __init__(self, port: int, playbook: Playbook, counter: Counter) -> None:
        self._playbook = playbook
        self._counter = counter
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder().decode
        self._added = msgspec.msgpack.Decoder(Added).decode
        self._running: dict[str, Running] = {}
        self._period = 0.0
        context = zmq.Context()
        rank = (0).to_bytes(2, "little")
        handshake = context.socket(zmq.DEALER)
        handshake.setsockopt(zmq.IDENTITY, rank)
        handshake.connect(f"tcp://127.0.0.1:{port}")
        handshake.send(self._encode({"status": "HELLO", **_GREETING}))
        addresses = self._decode(handshake.recv())["addresses"]
        self._requests = context.socket(zmq.DEALER)
        self._requests.setsockopt(zmq.IDENTITY, rank)
        self._requests.connect(addresses["inputs"][0])
        self._requests.send(self._encode(READY))
        self._outputs = context.socket(zmq.PUSH)
        self._outputs.connect(addresses["outputs"][0])
        handshake.send(self._encode({"status": "READY", **_GREETING}))
        self._handshake = handshake

    def run(self) -> None:
        """Take requests and step, for ever."""
        due = 0.0
        while True:
            idle = not self._running
            if idle:
                self._requests.poll()
            self._take()
            if not self._running:
                continue
            if self._period:
                if idle:
                    due = next_step(self._period)
                wait = due - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                due += self._period
            self._step()

    def _take(self) -> None:
        while self._requests.poll(0):
            kind, *frames = self._requests.recv_multipart()
            if kind == ADD:
                self._add(self._added(frames[0]))
            elif kind == ABORT:
                for name in self._decode(frames[0]):
                    if self._running.pop(name, None) is not None:
                        self._playbook.left()
            elif kind == UTILITY:
                _, call, method, *_ = self._decode(frames[0])
                self._send([], utility=[call, None, [None, ANSWERS.get(method)]])

    def _add(self, asked: Added) -> None:
        ids, self._period = self._playbook.now()
        if self._playbook.listens:
            self._playbook.hear(self._decode(asked.prompt))
        most = (asked.sampling or {}).get("max_tokens", DEFAULT_LIMIT)
        self._running[asked.name] = Running(ids, length(memoryview(asked.prompt)), most)

    def _step(self) -> None:
        outputs: list[list[Any]] = []
        finished: list[str] = []
        for name, request in self._running.items():
            at = request.at
            request.at = at + 1
            last = request.at == len(request.ids)
            if last:
                finished.append(name)
            said = request.ids[at : at + 1]
            finish = request.finish if last else None
            outputs.append([name, said, *NOTHING, finish, *[None] * 5, request.first, None, 0, *[None] * 4])
            request.first = None
        for name in finished:
            del self._running[name]
        self._counter.add(len(outputs))
        self._send(outputs, finished=finished or None)

    def _send(self, outputs: list[list[Any]], utility: object = None, finished: list[str] | None = None) -> None:
        self._outputs.send(self._encode([0, outputs, None, time.monotonic(), utility, finished, None, None, "default"]))


if __name__ == "__main__":
    Core(int(sys.argv[1]), Playbook(Path(sys.argv[2])), Counter(Path(sys.argv[3]))).run()
