"""`turnwire parity` on a real model that needs no GPU: the embedded coder, with `turnwire chat` as the client.

Promise: a run that its time or the model's words end early is a failure like any other; with `save` the file is written
after every run, so a comparison that is cut short leaves what came before.
"""

from __future__ import annotations

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

__all__ = ["EASIEST", "FILE", "Results", "chosen_tasks", "compare"]

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


def compare(names: list[str], runs: int, seconds: float, *, saved: bool) -> Results:
    """Run the tasks on both arms, in turn."""
    results = Results(today(), machine(), commit(ROOT), MODEL, "turnwire chat", seconds, [])

    def told(run: Run, _: list[dict[str, Any]]) -> None:
        results.runs.append(run)
        if saved:
            save(results)
        passed = "passed" if run.success else "failed"
        said = f"{run.turns} turns {run.calls} calls {run.seconds:.0f} s {passed} {run.note[:120]}"
        print(f"{run.task:12} {run.arm:8} {said}", flush=True)

    with tempfile.TemporaryDirectory(prefix="turnwire-parity-") as scratch:
        folder = chosen_tasks(Path(scratch), names)
        processes = Processes(Path(scratch))
        try:
            plan = Plan(arm=arms(_gateway(processes)), seconds=seconds)
            asyncio.run(run_tasks(plan, folder, runs, told))
        finally:
            processes.stop()
    results.comparison = compared(results.runs, ("greedy", "sampled"))
    if saved:
        save(results)
    return results


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


def chosen_tasks(scratch: Path, names: list[str]) -> Path:
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
