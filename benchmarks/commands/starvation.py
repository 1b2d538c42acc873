"""One tenant floods the line, another asks now and then: how long each waits for its first token.

    python -m benchmarks starvation [--seconds 40] [--flood 200] [--save]

One scripted worker with four places and turns of 0.4 seconds. The flood keeps so many turns asked for at any time,
half of them with the highest priority that a request can name; the other tenant asks three times in two seconds, first
alone and then beside the flood. Served in the order of arrival, it would wait for the whole flood each time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.measure.results import FOLDER, machine, today
from turnwire.gateway.door.keys import hash_key

PLACES, TOKENS, DELAY_MS = 4, 40, 10
TENANTS = ("flood", "quiet")


class Waits(msgspec.Struct):
    """Seconds to the first token of each turn, in the order of arrival; `failed` got none."""

    first: list[float]
    failed: int = 0

    def share(self, part: float) -> float:
        """The wait that so large a part of the turns did not exceed."""
        return sorted(self.first)[min(int(part * len(self.first)), len(self.first) - 1)]


class Starvation(msgspec.Struct):
    """The result file."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    flood: int
    seconds: float
    alone: Waits
    beside: Waits
    flooding: Waits


async def ask(session: aiohttp.ClientSession, base: str, tenant: str, priority: bool, waits: Waits) -> None:
    """One turn."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"{time.monotonic()}"}]}
    headers = {"authorization": f"Bearer {tenant}-key"} | ({"x-dynamo-request-priority": "100"} if priority else {})
    began, first = time.monotonic(), None
    async with session.post(f"{base}/v1/chat/completions", json=body, headers=headers) as answer:
        async for row in answer.content:
            if first is None and b'"content":"' in row and b'"content":""' not in row:
                first = time.monotonic() - began
    if first is None:
        waits.failed += 1
    else:
        waits.first.append(round(first, 4))


async def now_and_then(session: aiohttp.ClientSession, base: str, seconds: float) -> Waits:
    """The quiet tenant's turns."""
    waits, until, asked = Waits([]), time.monotonic() + seconds, []
    while time.monotonic() < until:
        asked.append(asyncio.create_task(ask(session, base, "quiet", False, waits)))
        await asyncio.sleep(2 / 3)
    await asyncio.gather(*asked)
    return waits


async def flood(session: aiohttp.ClientSession, base: str, count: int, over: asyncio.Event) -> Waits:
    """So many turns at any time, until `over`; what then still waits is left."""
    waits = Waits([])

    async def one(number: int) -> None:
        while not over.is_set():
            await ask(session, base, "flood", number % 2 == 0, waits)

    asking = [asyncio.create_task(one(number)) for number in range(count)]
    await over.wait()
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    return waits


def files(folder: Path) -> list[str]:
    """The script, the keys and the settings, as flags."""
    script, keys, settings = folder / "script.jsonl", folder / "keys.toml", folder / "turnwire.toml"
    settings.write_text(f"concurrency = {PLACES}\n")
    script.write_text(json.dumps({"text": "</think>\n\n" + "word " * TOKENS, "delay_ms": DELAY_MS}) + "\n")
    keys.write_text("".join(f'[[key]]\nname = "{name}"\nhash = "{hash_key(f"{name}-key")}"\n' for name in TENANTS))
    return ["--engine", f"scripted:{script}", "--keys", str(keys), "--config", str(settings)]


async def run(options: argparse.Namespace) -> Starvation:
    """All of it; the gateway ends with it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--model", "m", "--log-level", "error"]
        command += [*files(folder), "--dialect", "qwen3_coder"]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - nothing runs yet
        stack.callback(gateway.kill)
        assert gateway.stdout is not None
        base = re.search(r"http://127\.0\.0\.1:\d+", gateway.stdout.readline())[0]  # type: ignore[index]
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
            alone = await now_and_then(session, base, options.seconds / 2)
            over = asyncio.Event()
            flooding = asyncio.create_task(flood(session, base, options.flood, over))
            await asyncio.sleep(2)
            beside = await now_and_then(session, base, options.seconds)
            over.set()
            flooded = await flooding
        gateway.send_signal(signal.SIGTERM)
        await asyncio.to_thread(gateway.wait, 40)
    return Starvation("starvation", today(), machine(), options.flood, options.seconds, alone, beside, flooded)


def main(arguments: list[str]) -> None:
    """Run and print; ends with 1 if the quiet tenant got no answer, or waited for more of the flood than runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks starvation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--flood", type=int, default=200)
    parser.add_argument("--save", action="store_true", help="write the result file")
    options = parser.parse_args(arguments)
    made = asyncio.run(run(options))
    for name, waits in (("alone", made.alone), ("beside the flood", made.beside), ("the flood", made.flooding)):
        parts = ", ".join(f"{text} {waits.share(part):.2f} s" for text, part in (("median", 0.5), ("99 %", 0.99)))
        print(f"{name:18} {len(waits.first)} turns, {parts}, {waits.failed} without a token")
    if options.save:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "starvation.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    if made.beside.failed:
        raise SystemExit("a turn of the quiet tenant got no answer")
