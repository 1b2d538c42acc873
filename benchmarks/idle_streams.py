"""A thousand streams held open on one process: memory per stream and CPU at rest.

    python benchmarks/idle_streams.py [--streams 1000] [--seconds 20]

First streams whose engine is silent (prefill, a long thought), then streams whose engine says one token a second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from cpu import cpu_seconds, rss_mib
from stream import Gateway, scripted
from workload import messages_request


async def hold(port: int, streams: int, seconds: float, pid: int) -> tuple[float, float, int]:
    """Open `streams` requests, wait, and give back (MiB per thousand streams, CPU seconds per second, bytes read)."""
    body = messages_request("bench")
    head = (f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    before = rss_mib(pid)
    seen = 0

    async def one() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body)

        async def read() -> None:
            nonlocal seen
            while data := await reader.read(65536):
                seen += len(data)

        tasks.append(asyncio.create_task(read()))
        return writer

    tasks: list[asyncio.Task[None]] = []
    writers = [await one() for _ in range(streams)]
    await asyncio.sleep(3)
    spent, started = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    rate = (cpu_seconds(pid) - spent) / (time.monotonic() - started)
    used = (rss_mib(pid) - before) / streams * 1000
    for writer in writers:
        writer.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return used, rate, seen


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--streams", type=int, default=1000)
    arguments.add_argument("--seconds", type=float, default=20)
    options = arguments.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * options.streams + 512), hard))
    os.chdir(Path(__file__).parent)
    # All of them run at a time; none waits in the queue.
    os.environ["TURNWIRE_CONCURRENCY"] = str(options.streams)
    with tempfile.TemporaryDirectory() as name:
        for label, line in (
            ("silent engine", {"text": "x", "first_delay_ms": 3_600_000}),
            ("one token a second", {"text": "word " * 4000, "delay_ms": 1000}),
        ):
            with Gateway(scripted(Path(name), line)) as gateway:
                held = hold(gateway.port, options.streams, options.seconds, gateway.process.pid)
                used, rate, seen = asyncio.run(held)
            print(
                f"{label:20} {options.streams} streams: {used * 1024 / 1000:.0f} KiB each, "
                f"{rate * 100:.1f} % of a core, {seen / options.streams:.0f} bytes sent to each",
                flush=True,
            )


if __name__ == "__main__":
    main()
