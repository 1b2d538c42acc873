"""A scripted engine on the gRPC wire that smg speaks to vLLM.

python -m benchmarks.engines.grpc_worker PORT MODEL_FOLDER MODEL_NAME PLAYBOOK COUNTER
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from smg_grpc_proto import vllm_engine_pb2 as wire
from smg_grpc_proto import vllm_engine_pb2_grpc as service

from benchmarks.engines.playbook import Counter, Playbook, next_step

PORT, FOLDER, NAME = sys.argv[1:4]
PLAYBOOK, COUNTER = Playbook(Path(sys.argv[4])), Counter(Path(sys.argv[5]))
PROMPT = 100


class Engine(service.VllmEngineServicer):  # type: ignore[misc]
    """Answers each request with the script of the moment."""

    def __init__(self) -> None:
        self._messages: dict[int, list[Any]] = {}
        self._aborted: set[str] = set()

    def _written(self, ids: list[int]) -> list[Any]:
        """The messages of a script, made once."""
        messages = self._messages.get(id(ids))
        if messages is None:
            chunks = (
                wire.GenerateStreamChunk(token_ids=[token], prompt_tokens=PROMPT, completion_tokens=number)
                for number, token in enumerate(ids, 1)
            )
            messages = self._messages[id(ids)] = [wire.GenerateResponse(chunk=chunk) for chunk in chunks]
        return messages

    async def Generate(self, request: Any, context: object) -> AsyncIterator[Any]:
        ids, period = PLAYBOOK.now()
        if PLAYBOOK.listens:
            async for message in self._heard(request, ids, period):
                yield message
            return
        due = next_step(period) if period else 0.0
        for message in self._written(ids):
            if period:
                wait = due - time.monotonic()
                if wait > 0:
                    await asyncio.sleep(wait)
                due += period
            COUNTER.add(1)
            yield message
        yield wire.GenerateResponse(
            complete=wire.GenerateComplete(
                output_ids=ids,
                finish_reason="stop",
                prompt_tokens=PROMPT,
                completion_tokens=len(ids),
                matched_token_id=ids[-1],
            )
        )

    async def _heard(self, request: Any, ids: list[int], period: float) -> AsyncIterator[Any]:
        """The same with the prompt's own count and the request's own limit; it tells what was read and who left."""
        prompt = request.tokenized.input_ids
        PLAYBOOK.hear(prompt)
        most = request.sampling_params.max_tokens or len(ids)
        finish = "length" if most < len(ids) else "stop"
        ids, whole = ids[:most], False
        try:
            for number, token in enumerate(ids, 1):
                await asyncio.sleep(period)
                if request.request_id in self._aborted:
                    return
                chunk = wire.GenerateStreamChunk(token_ids=[token], prompt_tokens=len(prompt), completion_tokens=number)
                if request.stream:
                    yield wire.GenerateResponse(chunk=chunk)
            whole = True
        finally:
            if not whole:
                PLAYBOOK.left()
        complete = wire.GenerateComplete(
            output_ids=ids, finish_reason=finish, prompt_tokens=len(prompt), completion_tokens=len(ids)
        )
        if finish == "stop":
            complete.matched_token_id = ids[-1]
        yield wire.GenerateResponse(complete=complete)

    async def HealthCheck(self, request: Any, context: object) -> Any:
        return wire.HealthCheckResponse(healthy=True, message="ok")

    async def Abort(self, request: Any, context: object) -> Any:
        if PLAYBOOK.listens:
            self._aborted.update(getattr(request, "request_ids", ()))
        return wire.AbortResponse()

    async def GetModelInfo(self, request: Any, context: object) -> Any:
        return wire.GetModelInfoResponse(
            model_path=FOLDER,
            tokenizer_path=FOLDER,
            served_model_name=NAME,
            is_generation=True,
            max_context_length=262144,
            max_req_input_len=262144,
            vocab_size=151936,
            model_type="qwen3",
            architectures=["Qwen3ForCausalLM"],
            eos_token_ids=[151645, 151643],
            pad_token_id=151643,
            bos_token_id=151643,
        )

    async def GetServerInfo(self, request: Any, context: object) -> Any:
        return wire.GetServerInfoResponse(server_type="vllm-grpc", data_parallel_size=1)

    async def GetLoads(self, request: Any, context: object) -> Any:
        load = wire.SchedulerLoad(dp_rank=0, max_running_requests=1024, max_total_num_tokens=1000000)
        return wire.GetLoadsResponse(version="0.11", dp_rank_count=1, loads=[load])


async def main() -> None:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 1 << 28)])
    service.add_VllmEngineServicer_to_server(Engine(), server)
    alive = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(alive, server)
    for name in ("", "vllm.grpc.engine.VllmEngine"):
        await alive.set(name, health_pb2.HealthCheckResponse.SERVING)
    server.add_insecure_port(f"127.0.0.1:{PORT}")
    await server.start()
    await server.wait_for_termination()


uvloop.install()
asyncio.run(main())
