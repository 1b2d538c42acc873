"""Several processes on one port: what they share, what an operator sees, and what signals and crashes do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from turnwire.gateway.processes.merging import MetricsPage, merged_workers
from turnwire.gateway.processes.shared_settings import shared_settings
from turnwire.gateway.settings import ModelSettings, Settings, SettingsError

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Go."}]}


@asynccontextmanager
async def gateway(folder: Path, *lines: dict[str, Any], workers: int = 2) -> AsyncIterator[tuple[Any, str]]:
    """`turnwire serve --workers N` on a scripted engine, and its address."""
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--model", "m", "--workers", str(workers)]
    command += ["--engine", f"scripted:{script}", "--dialect", "qwen3_coder", "--log-level", "error"]
    environment = os.environ | {"XDG_STATE_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(90):
            ready = (await process.stdout.readline()).decode()
        assert f"{workers} processes" in ready
        yield process, ready.split(" on ")[1].split()[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def children(parent: int) -> list[int]:
    """The processes that a process has started and that still run."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def whole(base: str, path: str, body: dict[str, Any], method: str = "POST") -> tuple[int, Any]:
    """One answer over a connection of its own, so that the kernel chooses the process each time."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        session.request(method, base + path, json=body or None) as answer,
    ):
        return answer.status, await answer.json(content_type=None)


async def metric(base: str, name: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(base + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks up processes in /proc")


@needs_proc
@pytest.mark.slow
async def test_processes_answer_as_one_gateway(tmp_path: Path) -> None:
    """Responses of one process are continued on another, the operator sees all of them, a killed one is replaced, a
    reload drops no stream, and the end is a drain."""
    slow = {"text": "Every word of this is said, slowly, to its very end.", "delay_ms": 60}
    async with gateway(tmp_path, *[slow] * 40) as (parent, base):
        first = set(children(parent.pid))
        assert len(first) == 2

        streams = [asyncio.create_task(whole(base, "/v1/chat/completions", CHAT)) for _ in range(8)]
        async with asyncio.timeout(30):
            while len((await whole(base, "/admin/live", {}, "GET"))[1]) < 8:
                await asyncio.sleep(0.02)
        assert await metric(base, "turnwire_live_turns") == 8
        answers = await asyncio.gather(*streams)
        assert [status for status, _ in answers] == [200] * 8
        assert await metric(base, "turnwire_turns_total") == 8
        assert len((await whole(base, "/admin/turns", {}, "GET"))[1]["turns"]) == 8

        previous: str | None = None
        for _ in range(3):
            body = {"model": "m", "input": "Go on.", "previous_response_id": previous}
            status, answer = await whole(base, "/v1/responses", body)
            assert status == 200, answer
            previous = answer["id"]

        # What a killed process had counted is known from the last time it was asked.
        assert await metric(base, "turnwire_turns_total") == 11
        os.kill(min(first), signal.SIGKILL)
        async with asyncio.timeout(60):
            while len(set(children(parent.pid)) - {min(first)}) < 2:
                await asyncio.sleep(0.02)
        assert (await whole(base, f"/v1/responses/{previous}", {}, "GET"))[0] == 200
        assert await metric(base, "turnwire_turns_total") == 11

        second = set(children(parent.pid))
        streams = [asyncio.create_task(whole(base, "/v1/chat/completions", CHAT)) for _ in range(6)]
        parent.send_signal(signal.SIGHUP)
        async with asyncio.timeout(90):
            while set(children(parent.pid)) & second:
                await asyncio.sleep(0.02)
        for status, answer in await asyncio.gather(*streams):
            assert status == 200
            assert answer["choices"][0]["message"]["content"].endswith("very end.")
        assert await metric(base, "turnwire_turns_total") == 17

        last = asyncio.create_task(whole(base, "/v1/chat/completions", CHAT))
        async with asyncio.timeout(30):
            while not (await whole(base, "/admin/live", {}, "GET"))[1]:
                await asyncio.sleep(0.02)
        parent.send_signal(signal.SIGTERM)
        assert (await last)[0] == 200
        async with asyncio.timeout(60):
            assert await parent.wait() == 0


@needs_proc
@pytest.mark.slow
async def test_processes_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"text": "x"}) as (parent, _):
        left = children(parent.pid)
        parent.kill()
        await parent.wait()
        async with asyncio.timeout(30):
            while any(map(runs, left)):
                await asyncio.sleep(0.02)


async def test_what_processes_cannot_share_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(SettingsError, match="embedded"):
        shared_settings(Settings(workers=2), tmp_path)
    table = ModelSettings(name="m", engines=("embedded:x.gguf",))
    with pytest.raises(SettingsError, match="embedded"):
        shared_settings(Settings(workers=2, models=(table,)), tmp_path)
    with pytest.raises(SettingsError, match="memory"):
        shared_settings(Settings(workers=2, engine="http://x", store="memory"), tmp_path)
    shared = shared_settings(Settings(workers=2, engine="http://x"), tmp_path)
    assert shared.store == f"sqlite:{tmp_path}/store.db"
    assert (tmp_path / "state" / "turnwire" / "seal.key").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert shared_settings(Settings(workers=2, engine="http://x"), tmp_path).seal_key


PAGE = """# HELP a_total A.
# TYPE a_total counter
a_total{{kind="x y"}} {count}.0
# HELP turnwire_live_turns L.
# TYPE turnwire_live_turns gauge
turnwire_live_turns {count}.0
# HELP turnwire_workers W.
# TYPE turnwire_workers gauge
turnwire_workers{{state="healthy"}} {count}.0
"""


def test_metrics_of_processes_are_summed_and_do_not_fall_when_one_ends() -> None:
    page = MetricsPage(PAGE.format(count=2))
    page.add(PAGE.format(count=3))
    page.add(PAGE.format(count=5), ended=True)
    lines = page.text().splitlines()
    assert 'a_total{kind="x y"} 10.0' in lines
    assert "turnwire_live_turns 5.0" in lines
    assert 'turnwire_workers{state="healthy"} 3.0' in lines
    assert lines.count("# TYPE a_total counter") == 1


def test_a_worker_is_shown_once_in_its_worst_state() -> None:
    row = {"model": "m", "worker": "w", "active": 2, "prefilling": 1, "decoding": 4, "resident": 3}
    rows = [row | {"state": state} for state in ("healthy", "down", "suspect")]
    summed = {"active": 6, "prefilling": 3, "decoding": 12, "resident": 9}
    assert merged_workers(rows) == [row | summed | {"state": "down"}]
