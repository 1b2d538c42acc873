"""The six measurements of the README's table, one after the other, in the shape that a quiet machine is asked for.

    python -m benchmarks quiet [--rounds 3] [--only stream,turn_cost,first_token]

Turnwire on both wires and vLLM's Rust frontend, where it is installed. Each result file is written as soon as its
command is done, so a run that is cut short leaves those before. At three rounds the first three commands take about
four minutes and the other three about five.
"""

from __future__ import annotations

import argparse
import importlib
import time

from benchmarks.peers import cache

# What is passed on: windows shorter than the commands' own, and the cases that the table shows.
PLAN: dict[str, tuple[str, ...]] = {
    "stream": ("--seconds", "2.5"),
    "turn_cost": ("--cases", "growing,edited,tools"),
    "first_token": (),
    "lateness": ("--seconds", "3"),
    "loop_pauses": (),
    "memory": ("--apis", "chat", "--seconds", "3"),
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PLAN), help="comma-separated")
    chosen = parser.parse_args(arguments)
    wanted = chosen.only.split(",")
    if unknown := [name for name in wanted if name not in PLAN]:
        raise SystemExit(f"unknown commands: {', '.join(unknown)}; known: {', '.join(PLAN)}")
    peers = ("turnwire-core", "vllm-rust") if cache.installed("vllm-rust") else ()
    for name in wanted:
        began = time.monotonic()
        command = importlib.import_module(f"benchmarks.commands.{name}")
        shared = ("--rounds", str(chosen.rounds), "--gateways", ",".join(("turnwire", *peers)), "--save")
        command.main([*shared, *PLAN[name]])
        print(f"{name}: {time.monotonic() - began:.0f} s\n", flush=True)
