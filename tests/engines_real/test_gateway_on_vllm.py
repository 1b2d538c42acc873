"""The whole gateway on real vLLM: turn N is a token prefix of turn N+1, and vLLM's own count says the same."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from .vllm_server import BLOCK

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]


@pytest.fixture
async def gateway(server: Any, tmp_path: Path) -> AsyncIterator[str]:
    log = tmp_path / "gateway.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", f"vllm:{server.url}",
            "--model", str(server.installation.model), "--seal-key", "a key that only tests use", stdout=output,
            stderr=asyncio.subprocess.STDOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", _said(log).replace(server.url, ""))):
                assert process.returncode is None, _said(log)
                await asyncio.sleep(0.1)
        yield found.group()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _said(log: Path) -> str:
    return log.read_text(errors="replace")


async def test_cached_tokens_are_what_continuity_predicts(gateway: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Explain prefix caches. " * 60}]
    expected = 0
    async with aiohttp.ClientSession() as session:
        for turn in range(5):
            body = {"model": "tiny", "max_tokens": 60, "messages": messages, "temperature": 0}
            headers = {"x-claude-code-session-id": "a-session"}
            async with session.post(f"{gateway}/v1/messages", json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                verdict = answer.headers["x-turnwire-prefix"]
                message = msgspec.json.decode(await answer.read())
            cached = message["usage"].get("cache_read_input_tokens") or 0
            if turn:
                assert verdict.startswith("held"), verdict
                told = re.search(r"shared=(\d+); of=(\d+)", verdict)
                assert told is not None
                shared, of = int(told[1]), int(told[2])
                # The last sampled token was never fed back, so the engine has not read it.
                expected = min(shared, of - 1) // BLOCK * BLOCK
            assert cached == expected, f"turn {turn}: {verdict}"
            messages += [
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": f"And then? {turn}"},
            ]
    assert expected > 300
