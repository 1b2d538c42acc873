"""Turnwire beside vLLM's Rust frontend, smg, Dynamo and LiteLLM: what README's table of peers is made from.

    python -m benchmarks peers [--quick] [--only stream,turn_cost]

In each measurement all gateways are up together and take turns within every round. `--quick` measures less of each (two
rounds, shorter windows), in about 25 minutes on two busy cores; the result files say with which options they were made.
Each is written as soon as its command is done, so a run that is cut short leaves those before.
"""

from __future__ import annotations

import argparse
import importlib
import time

from benchmarks.measure.results import FOLDER
from benchmarks.peers import cache

INTO = FOLDER / "peers"
# Each measurement with its options, and those that `--quick` adds.
PLAN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "stream": ((), ("--rounds", "2", "--seconds", "2.5", "--turns", "64")),
    "turn_cost": (("--cases", "growing,edited,tools"), ("--rounds", "2")),
    "first_token": (("--rounds", "3"), ()),
    "lateness": ((), ("--rounds", "2", "--seconds", "3", "--apis", "chat")),
    # At a rate that the scripted engines of all of them keep up with: some are in Python.
    "memory": (("--apis", "chat", "--rate", "5"), ("--rounds", "2", "--seconds", "3")),
}
ORDER = ("vllm-rust", "smg", "dynamo", "litellm")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shorter windows")
    parser.add_argument("--only", default=",".join(PLAN), help="comma-separated")
    parser.add_argument("--gateways", help="comma-separated; default: Turnwire on both wires and every installed peer")
    chosen = parser.parse_args(arguments)
    wanted = chosen.only.split(",")
    if unknown := [name for name in wanted if name not in PLAN]:
        raise SystemExit(f"unknown measurements: {', '.join(unknown)}; known: {', '.join(PLAN)}")
    found = [peer for peer in ORDER if cache.installed(peer)]
    ours = ["turnwire", "turnwire-core"] if "vllm-rust" in found else ["turnwire"]
    gateways = chosen.gateways or ",".join((*ours, *found))
    INTO.mkdir(exist_ok=True)
    whole = time.monotonic()
    for name in wanted:
        began = time.monotonic()
        options, quick = PLAN[name]
        command = importlib.import_module(f"benchmarks.commands.{name}")
        shared = ("--gateways", gateways, "--save", "--into", str(INTO))
        command.main([*shared, *options, *(quick if chosen.quick else ())])
        print(f"{name}: {time.monotonic() - began:.0f} s\n", flush=True)
    print(f"all: {(time.monotonic() - whole) / 60:.1f} minutes", flush=True)
