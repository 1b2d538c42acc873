"""What many concurrent agent sessions need, computed from the saved results and from assumptions that are named.

    python -m benchmarks scale [--sessions 1000000] [--write docs/scale.md]

Costs come from results/stream.json, turn_cost.json and replicas.json, the middle of their rounds. What nobody has
measured is an assumption with an option of its own. The last table is a simulation: when Redis is too small for the
life time of its entries, the oldest leave first, and a session that pauses for longer finds its last turn gone.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.measure.results import read

BEGIN, END = "<!-- scale: written by `python -m benchmarks scale --write docs/scale.md` -->", "<!-- end of scale -->"
_DAY = 86_400
_DRAWS = 200_000


class Assumed(msgspec.Struct, frozen=True, kw_only=True):
    """What was not measured: how agents behave, and what machines are allowed to do."""

    sessions: int = 1_000_000
    output: int = 400
    speed: int = 50
    pause: float = 12.0
    prompt: int = 50_000
    busy: float = 0.6
    redis_commands: int = 100_000
    redis_gb: int = 64


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What a token and a turn cost."""

    token_us: float
    turn_ms: float
    process_mib: float
    commands: float
    written: float
    kept: float


def measured() -> Measured:
    """From the result files: Chat, paced streams, 200 messages of history, and the storm over several processes."""
    stream, turns, storm = read("stream"), read("turn_cost"), read("replicas")
    paced = stream.cell("turnwire", "chat", "paced, 64 x 50 tokens/s")
    turn = turns.cell("turnwire", "chat", "200 messages, growing")
    shared = storm.cells[0].figures
    assert paced is not None
    assert turn is not None
    return Measured(
        token_us=median(paced.figures["cpu_us"]),
        turn_ms=median(turn.figures["cpu_ms"]),
        process_mib=median(paced.figures["rss_mib"]),
        commands=shared["redis_commands"][0],
        written=shared["redis_bytes_in"][0],
        kept=shared["redis_kept"][0],
    )


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions need."""

    live: float
    turns: float
    tokens: float
    token_cores: float
    turn_cores: float
    processes: int
    commands: float
    megabytes: float
    redis_processes: int
    sketch: float
    kept_per_turn: float
    kept_tb: dict[str, float]


def need(cost: Measured, given: Assumed) -> Need:
    """The arithmetic."""
    talking = given.output / given.speed
    turns = given.sessions / (talking + given.pause)
    tokens = turns * given.output
    token_cores, turn_cores = tokens * cost.token_us / 1e6, turns * cost.turn_ms / 1e3
    # Eight bytes for every 256 tokens of the prompt, in each of the last turns of a session.
    sketch = given.prompt / 256 * 8
    kept = cost.kept + sketch
    return Need(
        live=turns * talking,
        turns=turns,
        tokens=tokens,
        token_cores=token_cores,
        turn_cores=turn_cores,
        processes=math.ceil((token_cores + turn_cores) / given.busy),
        commands=turns * cost.commands,
        megabytes=turns * (cost.written + sketch) / 1e6,
        redis_processes=math.ceil(turns * cost.commands / given.redis_commands),
        sketch=sketch,
        kept_per_turn=kept,
        kept_tb={name: turns * seconds * kept / 1e12 for name, seconds in _LIVES.items()},
    )


_LIVES = {"1 hour": 3600, "1 day": _DAY, "7 days": 7 * _DAY}


def gaps(count: int, seed: int = 1) -> list[float]:
    """Seconds between the end of a turn and the next request of its session: nine in ten are a tool (median 5 s), the
    others a person (median 3 minutes, one in ten of them hours)."""
    draw = random.Random(seed)
    return [
        draw.lognormvariate(math.log(5), 1.2) if draw.random() < 0.9 else draw.lognormvariate(math.log(180), 2.0)
        for _ in range(count)
    ]


def lost(seconds_kept: float, drawn: list[float]) -> float:
    """The share of turns whose predecessor has left Redis by then."""
    return sum(gap > seconds_kept for gap in drawn) / len(drawn)


def page(cost: Measured, given: Assumed) -> str:
    """The tables of the page."""
    found = need(cost, given)
    drawn = gaps(_DRAWS)
    rows = [
        "| assumed | |",
        "|---|---|",
        f"| sessions at a time | {given.sessions:,} |",
        f"| output of a turn | {given.output} tokens at {given.speed} a second |",
        f"| pause between turns | {given.pause:g} s |",
        f"| prompt | {given.prompt:,} tokens |",
        f"| a gateway's core is busy | {given.busy:.0%} |",
        f"| a Redis process answers | {given.redis_commands:,} commands a second |",
        "",
        "| measured | | where |",
        "|---|---|---|",
        f"| CPU of a streamed token | {cost.token_us:.0f} µs | `results/stream.json`, 64 paced Chat streams |",
        f"| CPU of a turn after 200 messages | {cost.turn_ms:.1f} ms | `results/turn_cost.json` |",
        f"| memory of a process with 64 streams | {cost.process_mib:.0f} MiB | `results/stream.json` |",
        f"| Redis commands a turn | {cost.commands:.1f} | `results/replicas.json` |",
        f"| bytes to Redis a turn | {cost.written:,.0f}, with that run's short prompts | `results/replicas.json` |",
        f"| bytes that Redis keeps of a turn | {cost.kept:,.0f}, of the same | `results/replicas.json` |",
        "",
        "| needed | |",
        "|---|---|",
        f"| streams at a time | {found.live:,.0f} |",
        f"| turns a second | {found.turns:,.0f} |",
        f"| tokens a second | {found.tokens:,.0f} |",
        f"| cores for tokens, for turns | {found.token_cores:,.0f}, {found.turn_cores:,.0f} |",
        f"| gateway processes | {found.processes:,} |",
        f"| streams on each | {found.live / found.processes:,.0f} |",
        f"| memory of all processes | {found.processes * cost.process_mib / 1024:,.0f} GiB and more |",
        f"| Redis commands a second | {found.commands:,.0f}: {found.redis_processes} processes |",
        f"| bytes to Redis a second | {found.megabytes:,.0f} MB |",
        f"| bytes that Redis keeps of a turn of this size | {found.kept_per_turn:,.0f} |",
        "",
        "| turns are kept for | Redis' memory |",
        "|---|---|",
        *(f"| {name} | {size:,.1f} TB |" for name, size in found.kept_tb.items()),
        "",
        "| Redis' memory in all | a turn is kept for | turns whose predecessor is gone by then (simulated) |",
        "|---|---|---|",
    ]
    for shards in (4, 16, 64, 256):
        memory = shards * given.redis_gb
        kept = memory * 1e9 / (found.turns * found.kept_per_turn)
        share = lost(kept, drawn)
        rows.append(f"| {memory:,} GB in {shards} shards | {kept / 60:,.0f} min | {share:.2%} |")
    return "\n".join(rows)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in msgspec.structs.fields(Assumed):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    chosen = vars(parser.parse_args(arguments))
    target: Path | None = chosen.pop("write")
    made = page(measured(), Assumed(**chosen))
    if target is None:
        print(made)
        return
    target.write_text(written(target.read_text(encoding="utf-8"), made), encoding="utf-8")


def written(text: str, made: str) -> str:
    """The page with its tables made anew."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{made}\n{END}{after}"
