"""What a stable prefix is worth: time to the first token through the gateway on a real vLLM.

Four ways to send the same conversation turn after turn: with a first line that stays, with one that varies, with one
that varies but is the billing line which the gateway keeps out of prompts, and with the thought of the last turn
replayed as it was or changed. Times are wall clock on whatever machine this is; the ratios are what counts.

    python benchmarks/prefix.py [--rounds 9] [--words 4200]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import random
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

ROOT = Path(__file__).parents[1]
PUBLISHED = {
    "header": "168 ms stable, 912 ms varying, 169 ms stripped (52K tokens on four B200): 5.4 and 1.0 times",
    "thought": "167 ms intact, 322 ms changed (500 tokens of thought): 1.9 times",
}
PHRASE = "the gateway keeps every token of a turn where the engine has already read it and says so when it cannot"


def load_tools() -> Any:
    """tools/engines.py, from where it lies."""
    spec = importlib.util.spec_from_file_location("turnwire_tools_engines", ROOT / "tools" / "engines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def prose(words: int, seed: int) -> str:
    """Words that look like a prompt and are the same every time."""
    dice, known = random.Random(seed), PHRASE.split()
    return " ".join(dice.choice(known) for _ in range(words))


def body(first_line: str, system: str, thought: str) -> dict[str, object]:
    """A turn in a tool loop, as a harness sends it."""
    return {
        "model": "tiny",
        "max_tokens": 1,
        "stream": True,
        "system": [{"type": "text", "text": first_line}, {"type": "text", "text": system}],
        "tools": [{"name": "read", "description": "Read a file.", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Fix the bug."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": thought, "signature": ""},
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": prose(300, 7)}]},
        ],
    }


class Result(msgspec.Struct):
    """One way of sending: times to the first token in ms, tokens read from the cache, prompt tokens."""

    times: list[float]
    cached: int
    prompt: int

    @property
    def median(self) -> float:
        return statistics.median(self.times)


async def first_token(session: aiohttp.ClientSession, url: str, payload: dict[str, object]) -> tuple[float, int, int]:
    """Milliseconds until the engine's first token is here, then the cached and all prompt tokens."""
    began = time.perf_counter()
    async with session.post(f"{url}/v1/messages", json=payload) as answer:
        if answer.status != 200:
            raise SystemExit(f"the gateway refused: {await answer.text()}")
        data, first = b"", 0.0
        while piece := await answer.content.readany():
            data += piece
            if not first and (b"content_block_start" in data or b"message_delta" in data):
                first = (time.perf_counter() - began) * 1000
    (last,) = (line[6:] for line in data.split(b"\n") if line.startswith(b"data: ") and b'"message_delta"' in line)
    usage = msgspec.json.decode(last)["usage"]
    cached = int(usage.get("cache_read_input_tokens") or 0)
    return first, cached, cached + int(usage["input_tokens"])


async def measure(url: str, rounds: int, bodies: list[dict[str, object]]) -> Result:
    times, cached, prompt = [], 0, 0
    async with aiohttp.ClientSession() as session:
        await first_token(session, url, bodies[0])
        for payload in bodies[1 : rounds + 1]:
            taken, cached, prompt = await first_token(session, url, payload)
            times.append(taken)
    return Result(times, cached, prompt)


def said(log: Path) -> str:
    """What a process has written so far."""
    return log.read_text(errors="replace")


async def gateway(engine_url: str, model: Path, log: Path) -> tuple[asyncio.subprocess.Process, str]:
    """A gateway of our own in front of the engine; returns when it says where it listens."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", f"vllm:{engine_url}",
            "--model", str(model), stdout=output, stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    for _ in range(600):
        found = re.search(r"http://127\.0\.0\.1:\d+", said(log).replace(engine_url, ""))
        if found:
            return process, found.group()
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    raise SystemExit(f"the gateway did not start: {said(log)}")


def show(title: str, published: str, results: dict[str, Result]) -> None:
    base = next(iter(results.values())).median
    print(f"\n{title}\n  published: {published}")
    for name, result in results.items():
        print(
            f"  {name:<10} {result.median:8.1f} ms  x{result.median / base:4.1f}   "
            f"{result.cached} of {result.prompt} tokens cached"
        )


async def run(rounds: int, words: int) -> None:
    tools = load_tools()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with tools.VLLMServer(folder / "vllm.log", "--enable-prompt-tokens-details") as engine:
            process, url = await gateway(engine.url, engine.installation.model, folder / "gateway.log")
            try:
                await experiment(url, rounds, words)
            finally:
                process.terminate()
                await process.wait()


async def experiment(url: str, rounds: int, words: int) -> None:
    dice = random.Random()
    count = range(rounds + 1)

    def tag() -> str:
        return f"{dice.getrandbits(40):010x}"

    def billing() -> str:
        return f"x-anthropic-billing-header: cc_version=2.1.153; cc_entrypoint=cli; cch={tag()};"

    system, thought = prose(words, 1), prose(500, 2)
    fixed = f"trace: {tag()}"
    header = {
        "stable": await measure(url, rounds, [body(fixed, system, thought) for _ in count]),
        "varying": await measure(url, rounds, [body(f"trace: {tag()}", system, thought) for _ in count]),
        "stripped": await measure(url, rounds, [body(billing(), system, thought) for _ in count]),
    }
    show("The first line of the prompt", PUBLISHED["header"], header)
    replay = {
        "intact": await measure(url, rounds, [body(fixed, system, thought) for _ in count]),
        "changed": await measure(url, rounds, [body(fixed, system, f"{tag()} {thought}") for _ in count]),
    }
    show("The thought of the turn before", PUBLISHED["thought"], replay)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--words", type=int, default=4200)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.rounds, arguments.words))


if __name__ == "__main__":
    main()
