"""How a gateway stops: a real process, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

BODY = {
    "model": "m",
    "max_tokens": 1000,
    "stream": True,
    "thinking": {"type": "disabled"},
    "messages": [{"role": "user", "content": "Hi."}],
}


@asynccontextmanager
async def process(folder: Path, line: dict[str, Any], **environment: str) -> AsyncIterator[tuple[Any, str]]:
    """A gateway process that plays one line, and its address; killed if it still runs at the end."""
    script = folder / "script.jsonl"
    script.write_text(json.dumps(line) + "\n")
    command = [sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--model", "m"]
    command += ["--engine", f"scripted:{script}", "--dialect", "qwen3_coder", "--log-level", "info"]
    with (folder / "log").open("wb") as log:
        gateway = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=log, env=os.environ | environment
        )
    try:
        assert gateway.stdout is not None
        async with asyncio.timeout(60):
            ready = (await gateway.stdout.readline()).decode()
        yield gateway, ready.split(" on ")[1].split()[0]
    finally:
        if gateway.returncode is None:
            gateway.kill()
        await gateway.wait()


async def is_ready(session: aiohttp.ClientSession, base: str) -> bool:
    async with session.get(base + "/ready") as answer:
        return answer.status == 200


async def test_a_running_stream_finishes_and_new_turns_are_refused(tmp_path: Path) -> None:
    line = {"text": "Every word of this is said, slowly, to its very end.", "delay_ms": 60}
    async with process(tmp_path, line) as (gateway, base), aiohttp.ClientSession() as session:
        assert await is_ready(session, base)
        async with session.post(base + "/v1/messages", json=BODY) as answer:
            seen = await answer.content.readany()
            gateway.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                while await is_ready(session, base):
                    await asyncio.sleep(0.01)
            async with session.post(base + "/v1/messages", json=BODY) as refused:
                assert refused.status == 529
                assert refused.headers["retry-after"]
            seen += await answer.read()
        assert b"very end" in b"".join(
            json.loads(row[6:])["delta"].get("text", "").encode()
            for row in seen.splitlines()
            if row.startswith(b"data: ") and b"text_delta" in row
        )
        assert b"message_stop" in seen
        async with asyncio.timeout(20):
            assert await gateway.wait() == 0
    assert "stopped: every turn finished" in (tmp_path / "log").read_text()


async def test_what_does_not_finish_in_time_ends_in_an_error(tmp_path: Path) -> None:
    line = {"text": "never said", "first_delay_ms": 600_000}
    async with (
        process(tmp_path, line, TURNWIRE_DRAIN_TIMEOUT="0.3") as (gateway, base),
        aiohttp.ClientSession() as session,
        session.post(base + "/v1/messages", json=BODY) as answer,
    ):
        seen = await answer.content.readany()
        gateway.send_signal(signal.SIGTERM)
        seen += await answer.read()
        assert b"event: error" in seen
        assert b"message_stop" not in seen
        async with asyncio.timeout(20):
            assert await gateway.wait() == 0
    assert "stopped: 1 of 1 turns were still running and ended with an error" in (tmp_path / "log").read_text()


async def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    line = {"text": "never said", "first_delay_ms": 600_000}
    async with (
        process(tmp_path, line, TURNWIRE_DRAIN_TIMEOUT="600") as (gateway, base),
        aiohttp.ClientSession() as session,
        session.post(base + "/v1/messages", json=BODY) as answer,
    ):
        seen = await answer.content.readany()
        gateway.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while await is_ready(session, base):
                await asyncio.sleep(0.01)
        gateway.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await gateway.wait()
        with suppress(aiohttp.ClientError):
            seen += await answer.read()
        assert b"message_stop" not in seen


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_signal_before_the_gateway_answers_ends_the_start_with_a_sentence(tmp_path: Path, signals: int) -> None:
    asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as silent:
        engine = f"vllm:http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--engine", engine]
        gateway = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(60):
            await asked.wait()
            for _ in range(signals):
                gateway.send_signal(signal.SIGINT)
            _, log = await gateway.communicate()
    # The second may come when Python has already given the signal back: the process then ends by it, as a shell's 130.
    assert gateway.returncode == 130 or (signals == 2 and gateway.returncode == -signal.SIGINT)
    assert b"Traceback" not in log
    assert signals == 2 or b"Stopped before the gateway answered." in log
