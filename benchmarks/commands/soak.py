"""Hours of mixed work: clients of three APIs, tools, leaving, slow reading, killed engines and reloads, on one gateway.

    python -m benchmarks soak [--minutes 60] [--clients 12] [--real] [--save]

Two stand-ins for engines say a text that the prompt determines, so that every answer is checked to the character; one
of them is killed every half minute and started again. A third comes and goes by the config file, which the gateway
reads again on SIGHUP, also every half minute. With `--real` a real vLLM (CPU build, tiny random weights) serves a
second model; its answers mean nothing and are checked for their form. Every ten seconds memory, descriptors, threads,
live turns and the longest `/health` are noted, of one every 50 ms. The gateway's setting `memory` is small enough that
a third of an hour's turns fills it: from there on the curve is to be flat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.endurance.clients import Client
from benchmarks.endurance.samples import Sample, Watch, picture
from benchmarks.engines.stand_ins import StandIn, kill_now_and_then
from benchmarks.installers import installer
from benchmarks.measure.results import FOLDER, machine, today
from benchmarks.measure.usage import cpu_seconds

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "src" / "turnwire" / "prompts" / "data"
EVERY = 10.0
RELOAD_S = 30.0
# A bound that a third of an hour's turns reaches.
MEMORY = 16 * 1024 * 1024


class Soak(msgspec.Struct):
    """The result file."""

    command: str
    taken: str
    minutes: float
    machine: dict[str, str | int | float]
    tally: dict[str, int]
    cpu_seconds: float
    samples: list[Sample]


def configuration(folder: Path, engines: list[StandIn], real: Any) -> Path:
    """Write the gateway's file: the stand-ins as one model, the real engine as another."""
    urls = ", ".join(f'"vllm:http://127.0.0.1:{engine.port}"' for engine in engines)
    text = (
        f'[[model]]\nname = "stand-in"\nengines = [{urls}]\ntokenizer = "{DATA / "turnwire-tokenizer.json"}"\n'
        f'template = "{DATA / "turnwire.jinja"}"\ndialect = "qwen3_coder"\n'
    )
    if real is not None:
        text += f'[[model]]\nname = "tiny"\nengine = "vllm:{real.url}"\nsource = "{real.installation.model}"\n'
    file = folder / "turnwire.toml"
    file.write_text(text)
    return file


async def reload_now_and_then(
    gateway: int, folder: Path, engines: list[StandIn], real: Any, until: float, tally: Counter[str]
) -> None:
    """Take the last engine out of the file and put it back, and have the file read again."""
    there = True
    while time.monotonic() + RELOAD_S < until:
        await asyncio.sleep(RELOAD_S)
        there = not there
        configuration(folder, engines if there else engines[:-1], real)
        os.kill(gateway, signal.SIGHUP)
        tally["reloads"] += 1


async def run(options: argparse.Namespace) -> Soak:
    """All of it; the processes end with it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines = [StandIn(), StandIn(), StandIn()]
        for engine in engines:
            engine.start()
            stack.callback(engine.kill)
        real = None
        if options.real:
            real = stack.enter_context(
                installer("engines").VLLMServer(folder / "vllm.log", "--enable-prompt-tokens-details")
            )
        for engine in engines:
            engine.wait()
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--log-level", "error"]
        command += ["--config", str(configuration(folder, engines, real))]
        gateway = subprocess.Popen(  # noqa: ASYNC220 - nothing runs yet
            command,
            env=os.environ | {"TURNWIRE_MEMORY": str(MEMORY)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(gateway.kill)
        assert gateway.stdout is not None
        port = int(re.search(r"127\.0\.0\.1:(\d+)", gateway.stdout.readline())[1])  # type: ignore[index]
        base, tally = f"http://127.0.0.1:{port}", Counter[str]()
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            until = time.monotonic() + options.minutes * 60
            clients = [Client(number, base, session, tally, pause=(1, 4)) for number in range(options.clients)]
            if options.real:
                clients[0] = Client(0, base, session, tally, pause=(8, 32), real=True)
            watch = Watch(base, gateway.pid, tally, EVERY)
            watching = asyncio.create_task(watch.run())
            await asyncio.gather(
                kill_now_and_then(engines[:2], until - 30, tally, between=(20, 40), away=(0.5, 3)),
                reload_now_and_then(gateway.pid, folder, engines, real, until, tally),
                *(client.run(lambda: time.monotonic() < until) for client in clients),
            )
            watch.stop()
            await watching
        spent = cpu_seconds(gateway.pid)
        gateway.send_signal(signal.SIGTERM)
        tally["exit status of the gateway"] = await asyncio.to_thread(gateway.wait, 30)
    return Soak("soak", today(), options.minutes, machine(), dict(sorted(tally.items())), spent, watch.samples)


def main(arguments: list[str]) -> None:
    """Run, print what was counted, and end with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--real", action="store_true", help="with a real vLLM as a second model")
    parser.add_argument("--save", action="store_true", help="write the result file and the picture")
    soak = asyncio.run(run(parser.parse_args(arguments)))
    for name, count in soak.tally.items():
        print(f"{name:28} {count}")
    half = [sample.rss_mib for sample in soak.samples[len(soak.samples) // 2 :]]
    print(f"memory in the second half    {min(half):.0f} to {max(half):.0f} MiB")
    print(f"longest /health              {max(sample.pause_ms for sample in soak.samples):.0f} ms")
    print(f"own work during one, at most {max(sample.busy_ms or 0 for sample in soak.samples):.0f} ms")
    if parser.parse_args(arguments).save:
        (FOLDER / "soak.json").write_bytes(msgspec.json.format(msgspec.json.encode(soak), indent=1) + b"\n")
        page = picture(soak.samples, "minute", ("rss_mib", "descriptors", "threads", "live", "pause_ms"))
        (ROOT / "docs" / "images" / "soak.svg").write_text(page, encoding="utf-8")
    if any(name.isupper() for name in soak.tally):
        raise SystemExit("a promise was broken")
