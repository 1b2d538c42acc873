"""One setting bounds what a gateway remembers in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from turnwire.gateway.gateway import Gateway
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble_models


async def test_turns_sessions_responses_and_decoded_messages_share_the_memory(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "Hi."}\n')
    settings = Settings(engine=f"scripted:{script}", model="m", dialect="hermes", memory=8 << 20)
    runtimes = await assemble_models(settings)
    gateway = Gateway(settings, runtimes)
    runtime = runtimes[0]
    bounds = [
        gateway.decoded._max,
        gateway.store._retention.memory_bytes,  # type: ignore[attr-defined]
        runtime._store._max_bytes,  # type: ignore[union-attr]
        runtime._tracker._max_bytes,
    ]
    assert bounds == [2 << 20] * 4
    await asyncio.gather(*(one.engine.close() for one in runtimes))
