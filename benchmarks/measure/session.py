"""One run of a command: starts the gateways, gives them out in rounds, collects figures, prints and saves them.

Promise: gateways take turns within each round, in an order that moves, so that a disturbance of the machine does not
fall on one of them alone; every gateway is stopped at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from benchmarks.engines.playbook import Playbook
from benchmarks.engines.script_files import write_playbook
from benchmarks.load.requests import APIS, Api
from benchmarks.load.turns import SCRIPTS
from benchmarks.measure.results import FOLDER, Cell, Result, machine, save, span, today
from benchmarks.peers import cache, gateways
from benchmarks.peers.gateways import Gateway

REFERENCE = "vllm-rust"
# The options that say how much was measured.
_SHAPE = ("rounds", "apis", "cases", "sizes", "seconds", "turns", "streams", "rate")

Starts = list[tuple[str, Callable[[str, gateways.Stage], Gateway]]]
"""The gateways of a run: their names, and how each is started."""


def options(about: str | None, rounds: int, *, light: bool = False) -> argparse.ArgumentParser:
    """The options that every command has. A `light` one leaves most of the machine idle, so it may go first."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--apis", default=",".join(APIS), help="comma-separated")
    parser.add_argument("--gateways", help="comma-separated; default: Turnwire on both wires and every installed peer")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=FOLDER", help="another checkout of Turnwire"
    )
    parser.add_argument("--flag", action="append", default=[], help="passed on to `turnwire serve`")
    parser.add_argument("--into", type=Path, default=FOLDER, help="the folder that --save writes to")
    parser.set_defaults(realtime=False)
    if light:
        parser.add_argument("--realtime", action="store_true", help="ahead of the machine's other work; needs root")
    parser.add_argument(
        "--save", action="store_true", help="write the result file that the README's table is made from"
    )
    return parser


class Session:
    """The gateways of a run and what was measured of them; `watched`: with a clock in Turnwire's event loop."""

    def __init__(
        self, command: str, chosen: argparse.Namespace, starts: Starts | None = None, *, watched: bool = False
    ) -> None:
        self.rounds: int = chosen.rounds
        self.apis: tuple[Api, ...] = tuple(api for api in APIS if api in chosen.apis.split(","))
        self._command = command
        self._save: bool = chosen.save
        self._into: Path = chosen.into
        self._options = {name: str(value) for name, value in vars(chosen).items() if name in _SHAPE and value}
        self._machine = machine()
        if chosen.realtime:
            # Inherited by all that is started: for figures in wall time on a machine that others use too.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
            self._machine["scheduler"] = "realtime"
        self._starts = _starts(chosen) if starts is None else starts
        self._watched = watched
        self._cells: dict[tuple[str, str, str], Cell] = {}
        self._stack = ExitStack()
        self.gateways: list[Gateway] = []

    def __enter__(self) -> Self:
        self.scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwire-bench-")))
        model = cache.model()
        write_playbook(self.scratch / "playbook", model / "tokenizer.json", SCRIPTS)
        self.playbook = Playbook(self.scratch / "playbook")
        self.playbook.play("short", 0)
        stage = gateways.Stage(self.playbook.folder, self.scratch, self._watched)
        self._stack.callback(stage.stop)
        signal.signal(signal.SIGTERM, _leave)
        try:
            self.gateways = [start(name, stage) for name, start in self._starts]
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def turns(self, *, heavy: bool = False) -> Iterator[tuple[int, Api, Gateway]]:
        """Every round, API and gateway that has it, interleaved; a `heavy` load goes to those that carry it."""
        for number in range(self.rounds):
            for api in self.apis:
                shift = number % max(1, len(self.gateways))
                for gateway in [*self.gateways[shift:], *self.gateways[:shift]]:
                    if api in gateway.apis and not (heavy and gateway.small):
                        yield number, api, gateway

    def add(self, gateway: Gateway, api: str, case: str, **figures: float) -> None:
        """Keep and print one round of a cell."""
        cell = self._cell(gateway, api, case)
        for name, value in figures.items():
            cell.figures.setdefault(name, []).append(round(value, 3))
        said = "  ".join(f"{name} {value:.2f}" for name, value in figures.items())
        print(f"{gateway.name:14} {api:10} {case:28} {said}  load {os.getloadavg()[0]:.1f}", flush=True)

    def fail(self, gateway: Gateway, api: str, case: str, why: str) -> None:
        """Keep and print that a round gave no figure."""
        self._cell(gateway, api, case).failed += 1
        print(f"{gateway.name:14} {api:10} {case:28} failed: {why}", flush=True)

    def finish(self, figure: str, unit: str) -> Result:
        """Print the ranges of one figure with ratios to the reference, and save the result where that was asked for."""
        print(f"\n{figure}, {unit}: range of {self.rounds} rounds (median ratio to {REFERENCE} in the same round)")
        for cell in self._cells.values():
            values = cell.figures.get(figure)
            if values:
                print(f"  {cell.gateway:14} {cell.api:10} {cell.case:28} {span(values):>14}{self._ratio(cell, figure)}")
        about = {g.name: {"version": g.version, "wire": g.wire} for g in self.gateways}
        result = Result(self._command, today(), self._machine, about, list(self._cells.values()), self._options)
        if self._save:
            print(f"written: {save(result, self._into)}")
        return result

    def _cell(self, gateway: Gateway, api: str, case: str) -> Cell:
        return self._cells.setdefault((gateway.name, api, case), Cell(gateway.name, api, case, {}))

    def _ratio(self, cell: Cell, figure: str) -> str:
        other = self._cells.get((REFERENCE, cell.api, cell.case)) or self._cells.get((REFERENCE, "chat", cell.case))
        if cell.gateway == REFERENCE or other is None or not other.figures.get(figure):
            return ""
        pairs = zip(cell.figures[figure], other.figures[figure], strict=False)
        ratios = sorted(ours / theirs for ours, theirs in pairs if theirs)
        return f"   x {ratios[len(ratios) // 2]:.2f}" if ratios else ""


def _leave(*_: object) -> None:
    """A session that is told to end ends what it has started."""
    raise SystemExit(143)


def _starts(chosen: argparse.Namespace) -> Starts:
    """The gateways to start, by name."""
    flags = tuple(chosen.flag)
    ours: dict[str, Callable[[str, gateways.Stage], Gateway]] = {
        "turnwire": lambda name, stage: gateways.turnwire(name, stage, flags=flags),
        "turnwire-core": lambda name, stage: gateways.turnwire_core(name, stage, flags=flags),
    }
    wanted: Sequence[str]
    if chosen.gateways:
        wanted = chosen.gateways.split(",")
    else:
        core = ["turnwire-core"] if cache.installed("vllm-rust") else []
        wanted = ["turnwire", *core, *(peer for peer in gateways.PEERS if cache.installed(peer))]
        missing = [peer for peer in gateways.PEERS if not cache.installed(peer)]
        if missing:
            print(f"not installed: {', '.join(missing)} (python -m benchmarks install)", file=sys.stderr)
    known = ours | gateways.PEERS | gateways.ON_REQUEST
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"unknown gateways: {', '.join(unknown)}; known: {', '.join(known)}")
    starts = [(name, known[name]) for name in wanted]
    for also in chosen.also:
        name, _, folder = also.partition("=")
        kind = gateways.turnwire_core if name.endswith("-core") else gateways.turnwire
        starts.append((name, _other(kind, Path(folder), flags)))
    return starts


def _other(
    start: Callable[[str, gateways.Stage, Path, tuple[str, ...]], Gateway], folder: Path, flags: tuple[str, ...]
) -> Callable[[str, gateways.Stage], Gateway]:
    return lambda name, stage: start(name, stage, folder, flags)
