"""What a stable prefix is worth: time to the first token through the gateway, on an engine that really reads.

The conditions of `turnwire bench prefix`, and three that need an engine whose output can be given: the turn that the
gateway itself served comes back word for word, comes back after a restart of the gateway with its seals, and without.
The turn's ids are not those that its text would get from the tokenizer, as is usual with sampled text.

    python -m benchmarks prefix                                 real vLLM (CPU build) with a tiny model, 5K tokens
    python -m benchmarks prefix --engine torch --tokens 52000   random weights in the shape of an 8B model, on a GPU
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.installers import installer
from benchmarks.measure.results import FOLDER, machine, today
from turnwire.cli.bench.conversation import Conversation, conversation, prose, result_of
from turnwire.cli.bench.prefix import conditions, table
from turnwire.cli.bench.timing import Client, Timed, interval
from turnwire.gateway.setup.sources import find_source

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = {
    "stable": 168.0,
    "varying": 912.0,
    "stripped": 169.0,
    "thought intact": 167.0,
    "thought changed": 322.0,
}


class Run(msgspec.Struct):
    """The result file."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    engine: str
    request: str
    published: dict[str, float]
    conditions: dict[str, Timed]


@asynccontextmanager
async def gateway(engine_url: str, model: Path, scratch: Path) -> AsyncIterator[str]:
    """A gateway of our own in front of the engine, from when it says where it listens until it has ended."""
    log = scratch / "gateway.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnwire", "serve", "--port", "0", "--engine", f"vllm:{engine_url}",
            "--model", str(model), "--seal-key-file", str(scratch / "seal.key"),
            stdout=output, stderr=asyncio.subprocess.STDOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        for _ in range(1200):
            said = log.read_text(errors="replace")
            found = re.search(r"http://127\.0\.0\.1:\d+", said.replace(engine_url, ""))
            if found:
                break
            if process.returncode is not None:
                raise SystemExit(f"the gateway did not start: {said}")
            await asyncio.sleep(0.1)
        else:
            raise SystemExit(f"the gateway did not start in two minutes: {said}")
        yield found.group()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def torch_engine(python: str, shape: str, tokens: int, scratch: Path) -> AsyncIterator[str]:
    """The engine of benchmarks/gpu on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = scratch / "engine.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            python, "-m", "benchmarks.gpu.engine", str(port), "--shape", shape, "--tokens", str(tokens),
            stdout=output, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as session:
            for _ in range(1800):
                if process.returncode is not None:
                    raise SystemExit(f"the engine ended: {log.read_text(errors='replace')}")
                try:
                    async with session.get(f"{url}/health"):
                        break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
            else:
                raise SystemExit("the engine did not start in three minutes")
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


class Turns:
    """Turns that the gateway serves from given ids, so that they can come back in several ways."""

    def __init__(self, session: aiohttp.ClientSession, engine: str, model: Path, made: Conversation) -> None:
        self._session = session
        self._engine = engine
        self._made = made
        self._tokenizer = find_source(str(model), tokenizer=None, template=None, builtin=False).tokenizer

    def _script(self, number: str) -> dict[str, Any]:
        """A thought of 500 tokens or more in fragments of three letters, a call, and the end of the turn."""
        encode = self._tokenizer.encode
        thought = prose(200, number)
        fragments = [thought[at : at + 3] for at in range(0, len(thought), 3)]
        call = f'{{"name": "{self._made.caller}", "arguments": {{"file_path": "next.py"}}}}'
        parts = ["<think>\n", *fragments, "\n</think>\n\n", f"<tool_call>\n{call}\n</tool_call>", "<|im_end|>"]
        return {"ids": [token for part in parts for token in encode(part)], "text": "".join(parts)}

    async def serve(self, client: Client, number: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A request, and the blocks it was answered with."""
        body = self._made.body(number) | {"max_tokens": 4000}
        async with self._session.post(f"{self._engine}/script", json=self._script(number)) as answer:
            answer.raise_for_status()
        blocks = await client.said(body)
        if [b["type"] for b in blocks if b["type"] in ("thinking", "tool_use")] != ["thinking", "tool_use"]:
            raise SystemExit(f"the given turn was read as {[b['type'] for b in blocks]}")
        return body, blocks

    @staticmethod
    def next(body: dict[str, Any], blocks: list[dict[str, Any]], sealed: bool) -> dict[str, Any]:
        """The request that follows."""
        kept = blocks
        if not sealed:
            kept = [b | {"signature": ""} if b["type"] == "thinking" else b for b in blocks]
            kept = [b for b in kept if b["type"] != "redacted_thinking"]
        (call,) = (b["id"] for b in blocks if b["type"] == "tool_use")
        answered = {"role": "user", "content": [result_of(call, prose(60, call))]}
        messages = [*body["messages"], {"role": "assistant", "content": kept}, answered]
        return body | {"messages": messages, "max_tokens": 1, "stream": True}


async def replays(
    session: aiohttp.ClientSession, engine: str, model: Path, scratch: Path, made: Conversation, rounds: int, last: Any
) -> dict[str, Timed]:
    """A turn that the gateway served comes back: to the same gateway, to a restarted one, and there without seals."""
    turns = Turns(session, engine, model, made)
    ways = {
        "replayed": ("the turn just served comes back", True),
        "replayed after a restart": ("the same to a restarted gateway, from the seals alone", True),
        "unsealed after a restart": ("the same without the seals", False),
    }
    found = {}
    bodies: dict[str, list[dict[str, Any]]] = {}
    async with gateway(engine, model, scratch) as url:
        client = Client(session, url, last=last)
        for name, (_, sealed) in ways.items():
            served = [await turns.serve(client, f"{name} {n}") for n in range(rounds + 1)]
            bodies[name] = [turns.next(body, blocks, sealed) for body, blocks in served]
        found["replayed"] = await client.measure(ways["replayed"][0], bodies.pop("replayed"))
    for name, listed in bodies.items():
        async with gateway(engine, model, scratch) as url:
            found[name] = await Client(session, url, last=last).measure(ways[name][0], listed)
    return found


async def run(options: argparse.Namespace) -> Run:
    """Start an engine and a gateway, measure, stop both."""
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        timeout = aiohttp.ClientTimeout(total=600)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        last = None
        if options.engine == "vllm":
            tools = installer("engines")
            server = stack.enter_context(tools.VLLMServer(scratch / "vllm.log", "--enable-prompt-tokens-details"))
            engine, model = server.url, server.installation.model
            about = "vLLM 0.32, CPU build, a random Qwen3 of two layers"
        else:
            started = torch_engine(options.python, options.shape, options.pages, scratch)
            engine = await stack.enter_async_context(started)
            model = options.model
            about = f"benchmarks/gpu, random weights of shape {options.shape}, {accelerator()}"

            async def last() -> float:
                async with session.get(f"{engine}/last") as answer:
                    return float((await answer.json())["ms"])

        recorded = msgspec.json.decode(options.request.read_bytes()) if options.request else None
        async with gateway(engine, model, scratch) as url:
            client = Client(session, url, last=last)
            made = await conversation(options.tokens, recorded, client.count)
            found = await conditions(client, made, options.rounds)
        if options.engine == "torch":
            found |= await replays(session, engine, model, scratch, made, options.rounds, last)
    digest = hashlib.sha256(options.request.read_bytes()).hexdigest()[:16] if options.request else ""
    request = f"system prompt and tools of a recorded request, sha256 {digest}" if digest else "our own words"
    return Run("prefix", today(), machine(), about, request, PUBLISHED, found)


def accelerator() -> str:
    """The GPU's own name, or that there is none."""
    try:
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no GPU"


def picture(run: Run) -> str:
    """Bars of the medians with their intervals, and the published figure where there is one."""
    first = next(iter(run.conditions.values()))
    longest = max(timed.median for timed in run.conditions.values())
    published = run.published | {"replayed": run.published["thought intact"]}
    rows, top = [], 58
    for name, timed in run.conditions.items():
        low, high = interval(timed.times)
        width, left, right = (420 * value / longest for value in (timed.median, low, high))
        ends = f'<line x1="{220 + left:.1f}" x2="{220 + right:.1f}" y1="{top + 9}" y2="{top + 9}"/>'
        beside = f"  (published: {published[name]:.0f})" if name in published else ""
        rows.append(
            f'<text class="name" x="210" y="{top + 13}">{name}</text>'
            f'<rect x="220" y="{top}" width="{width:.1f}" height="18" rx="3"/>{ends}'
            f'<text x="{228 + width:.1f}" y="{top + 13}">{timed.median:.0f} ms{beside}</text>'
        )
        top += 28
    style = (
        "text{font:13px system-ui,sans-serif;fill:#1f2933}.name{text-anchor:end}rect{fill:#3b82c4}"
        "line{stroke:#12344d;stroke-width:2}.small{font-size:11px;fill:#5f6c7b}"
        "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9aa7b4}line{stroke:#dbeafe}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {top + 30}" role="img" '
        f'aria-label="Time to first token per condition"><style>{style}</style>'
        f'<text x="20" y="24" font-weight="600">Time to first token through the gateway, median of '
        f"{len(first.times)}</text>"
        f'<text class="small" x="20" y="42">{run.engine}; prompt of {first.prompt[-1]:,} tokens</text>'
        + "".join(rows)
        + f'<text class="small" x="20" y="{top + 14}">Published: the same conditions at 52K tokens on four B200, '
        "another model. Lines are 95 % intervals.</text></svg>\n"
    )


def main(arguments: list[str]) -> None:
    """Measure, print, and write the result file and the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks prefix", description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=("vllm", "torch"), default="vllm")
    parser.add_argument("--shape", default="8b", help="of the torch engine's model: 8b or tiny")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--pages", type=int, default=400_000, help="tokens that the torch engine's cache holds")
    parser.add_argument("--model", type=Path, help="folder of the torch engine's tokenizer and template (Qwen3's)")
    parser.add_argument("--request", type=Path, help="a recorded Messages request: its system prompt and tools")
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--save", type=Path, nargs="?", const=FOLDER / "prefix.json", help="write the result file")
    parser.add_argument("--svg", type=Path, help="draw the result here")
    options = parser.parse_args(arguments)
    if options.engine == "torch" and options.model is None:
        parser.error("--engine torch needs --model FOLDER")
    found = asyncio.run(run(options))
    print(f"{found.engine}; {found.request}")
    print("\n".join(table(found.conditions)))
    print("published (52K tokens, four B200):", ", ".join(f"{k} {v:.0f} ms" for k, v in found.published.items()))
    if options.save is not None:
        options.save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if options.svg is not None:
        options.svg.write_text(picture(found), encoding="utf-8")
