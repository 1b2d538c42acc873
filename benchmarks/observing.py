"""What it costs to watch: processor time and bytes per turn with the console open and with capture on.

    python benchmarks/observing.py --turns 300

Each condition is a gateway in a process of its own on a scripted engine. The processor time is that process's own, over
the turns alone, so other work on the machine hardly shows in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import aiohttp

HISTORY = "You work in a repository of a streaming parser; keep answers short. " * 150
WORDS = f"{HISTORY[:67]} a buffer holds what came early and gives it back once its place is known".split()


def _script(number: int) -> str:
    """A line for each question, no two alike."""
    chosen = random.Random(7)
    lines = []
    for count in range(number):
        said = " ".join(chosen.choice(WORDS) + str(chosen.randrange(100)) for _ in range(60))
        lines.append(json.dumps({"match": f"Question {count}.", "text": f"I look.\n</think>\n\n{said}"}))
    return "\n".join(lines) + "\n"


def _used(process: subprocess.Popen[str]) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _turns(base: str, number: int, session: aiohttp.ClientSession) -> None:
    places = asyncio.Semaphore(8)

    async def one(count: int) -> None:
        question = {"role": "user", "content": f"Question {count}."}
        body = {"model": "m", "max_tokens": 400, "stream": True, "system": HISTORY, "messages": [question]}
        headers = {"x-claude-code-session-id": f"s-{count % 20}"}
        async with places, session.post(base + "/v1/messages", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()

    await asyncio.gather(*(one(count) for count in range(number)))


async def _watch(base: str, session: aiohttp.ClientSession) -> None:
    """What an open console asks for: the last turns once, then the events."""
    async with session.get(base + "/admin/turns?limit=1000") as answer:
        await answer.read()
    async with session.get(base + "/admin/events", timeout=aiohttp.ClientTimeout(total=None)) as answer:
        async for _ in answer.content.iter_any():
            pass


async def measure(folder: Path, turns: int, *, console: bool, capture: bool) -> dict[str, float]:
    """One condition."""
    script = folder / "script.jsonl"
    script.write_text(_script(turns))
    captures = folder / f"captures-{console}"
    flags = ["--engine", f"scripted:{script}", "--model", "m", "--dialect", "qwen3_coder", "--port", "0"]
    flags += ["--log-level", "info", *(["--capture", str(captures)] if capture else [])]
    process = subprocess.Popen(  # noqa: ASYNC220 - it starts once, before anything is measured
        [sys.executable, "-m", "turnwire", "serve", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = ""
        while "on http://" not in line:
            line = await asyncio.to_thread(process.stdout.readline)
        base = "http://" + line.split("on http://")[1].split()[0]
        async with aiohttp.ClientSession() as session:
            await _turns(base, min(40, turns), session)
            watching = asyncio.create_task(_watch(base, session)) if console else None
            await asyncio.sleep(0.5)
            began, used = time.monotonic(), _used(process)
            await _turns(base, turns, session)
            await asyncio.sleep(1.0)
            spent, took = _used(process) - used, time.monotonic() - began
            async with session.get(base + "/admin/turns?limit=1000") as answer:
                rows = (await answer.json())["turns"]
            if watching is not None:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
    finally:
        process.terminate()
        process.wait(30)
    tokens = rows[0]["output_tokens"]
    size = sum(path.stat().st_size for path in captures.glob("*")) if capture else 0
    return {
        "cpu_ms_per_turn": round(1000 * spent / turns, 3),
        "cpu_us_per_token": round(1e6 * spent / turns / tokens, 2),
        "capture_bytes_per_turn": round(size / (turns + 40)),
        "summary_bytes": round(len(json.dumps(rows)) / len(rows)),
        "output_tokens": tokens,
        "prompt_tokens": rows[0]["prompt_tokens"],
        "seconds": round(took, 2),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for console, capture in ((False, False), (True, False), (False, True), (True, True)):
            name = f"console {'open' if console else 'closed'}, capture {'on' if capture else 'off'}"
            found = await measure(Path(folder), arguments.turns, console=console, capture=capture)
            print(f"{name:32} {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
