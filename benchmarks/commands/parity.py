"""`turnwire parity` on a real model that needs no GPU: the embedded coder, with `turnwire chat` as the client.

    python -m benchmarks parity [--tasks is_even,last] [--runs 1] [--seconds 240] [--save]

Two arms on one gateway, greedy and sampled (as the model's makers recommend), over the easiest of the fifty tasks. A
run that its time or the model's words end early is a failure like any other. `--save` writes results/parity.json after
every run, so a run that is cut short leaves those before it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure.results import FOLDER, machine, today
from benchmarks.measure.versions import commit
from benchmarks.peers.cache import ROOT
from benchmarks.peers.processes import Processes, free_port, serves
from turnwire.parity.results import Parity, Run, compared
from turnwire.parity.runner import Arm, Plan, run_tasks
from turnwire.parity.tasks import write_tasks

FILE = FOLDER / "parity.json"
MODEL = "qwen2.5-coder-1.5b"
# One expression is wrong in each, and the docstring says in plain words what is right.
EASIEST = "is_even,difference,last,factorial,binary,pad,longest,add_days,invert,dot"
# Greedy, and what the makers' generation settings say; the gateway adds top_p, top_k and the penalty to the second.
TEMPERATURES = {"greedy": 0.0, "sampled": 0.7}
SYSTEM = "You fix one Python file. Read it, write the whole corrected file, run the check, then say that it is done."
START_SECONDS = 400.0


class Results(msgspec.Struct):
    """The result file."""

    taken: str
    machine: dict[str, str | int | float]
    turnwire: str
    model: str
    client: str
    seconds: float
    runs: list[Run]
    comparison: Parity | None = None


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", default=EASIEST, help="comma-separated names of `turnwire parity tasks`")
    parser.add_argument("--runs", type=int, default=1, help="runs of each task on each arm")
    parser.add_argument("--seconds", type=float, default=240.0, help="the longest that a run may take")
    parser.add_argument("--save", action="store_true", help="write the result file that docs/parity.md is made from")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="turnwire-parity-") as scratch:
        folder = _chosen(Path(scratch), chosen.tasks.split(","))
        processes = Processes(Path(scratch))
        try:
            url = _gateway(processes)
            results = Results(today(), machine(), commit(ROOT), MODEL, "turnwire chat", chosen.seconds, [])

            def told(run: Run, _: list[dict[str, Any]]) -> None:
                results.runs.append(run)
                if chosen.save:
                    save(results)
                passed = "passed" if run.success else "failed"
                said = f"{run.turns} turns {run.calls} calls {run.seconds:.0f} s {passed} {run.note[:120]}"
                print(f"{run.task:12} {run.arm:8} {said}", flush=True)

            asyncio.run(run_tasks(Plan(arm=arms(url), seconds=chosen.seconds), folder, chosen.runs, told))
        finally:
            processes.stop()
    results.comparison = compared(results.runs, ("greedy", "sampled"))
    if chosen.save:
        save(results)


def arms(url: str) -> list[Arm]:
    """The same client twice, but for the temperature."""
    tools = ROOT / "benchmarks" / "parity" / "repository_tools.py"
    command = f"{sys.executable} -m turnwire.cli.main chat '{{prompt}}' --url {{url}} --tools {tools} --yes"
    return [
        Arm(
            name=name,
            url=url,
            command=f"{command} --system '{SYSTEM}' --max-tokens 300 --temperature {temperature}",
            environment={"PYTHONPATH": str(ROOT / "src"), "HOME": "{home}"},
        )
        for name, temperature in TEMPERATURES.items()
    ]


def save(results: Results) -> None:
    """Write the result file."""
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def _gateway(processes: Processes) -> str:
    port = free_port()
    command = [sys.executable, "-m", "turnwire.cli.main", "serve", "--port", str(port), "--model", MODEL]
    processes.start("gateway", [*command, "--log-level", "warning"], {"PYTHONPATH": str(ROOT / "src")})
    processes.wait(serves(port, MODEL), START_SECONDS)
    return f"http://127.0.0.1:{port}"


def _chosen(scratch: Path, names: list[str]) -> Path:
    """A folder of the tasks that were asked for."""
    folder = scratch / "tasks"
    write_tasks(scratch / "all")
    folder.mkdir()
    for name in names:
        task = scratch / "all" / name
        if not task.exists():
            raise SystemExit(f"unknown task {name}; `turnwire parity tasks FOLDER` writes all of them")
        task.rename(folder / name)
    return folder
