"""`turnwire parity`: whether two ways to serve the same tasks come to the same.

Promise: statistics of recorded results need no model; request shapes need no model and no server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from turnwire.parity.page import markdown
from turnwire.parity.results import Run, compared, read_runs, write_runs
from turnwire.parity.runner import read_plan, run_tasks
from turnwire.parity.shapes import diff, shape
from turnwire.parity.tasks import write_tasks

__all__ = ["parity"]

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group()
def parity() -> None:
    """Compare two profiles, gateways or models over the same tasks."""


@parity.command()
@click.argument("results", type=_FILE)
@click.option("--arms", required=True, help="The two arms, such as native,fallback.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the comparison.")
def compare(results: Path, arms: str, json_file: Path | None) -> None:
    """Compare recorded RESULTS: a line of JSON for each run of a task."""
    named = tuple(arms.split(","))
    if len(named) != 2:
        raise click.ClickException("Name two arms, such as --arms native,fallback.")
    try:
        found = compared(read_runs(results), (named[0], named[1]))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(markdown(found))
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


@parity.command()
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
def shapes(first: Path, second: Path) -> None:
    """Show where two recorded requests differ, the conversation aside. Ends with 1 where they do."""
    bodies = []
    for path in (first, second):
        try:
            bodies.append(msgspec.json.decode(path.read_bytes(), type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise click.ClickException(f"{path} is not a request: {error}") from None
    lines = diff(shape(bodies[0]), shape(bodies[1]))
    click.echo("\n".join(lines) or "the same shape")
    if lines:
        raise click.exceptions.Exit(1)


@parity.command()
@click.argument("folder", type=_FOLDER)
def tasks(folder: Path) -> None:
    """Write fifty small tasks with checkers to FOLDER."""
    click.echo(f"{write_tasks(folder)} tasks in {folder}")


@parity.command()
@click.argument("plan", type=_FILE)
@click.option("--tasks", "task_folder", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option(
    "--runs", default=1, show_default=True, type=click.IntRange(1, 100), help="Runs of each task on each arm."
)
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Where results are added.")
@click.option("--requests", type=_FOLDER, help="Keep the first request of each arm here, for `shapes`.")
def run(plan: Path, task_folder: Path, runs: int, save: Path, requests: Path | None) -> None:
    """Run the clients of PLAN (two [[arm]] tables) over a folder of tasks."""

    def told(run: Run, bodies: list[dict[str, Any]]) -> None:
        write_runs(save, [run])
        passed = "passed" if run.success else "failed"
        click.echo(f"{run.task:18} {run.arm:12} {run.turns:3} turns {run.calls:3} calls {passed} {run.note[:100]}")
        if requests is not None and bodies:
            requests.mkdir(parents=True, exist_ok=True)
            file = requests / f"{run.arm}.json"
            if not file.exists():
                file.write_bytes(msgspec.json.encode(bodies[0]))

    try:
        chosen = read_plan(plan)
        made = asyncio.run(run_tasks(chosen, task_folder, runs, told))
        click.echo("\n" + markdown(compared(made, (chosen.arm[0].name, chosen.arm[1].name))))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
