"""The measured part of docs/replicas.md, from the result files of the storms, outages, ways on Ray and processes.

Promise: no figure is written by hand; a result that is not there has no table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.commands.processes import picture
from benchmarks.measure.results import FOLDER, Cell, Result, read, span
from benchmarks.replicas.outage import table as outage_table

_WAYS = {
    "plain": "`turnwire serve`, one process",
    "workers": "`turnwire serve --workers 2`",
    "direct": "`direct`",
    "proxy": "`app`, default proxy",
    "haproxy": "`app`, HAProxy",
    "haproxy-optimized": "`app`, HAProxy and `THROUGHPUT_OPTIMIZED`",
}
_STORM: tuple[tuple[str, Callable[[dict[str, float]], str]], ...] = (
    ("turns", lambda f: f"{f['turns']:,.0f} in {f['seconds']:,.0f} s"),
    ("killed: processes, Redis", lambda f: f"{f['kills']:.0f}, {f['redis_kills']:.0f}"),
    ("lost, doubled, truncated", lambda f: f"{f['lost']:.0f}, {f['doubled']:.0f}, {f['truncated']:.0f}"),
    ("requests that were asked again", lambda f: f"{f['asked_again']:,.0f}"),
    ("pairs of turns in a loop whose prefix held, token by token", lambda f: f"{f['held']:,.0f} of {f['pairs']:,.0f}"),
    ("verdicts `held`, `first`, `broken`", lambda f: ", ".join(f"{_verdict(f, name):,.0f}" for name in _VERDICTS)),
    ("wrong verdicts", lambda f: f"{f.get('misjudged', 0):.0f}"),
    ("later turns called `first` while Redis was away", lambda f: f"{f.get('unjudged', 0):.0f}"),
    ("Redis commands a turn", lambda f: f"{f['redis_commands']:.1f}"),
    ("bytes to and from Redis a turn", lambda f: f"{f['redis_bytes_in']:,.0f} and {f['redis_bytes_out']:,.0f}"),
    ("bytes that Redis keeps of a turn", lambda f: f"{f['redis_kept']:,.0f}"),
)
_VERDICTS = ("held", "first", "broken")


def replicas_block(folder: Path = FOLDER) -> str:
    """All tables, each with the command that it is from and the machine."""
    parts = [
        ("### Storms", _storms, ("replicas", "replicas_ray")),
        ("### Real clients in those storms", _clients, ("replicas", "replicas_ray")),
        ("### An outage of Redis", _outages, ("redis_outage",)),
        ("### CPU per token on Ray", _modes, ("ray_modes",)),
        ("### Tokens a second and processes", _processes, ("processes",)),
    ]
    said = []
    for title, make, names in parts:
        results = [read(name, folder) for name in names if (folder / f"{name}.json").exists()]
        if table := make(results) if results else "":
            said.append("\n\n".join([title, table]))
    return "\n\n".join(said)


def pictures(folder: Path = FOLDER) -> dict[str, str]:
    """The pictures of the page, by their file's name."""
    return {"processes.svg": picture(read("processes", folder))} if (folder / "processes.json").exists() else {}


def _about(result: Result) -> str:
    machine = result.machine
    return f"{machine['cores']} cores at a load of {machine['load']} before, Python {machine['python']}, {result.taken}"


def _verdict(figures: dict[str, float], name: str) -> float:
    return figures.get(f"verdict_{name}", 0.0)


def _storms(results: list[Result]) -> str:
    cells = [(result, cell) for result in results for cell in result.cells if cell.gateway == "turnwire"]
    lines = ["| | " + " | ".join(cell.case for _, cell in cells) + " |", "|---" * (len(cells) + 1) + "|"]
    figures = [{name: rounds[0] for name, rounds in cell.figures.items()} for _, cell in cells]
    lines += [f"| {name} | " + " | ".join(map(said, figures)) + " |" for name, said in _STORM]
    where = "; ".join(f"`benchmarks/results/{result.command}.json`: {_about(result)}" for result in results)
    return "\n".join([*lines, "", f"{where}."])


def _clients(results: list[Result]) -> str:
    cells = [cell for result in results for cell in result.cells if cell.gateway != "turnwire"]
    if not cells:
        return ""
    lines = [
        "| client | storm | tasks finished | steps a task | turns that the engine was asked for | prefix held "
        "| went on from a turn that was broken off |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        figures = {name: int(rounds[0]) for name, rounds in cell.figures.items()}
        finished = f"{figures['finished']} of {figures['tasks']}"
        held = f"{figures['held']:,} of {figures['pairs']:,}"
        lines.append(
            f"| {cell.gateway} | {cell.case} | {finished} | {figures['steps']} | {figures['turns']:,} | {held} "
            f"| {figures.get('parted', 'not counted')} |"
        )
    return "\n".join(lines)


def _outages(results: list[Result]) -> str:
    (result,) = results
    before = "Status, and seconds until it came, of requests that were all sent at once:"
    return "\n\n".join([before, outage_table(result.cells), f"`python -m benchmarks redis_outage`: {_about(result)}."])


def _modes(results: list[Result]) -> str:
    (result,) = results
    by_way: dict[str, list[Cell]] = {}
    for cell in result.cells:
        by_way.setdefault(cell.gateway, []).append(cell)
    lines = [
        "| µs of CPU per output token (Chat) | 64 streams of 50 tokens/s | saturated | cores while nobody asks |",
        "|---|---|---|---|",
    ]
    for way, cells in by_way.items():
        paced, full = (_case(cells, name) for name in ("paced", "saturated"))
        idle = [value for cell in cells for value in cell.figures.get("idle_cores", ())]
        least = f"{min(idle):.2f} to {max(idle):.2f}" if idle else ""
        lines.append(f"| {_WAYS.get(way, way)} | {_rounds(paced)} | {_rounds(full)} | {least} |")
    counts = [len(rounds) for cell in result.cells for rounds in cell.figures.values()]
    rounds = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{max(counts)}"
    about = "`python -m benchmarks ray_modes`, two replicas, CPU of all of Ray's processes"
    return "\n".join([*lines, "", f"{about}, rounds of each way: {rounds}; {_about(result)}."])


def _case(cells: list[Cell], begins: str) -> Cell | None:
    return next((cell for cell in cells if cell.case.startswith(begins)), None)


def _rounds(cell: Cell | None) -> str:
    rounds = cell.figures.get("cpu_us") if cell is not None else None
    return span(rounds) if rounds else "fell behind"


def _processes(results: list[Result]) -> str:
    (result,) = results
    lines = [
        "| processes | tokens a second | cores that they got | µs of CPU a token | memory |",
        "|---|---|---|---|---|",
    ]
    for cell in result.cells:
        figures = cell.figures
        rates = f"{min(figures['tokens_per_s']):,.0f} to {max(figures['tokens_per_s']):,.0f}"
        cores = f"{min(figures['cores']):.2f} to {max(figures['cores']):.2f}"
        memory = f"{max(figures['rss_mib']):,.0f} MiB"
        lines.append(f"| {cell.gateway.split()[0]} | {rates} | {cores} | {span(figures['cpu_us'])} | {memory} |")
    about = f"`python -m benchmarks processes`, 64 Chat streams for each process: {_about(result)}."
    return "\n".join(
        [*lines, "", about, "", "![Tokens a second against the number of processes](images/processes.svg)"]
    )
