"""Hundreds of streams while engines are killed and restarted: nothing lost in silence, nothing said twice.

    python benchmarks/faults.py [--streams 200] [--seconds 60] [--engines 3]

Real processes and real sockets: engines that speak vLLM's wire, one gateway, clients that check every character of
every answer. Some clients leave in mid-stream. Exits 1 if any promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import aiohttp
from engine_stand_in import story
from engines.stand_ins import TOKENS, StandIn, kill_now_and_then
from measure.usage import cpu_seconds, rss_mib

HERE = Path(__file__).parent
DATA = HERE.parent / "src" / "turnwire" / "prompts" / "data"


class Client:
    """Asks turn after turn and checks every answer."""

    def __init__(self, number: int, base: str, session: aiohttp.ClientSession, tally: Counter[str]) -> None:
        self.number = number
        self.url = f"{base}/v1/messages"
        self.session = session
        self.tally = tally
        self.random = random.Random(number)

    async def run(self, until: float) -> None:
        turn = 0
        while time.monotonic() < until:
            turn += 1
            nonce = f"{self.number}x{turn}"
            self.tally["asked"] += 1
            self.tally[await self.ask(nonce)] += 1

    async def ask(self, nonce: str) -> str:
        body = {
            "model": "stand-in",
            "max_tokens": 4096,
            "stream": True,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [{"role": "user", "content": f"Tell me about nonce-{nonce}"}],
        }
        leaves = self.random.random() < 0.05
        said, ended, failed = [], False, False
        try:
            async with self.session.post(self.url, json=body) as answer:
                if answer.status != 200:
                    return f"refused {answer.status}"
                async for raw in answer.content:
                    if not raw.startswith(b"data: "):
                        continue
                    data = json.loads(raw[6:])
                    if data["type"] == "content_block_delta":
                        said.append(data["delta"].get("thinking") or data["delta"].get("text") or "")
                        if leaves and len(said) > 20:
                            answer.close()
                            return "left"
                    ended = ended or data["type"] == "message_stop"
                    failed = failed or data["type"] == "error"
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return "cut with an error"
        expected = story(nonce, TOKENS).replace("\n</think>\n\n", "")
        text = "".join(said)
        if ended:
            return "complete" if text == expected else "WRONG TEXT AS SUCCESS"
        if failed:
            return "told an error"
        return "SILENTLY TRUNCATED"


async def run(options: argparse.Namespace) -> bool:
    engines = [StandIn() for _ in range(options.engines)]
    for engine in engines:
        engine.start()
    for engine in engines:
        engine.wait()
    specs = ",".join(f"vllm:http://127.0.0.1:{engine.port}" for engine in engines)
    command = [sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", specs]
    command += ["--tokenizer", str(DATA / "turnwire-tokenizer.json"), "--template", str(DATA / "turnwire.jinja")]
    command += ["--dialect", "qwen3_coder", "--log-level", "error"]
    gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - nothing runs yet
    assert gateway.stdout is not None
    port = int(re.search(r":(\d+) ", gateway.stdout.readline())[1])  # type: ignore[index]
    tally: Counter[str] = Counter()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        base = f"http://127.0.0.1:{port}"
        await Client(0, base, session, Counter()).run(time.monotonic() + 1)
        before = rss_mib(gateway.pid)
        until = time.monotonic() + options.seconds
        clients = [Client(number, base, session, tally) for number in range(1, options.streams + 1)]
        memory: list[float] = []

        async def weigh() -> None:
            for _ in range(4):
                await asyncio.sleep(options.seconds / 4)
                memory.append(rss_mib(gateway.pid))

        await asyncio.gather(
            kill_now_and_then(engines, until, tally, between=(0.3, 1.2), away=(0.1, 1.0)),
            weigh(),
            *(client.run(until) for client in clients),
        )
        for engine in engines:
            engine.wait()
        await asyncio.sleep(2)
        running = 0
        for engine in engines:
            async with session.get(f"http://127.0.0.1:{engine.port}/statistics") as answer:
                running += (await answer.json())["running"]
        async with session.get(f"{base}/metrics") as answer:
            metrics = await answer.text()
    after, spent = rss_mib(gateway.pid), cpu_seconds(gateway.pid)
    gateway.send_signal(signal.SIGTERM)
    gateway.wait(30)
    for engine in engines:
        engine.kill()
    for name, count in sorted(tally.items()):
        print(f"{name:28} {count}")
    for line in metrics.splitlines():
        if line.startswith(("turnwire_worker_events", "turnwire_live_turns", "turnwire_aborts")):
            print(line)
    print(f"still running on engines     {running}")
    quarters = ", ".join(f"{mib:.0f}" for mib in memory)
    print(f"gateway memory               {before:.0f} MiB, by quarters {quarters}, in the end {after:.0f}")
    print(f"gateway CPU                  {spent:.1f} s")
    bad = [name for name in tally if name.isupper()]
    answered = sum(count for name, count in tally.items() if name not in ("asked", "engines killed"))
    if answered != tally["asked"]:
        bad.append("a turn without an answer")
    if running:
        bad.append("work left running on an engine")
    print("broken promises: " + (", ".join(bad) if bad else "none"))
    return not bad


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--streams", type=int, default=200)
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--engines", type=int, default=3)
    os.chdir(HERE)
    sys.exit(0 if asyncio.run(run(arguments.parse_args())) else 1)


if __name__ == "__main__":
    main()
