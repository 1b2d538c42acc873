"""A scripted worker of Dynamo's, on its own TCP request plane.

python -m benchmarks.engines.dynamo_worker MODEL_FOLDER MODEL_NAME PLAYBOOK COUNTER
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvloop
from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from dynamo.runtime import DistributedRuntime, dynamo_worker

from benchmarks.engines.playbook import Counter, Playbook, next_step

FOLDER, NAME = sys.argv[1:3]
PLAYBOOK, COUNTER = Playbook(Path(sys.argv[3])), Counter(Path(sys.argv[4]))


async def generate(request: dict[str, Any], context: Any = None) -> AsyncIterator[dict[str, Any]]:
    """One token a chunk; the last one says why it ends."""
    ids, period = PLAYBOOK.now()
    PLAYBOOK.hear(request["token_ids"])
    most = (request.get("stop_conditions") or {}).get("max_tokens") or len(ids)
    finish = "length" if most < len(ids) else "stop"
    ids = ids[:most]
    due = next_step(period) if period else 0.0
    for number, token in enumerate(ids, 1):
        if period:
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            due += period
        COUNTER.add(1)
        chunk: dict[str, Any] = {"token_ids": [token]}
        if number == len(ids):
            chunk["finish_reason"] = finish
        if PLAYBOOK.listens and context is not None and context.is_stopped():
            PLAYBOOK.left()
            return
        yield chunk


@dynamo_worker()
async def worker(runtime: DistributedRuntime) -> None:
    endpoint = runtime.endpoint("dynamo.backend.generate")
    settings = ModelRuntimeConfig()
    settings.tool_call_parser = "hermes"
    settings.reasoning_parser = "qwen3"
    kinds = ModelType.Chat | ModelType.Completions
    await register_model(
        ModelInput.Tokens, kinds, endpoint, FOLDER, NAME, worker_type=WorkerType.Aggregated, runtime_config=settings
    )
    await endpoint.serve_endpoint(generate)


uvloop.install()
asyncio.run(worker())
