"""CPU per output token of the whole stream path, saturated and paced, beside the figures measured for peers.

    python benchmarks/stream.py [--seconds 10] [--profile]

A gateway process plays a mixed turn (reasoning, prose, one tool call) from the scripted engine through template,
tokenizer, parser, seals and the Anthropic encoder to real sockets. A second process reads the streams. What counts is
user plus system time of the gateway from /proc divided by the output tokens: CPU seconds per million tokens.
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


class Gateway:
    """`turnwire serve` on a scripted engine, in a process of its own."""

    def __init__(self, folder: Path, line: dict[str, Any], profile: Path | None = None) -> None:
        script = folder / "script.jsonl"
        script.write_text(json.dumps(line) + "\n")
        command = [sys.executable]
        if profile:
            command += ["-m", "cProfile", "-o", str(profile)]
        command += ["-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", f"scripted:{script}"]
        command += ["--model", "bench", "--dialect", "qwen3_coder", "--log-level", "warning"]
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


def measure(folder: Path, name: str, delay_ms: float, streams: int, seconds: float) -> float:
    """Run one cell, print it, give back µs per token."""
    body = messages_request("bench")
    with Gateway(folder, turn(delay_ms)) as gateway:
        pid = gateway.process.pid
        asyncio.run(load(gateway.port, body, min(streams, 8), 1.0 if delay_ms == 0 else 0.1))
        before, started = cpu_seconds(pid), time.monotonic()
        turns, tokens = asyncio.run(load(gateway.port, body, streams, seconds))
        spent, wall = cpu_seconds(pid) - before, time.monotonic() - started
        each = spent / tokens * 1e6
        print(
            f"{name:28} {each:7.2f} µs/token   {tokens:>8} tokens in {turns} turns, "
            f"{spent:.2f} CPU s, {wall:.1f} s wall, {tokens / wall:,.0f} tokens/s, {rss_mib(pid):.0f} MiB",
            flush=True,
        )
    return each


def profile(folder: Path, name: str, delay_ms: float) -> None:
    """The hottest lines of one cell."""
    out = folder / "profile"
    with Gateway(folder, turn(delay_ms), out) as gateway:
        asyncio.run(load(gateway.port, messages_request("bench"), 64, 1.0))
    print(f"\nProfile: {name}")
    pstats.Stats(str(out)).sort_stats("tottime").print_stats(18)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=8.0, help="per cell")
    arguments.add_argument("--profile", action="store_true", help="also print the profile's top lines")
    options = arguments.parse_args()
    os.chdir(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(folder, "saturated, 1 stream", 0, 1, options.seconds)
        results = {
            "saturated, 64 streams": measure(folder, "saturated, 64 streams", 0, 64, options.seconds),
            "paced, 64 x 50 tokens/s": measure(folder, "paced, 64 x 50 tokens/s", 20, 64, options.seconds),
        }
        print("\nPeers, measured earlier with their own engines' transports (µs/token), and the ratio to ours:")
        for cell, ours in results.items():
            for peer, figure in PEERS[cell].items():
                best = float(figure.split("-")[0])
                print(f"  {cell:26} {peer:38} {figure:>7}   {best / ours:.1f}x")
        if options.profile:
            profile(folder, "saturated, 64 streams", 0)
            profile(folder, "paced, 64 x 50 tokens/s", 20)


if __name__ == "__main__":
    main()
