"""One setting bounds what a gateway remembers in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from turnwire.gateway.gateway import Gateway
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble_models


async def test_what_is_remembered_shares_the_memory_and_caches_of_prompts_grow_with_it(tmp_path: Path) -> None:
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
    caches = [
        (runtime.tokenizer._max_bytes, 64 << 20),  # type: ignore[attr-defined]
        (2 * runtime.builder.messages._half + runtime.builder.messages._conversations._max, 48 << 20),
        (runtime.builder.renderings._max, 32 << 20),
        (runtime.builder.memory._max, 4_000_000),
        (runtime.builder.assembled._max, 750_000),
        (runtime._recalled._max_tokens, 2_000_000),
    ]
    assert [bound for bound, _ in caches] == [usual // 64 for _, usual in caches]
    await asyncio.gather(*(one.engine.close() for one in runtimes))
