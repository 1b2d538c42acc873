"""The tables of docs/reliability.md that are made from result files.

Promise: no figure in them is written by hand; a run that was not made yet is said to be missing.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from benchmarks.commands.endurance import Endurance
from benchmarks.commands.fuzz import Fuzzed
from benchmarks.commands.soak import Soak
from benchmarks.commands.starvation import DELAY_MS, PLACES, TOKENS, Starvation, Waits
from benchmarks.commands.storm import Storm
from benchmarks.endurance.samples import Sample

MISSING = "No run of this size is saved yet."


def reliability_block(folder: Path) -> str:
    """The text between the two marks of the page."""
    parts = (_storm, _starvation, _fuzz, _endurance, _soak)
    return "\n\n".join(part(folder) for part in parts)


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _where(machine: dict[str, str | int | float], taken: str) -> str:
    return f"{taken}, {machine['cores']} cores, load {machine['load']} at the end, Python {machine['python']}"


def _storm(folder: Path) -> str:
    title = "**Servers that fail politely and otherwise** — `python -m benchmarks storm`"
    file = folder / "storm.json"
    if not file.exists():
        return f"{title}\n\n{MISSING}"
    made = msgspec.json.decode(file.read_bytes(), type=Storm)
    ended = ("complete", "left", "exit status of the gateway")
    turns = sum(count for name, count in made.tally.items() if name != "exit status of the gateway")
    bad = sum(count for name, count in made.tally.items() if name not in ended)
    pool = made.events
    moved = f"{pool.get('retries', 0):,}, {pool.get('migrations', 0):,}, {pool.get('migrations_failed', 0):,}"
    about = (
        "Five servers speak vLLM's wire; four of them fail six generations of ten, before the answer, at a random "
        "token or after it; the fifth is sound and has room, so every error is one too many. Every character of every "
        "answer is checked, on three APIs, streamed and whole."
    )
    rows = [
        ("turns asked", f"{turns:,}"),
        ("answered completely and correctly", f"{made.tally.get('complete', 0):,}"),
        ("left by their client on purpose in mid-stream", f"{made.tally.get('left', 0):,}"),
        ("errors sent, cut, truncated, doubled, lost, hung past 90 s", f"{bad:,}"),
        ("faults, kinds of them", f"{sum(made.faults.values()):,}, {len(made.faults)}"),
        ("retries before the first token, migrations, of them failed", moved),
        ("turns that left a silent worker; longest turn", f"{pool.get('moved_late', 0):,}; {made.longest:.1f} s"),
        ("taken", f"{_where(made.machine, made.taken)}, seed {made.seed}"),
    ]
    return f"{title}\n\n{about}\n\n{_table(rows)}"


def _starvation(folder: Path) -> str:
    title = "**One tenant floods** — `python -m benchmarks starvation`"
    file = folder / "starvation.json"
    if not file.exists():
        return f"{title}\n\n{MISSING}"
    made = msgspec.json.decode(file.read_bytes(), type=Starvation)
    turn = TOKENS * DELAY_MS / 1000
    about = (
        f"A worker with {PLACES} places and turns of {turn:g} s; the flood keeps {made.flood} turns asked for, half of "
        "them with the highest priority that a request can name; another tenant asks three times in two seconds. In "
        f"the order of arrival each of its turns would wait for {made.flood / PLACES * turn:.0f} s."
    )
    lines = ["| time to first token | turns | median | 99 % | most |", "|---|---|---|---|---|"]
    for name, waits in (("alone", made.alone), ("beside the flood", made.beside), ("the flood's own", made.flooding)):
        lines.append(f"| {name} | {len(waits.first)} | {_seconds(waits, 0.5, 0.99, 1.0)} |")
    taken = f"Taken {_where(made.machine, made.taken)}."
    return "\n".join([title, "", about, "", *lines, "", taken])


def _seconds(waits: Waits, *parts: float) -> str:
    return " | ".join(f"{waits.share(part):.2f} s" for part in parts)


def _fuzz(folder: Path) -> str:
    title = "**Bad requests** — `python -m benchmarks fuzz"
    file = folder / "fuzz.json"
    if not file.exists():
        return f"{title}`\n\n{MISSING}"
    made = msgspec.json.decode(file.read_bytes(), type=Fuzzed)
    title += f" --processes {made.processes} --seed {made.seed}`"
    tally = made.tally
    answers = ", ".join(f"{status} x {count:,}" for status, count in tally.statuses.items())
    about = (
        "Requests for every route and messages on both WebSockets, good ones and broken ones, with JSON schemas drawn "
        "at random in tools and formats; scripted models answer with thoughts, calls and texts, right and wrong ones. "
        "Streams are read by the rules of `turnwire conformance`. 503 and 529 are a scripted worker that is full."
    )
    rows = [
        ("requests, routes", f"{tally.requests:,}, {len(tally.routes)}"),
        ("answers", answers),
        ("streams read to their end, events in them", f"{tally.streams:,}, {tally.events:,}"),
        ("status 500, hangs, cuts, wrong shapes, defects inside streams, traces in the log", f"{tally.found:,}"),
        ("taken", f"{_where(made.machine, made.taken)}, {made.seconds:.0f} s"),
    ]
    return f"{title}\n\n{about}\n\n{_table(rows)}"


def _endurance(folder: Path) -> str:
    title = "**A hundred thousand turns** — `python -m benchmarks endurance`"
    file = folder / "endurance.json"
    if not file.exists():
        return f"{title}\n\n{MISSING}"
    made = msgspec.json.decode(file.read_bytes(), type=Endurance)
    parts = [f"{made.median(at / 10, (at + 1) / 10):.0f}" for at in range(10)]
    last = [sample for sample in made.samples if sample.turns >= made.samples[-1].turns * 2 / 3]
    added, turns = last[-1].rss_mib - last[0].rss_mib, last[-1].turns - last[0].turns
    wrong = sum(n for name, n in made.tally.items() if name not in ("asked", "complete", "left"))
    descriptors = [sample.descriptors for sample in made.samples]
    about = (
        "Conversations of up to seven turns, each with material of its own, on the three APIs; every answer is "
        "checked. Memory grows until the stores have reached their bounds."
    )
    rows = [
        ("turns asked, complete, left on purpose", _counts(made.tally)),
        ("errors sent, cut, truncated, wrong, lost", f"{wrong:,}"),
        ("memory by tenths of the turns, MiB", ", ".join(parts)),
        ("added in the last third", f"{added:.1f} MiB, {added * (1 << 20) / turns:.0f} bytes a turn"),
        ("file descriptors, threads", f"{min(descriptors)} to {max(descriptors)}, {made.samples[-1].threads}"),
        ("longest /health, of one every 50 ms", f"{max(sample.pause_ms for sample in made.samples):.0f} ms"),
        *_busy(made.samples),
        ("gateway CPU", f"{made.cpu_seconds:.0f} s of {made.seconds:.0f}"),
        ("taken", _where(made.machine, made.taken)),
    ]
    return f"{title}\n\n{about}\n\n{_table(rows)}\n\n![Memory over the turns](images/endurance.svg)"


def _counts(tally: dict[str, int]) -> str:
    return f"{tally.get('asked', 0):,}, {tally.get('complete', 0):,}, {tally.get('left', 0):,}"


def _soak(folder: Path) -> str:
    title = "**Hours of mixed work** — `python -m benchmarks soak --minutes 60 --clients 8 --real`"
    file = folder / "soak.json"
    if not file.exists():
        return f"{title}\n\n{MISSING}"
    made = msgspec.json.decode(file.read_bytes(), type=Soak)
    tally, good = made.tally, ("asked", "complete", "complete on vLLM", "left", "engines killed", "reloads")
    wrong = sum(n for name, n in tally.items() if name not in good)
    memory, descriptors = [s.rss_mib for s in made.samples], [s.descriptors for s in made.samples]
    pauses = sorted(sample.pause_ms for sample in made.samples)
    threads = sorted({sample.threads for sample in made.samples})
    about = (
        "Clients of the three APIs, streamed and whole, some with tools, some that leave or read slowly, in front of "
        "stand-ins of which one is killed and another comes and goes by the config file, each every half minute, and a "
        "real vLLM (CPU build) as a second model, whose random answers are checked for their form."
    )
    kills = f"{made.minutes:g}; {tally.get('engines killed', 0)}; {tally.get('reloads', 0)}"
    rows = [
        ("minutes; engines killed; reloads by SIGHUP", kills),
        ("turns asked, complete, left on purpose", _counts(tally)),
        ("complete on vLLM", f"{tally.get('complete on vLLM', 0):,}"),
        ("errors sent, cut, truncated, wrong, lost", f"{wrong:,}"),
        ("memory by tenths of the time, MiB", _tenths(memory)),
        ("file descriptors; threads", f"{min(descriptors)} to {max(descriptors)}; {threads[0]} to {threads[-1]}"),
        ("longest /health; in half of the samples below", f"{pauses[-1]:.0f} ms; {pauses[len(pauses) // 2]:.0f} ms"),
        *_busy(made.samples),
        ("gateway CPU", f"{made.cpu_seconds:.0f} s"),
        ("taken", _where(made.machine, made.taken)),
    ]
    return f"{title}\n\n{about}\n\n{_table(rows)}\n\n![Hours of mixed work](images/soak.svg)"


def _busy(samples: list[Sample]) -> list[tuple[str, str]]:
    """The most that the gateway itself was at work during one /health; not measured in older files."""
    measured = [sample.busy_ms for sample in samples if sample.busy_ms is not None]
    return [("the gateway's own work during one /health, at most", f"{max(measured):.0f} ms")] if measured else []


def _tenths(values: list[float]) -> str:
    """The median of each tenth."""
    many = len(values)
    parts = (values[many * at // 10 : max(many * (at + 1) // 10, many * at // 10 + 1)] for at in range(10))
    return ", ".join(f"{statistics.median(part):.0f}" for part in parts)
