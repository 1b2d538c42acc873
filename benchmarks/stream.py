"""CPU per output token of the whole stream path, saturated and paced, beside the figures measured for peers.

    python benchmarks/stream.py [--seconds 10] [--profile]

A gateway process plays a mixed turn (reasoning, prose, one tool call) through template, tokenizer, parser, seals and
the Anthropic encoder to real sockets: first from the scripted engine in its own process, then from an engine process
that speaks vLLM's completions wire, one token per chunk, as the peers were measured. Another process reads the streams.
What counts is user plus system time of the gateway from /proc divided by the output tokens: CPU seconds per million
tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pstats
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cpu import cpu_seconds, rss_mib
from workload import messages_request, mixed_turn

# µs of CPU per output token for the same kind of turn on the same kind of machine (2 cores), Anthropic Messages where
# the peer has it: the notes say what differs.
PEERS = {
    "saturated, 64 streams": {
        "Dynamo 1.6 (Rust)": "24-25",
        "smg 1.13 (Rust)": "14-49",
        "vLLM 0.32 Rust frontend (chat only)": "4.8",
        "LiteLLM 1.106 (Python)": "1050",
        "bare Python relay, no parser": "5",
    },
    "paced, 64 x 50 tokens/s": {
        "Dynamo 1.6 (Rust)": "39-53",
        "smg 1.13 (Rust)": "22-36",
        "vLLM 0.32 Rust frontend (chat only)": "16-21",
        "claude-code-router (Node)": "128",
    },
}
USAGE = re.compile(rb'"output_tokens":(\d+)')


async def read_stream(port: int, request: bytes) -> int:
    """One request on its own connection; the number of output tokens that the server stated."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(request)
    tail = b""
    while chunk := await reader.read(1 << 16):
        tail = (tail + chunk)[-600:]
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    counts = USAGE.findall(tail)
    if b"message_stop" not in tail or not counts:
        raise RuntimeError(f"the stream ended early: {tail!r}")
    return int(counts[-1])


async def load(port: int, body: bytes, streams: int, seconds: float) -> tuple[int, int]:
    """Keep `streams` requests going for `seconds`; returns (turns, tokens)."""
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    request = head + body
    deadline = time.monotonic() + seconds
    turns = tokens = 0

    async def worker() -> None:
        nonlocal turns, tokens
        while time.monotonic() < deadline:
            read = await read_stream(port, request)
            tokens += read
            turns += 1

    await asyncio.gather(*(worker() for _ in range(streams)))
    return turns, tokens


DATA = Path(__file__).resolve().parent.parent / "src" / "turnwire" / "prompts" / "data"


class EngineProcess:
    """An engine that speaks vLLM's wire and says the same turn to everybody."""

    def __init__(self, folder: Path, delay_ms: float) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        text = folder / "turn.txt"
        text.write_text(mixed_turn(), encoding="utf-8")
        stand_in = Path(__file__).resolve().parent / "engine_stand_in.py"
        command = [sys.executable, str(stand_in), str(self.port), "--script", str(text), "--delay-ms", str(delay_ms)]
        self.process = subprocess.Popen(command)
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
                break
            time.sleep(0.05)

    @property
    def flags(self) -> list[str]:
        flags = ["--engine", f"vllm:http://127.0.0.1:{self.port}", "--alias", "bench"]
        return [
            *flags,
            "--tokenizer",
            str(DATA / "turnwire-tokenizer.json"),
            "--template",
            str(DATA / "turnwire.jinja"),
        ]

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)


def scripted(folder: Path, line: dict[str, Any]) -> list[str]:
    """The flags that make a gateway play one line."""
    script = folder / "script.jsonl"
    script.write_text(json.dumps(line) + "\n")
    return ["--engine", f"scripted:{script}", "--model", "bench"]


class Gateway:
    """`turnwire serve` in a process of its own."""

    def __init__(self, flags: list[str], profile: Path | None = None) -> None:
        command = [sys.executable]
        if profile:
            command += ["-m", "cProfile", "-o", str(profile)]
        command += ["-m", "turnwire.cli.main", "serve", "--port", "0", *flags]
        command += ["--dialect", "qwen3_coder", "--log-level", "warning"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r":(\d+) ", line)
        if not found:
            raise RuntimeError(f"the gateway did not start: {line!r}")
        self.port = int(found[1])

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)


def turn(delay_ms: float) -> dict[str, Any]:
    """The line that the scripted engine plays."""
    return {"text": mixed_turn(), "finish": "stop", "delay_ms": delay_ms}


def measure(flags: list[str], name: str, delay_ms: float, streams: int, seconds: float) -> float:
    """Run one cell, print it, give back µs per token."""
    body = messages_request("bench")
    with Gateway(flags) as gateway:
        pid = gateway.process.pid
        asyncio.run(load(gateway.port, body, min(streams, 8), 1.0 if delay_ms == 0 else 0.1))
        before, started = cpu_seconds(pid), time.monotonic()
        turns, tokens = asyncio.run(load(gateway.port, body, streams, seconds))
        spent, wall = cpu_seconds(pid) - before, time.monotonic() - started
        each = spent / tokens * 1e6
        print(
            f"{name:40} {each:7.2f} µs/token   {tokens:>8} tokens in {turns} turns, "
            f"{spent:.2f} CPU s, {wall:.1f} s wall, {tokens / wall:,.0f} tokens/s, {rss_mib(pid):.0f} MiB",
            flush=True,
        )
    return each


def profile(folder: Path, name: str, delay_ms: float) -> None:
    """The hottest lines of one cell."""
    out = folder / "profile"
    with Gateway(scripted(folder, turn(delay_ms)), out) as gateway:
        asyncio.run(load(gateway.port, messages_request("bench"), 64, 1.0))
    print(f"\nProfile: {name}")
    pstats.Stats(str(out)).sort_stats("tottime").print_stats(18)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=8.0, help="per cell")
    arguments.add_argument("--profile", action="store_true", help="also print the profile's top lines")
    options = arguments.parse_args()
    os.chdir(Path(__file__).parent)
    seconds = options.seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fast, slow = scripted(folder, turn(0)), "paced, 64 x 50 tokens/s"
        measure(fast, "scripted: saturated, 1 stream", 0, 1, seconds)
        measure(fast, "scripted: saturated, 64 streams", 0, 64, seconds)
        single = scripted(folder, turn(0) | {"burst": 1})
        measure(single, "scripted: one token a wake-up, 64 streams", 0, 64, seconds)
        results = {}
        with EngineProcess(folder, 0) as engine:
            cell = "saturated, 64 streams"
            results[cell] = measure(engine.flags, f"engine process: {cell}", 0, 64, seconds)
        results[slow] = measure(scripted(folder, turn(20)), f"scripted: {slow}", 20, 64, 1.0)
        with EngineProcess(folder, 20) as engine:
            measure(engine.flags, f"engine process: {slow}", 20, 64, 1.0)
        print("\nPeers, measured earlier with their own engines' transports (µs/token), and the ratio to ours:")
        for cell, ours in results.items():
            for peer, figure in PEERS[cell].items():
                best = float(figure.split("-")[0])
                print(f"  {cell:26} {peer:38} {figure:>7}   {best / ours:.1f}x")
        if options.profile:
            profile(folder, "saturated, 64 streams", 0)
            profile(folder, slow, 20)


if __name__ == "__main__":
    main()
