"""CPU per output token in each way to serve on Ray, beside a plain process, on two replicas.

    python -m benchmarks ray_modes [--rounds 2] [--ways direct,haproxy] [--cases saturated,paced] [--save]

All of Ray's processes count: replicas, proxies, raylet, controller. The engine, the turn and the load are those of
`stream`. One way is started, measured and stopped after the other, because Ray takes a core by itself; a round has all
of them, so that a disturbance of the machine does not fall on one way alone. Redis is the replicas' store. `idle_cores`
is what all of it takes while nobody asks anything.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import sys
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.commands.stream import PACED, PERIOD, SATURATED, SEEN, STREAMS
from benchmarks.load import generator
from benchmarks.load.requests import APIS, MODEL, Said, body
from benchmarks.measure.results import Result, machine, save, today
from benchmarks.measure.session import Session, options
from benchmarks.measure.usage import cpu_seconds
from benchmarks.peers import cache, gateways
from benchmarks.peers.gateways import Gateway, Stage
from benchmarks.peers.processes import free_port, serves
from benchmarks.replicas.storm import Redis

REPLICAS = 2
_IDLE_S, _IDLE_WINDOWS = 2.0, 5
_HAPROXY = {"RAY_SERVE_ENABLE_HA_PROXY": "1"}
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "direct": ("direct", {}),
    "proxy": ("app", {}),
    "haproxy": ("app", _HAPROXY),
    "haproxy-optimized": ("app", _HAPROXY | {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}),
}
"""Which of the two applications, and what Ray is started with."""


def main(arguments: list[str]) -> None:
    parser = options(__doc__, 2)
    parser.set_defaults(apis="chat")
    parser.add_argument("--ways", default=f"plain,workers,{','.join(WAYS)}", help="comma-separated")
    parser.add_argument("--cases", default="saturated,paced")
    parser.add_argument("--seconds", type=float, default=4, help="the window of the paced case")
    chosen = parser.parse_args(arguments)
    rounds, wanted = chosen.rounds, chosen.save
    chosen.rounds, chosen.save = 1, False
    whole = Result("ray_modes", today(), machine(), {}, [])
    with tempfile.TemporaryDirectory() as folder:
        redis = Redis(Path(folder))
        asyncio.run(redis.start())
        try:
            for number, way in product(range(rounds), chosen.ways.split(",")):
                print(f"\nround {number + 1}, {way}", flush=True)
                with Session("ray_modes", chosen, [(way, partial(_start, store=redis.url))]) as session:
                    _measure(session, chosen.cases, chosen.seconds)
                    _add(whole, session.finish("cpu_us", "µs of CPU per output token"))
        finally:
            redis.stop()
    if wanted:
        print("written:", save(whole))


def _add(whole: Result, found: Result) -> None:
    """A further round of some cells."""
    whole.gateways.update(found.gateways)
    for cell in found.cells:
        known = whole.cell(cell.gateway, cell.api, cell.case)
        if known is None:
            whole.cells.append(cell)
            continue
        known.failed += cell.failed
        for name, values in cell.figures.items():
            known.figures.setdefault(name, []).extend(values)


def _start(name: str, stage: Stage, store: str) -> Gateway:
    flags = ("--store", store, "--seal-key", "a key for measuring")
    if name == "plain":
        return gateways.turnwire(name, stage, flags=flags)
    if name == "workers":
        return gateways.turnwire(name, stage, flags=(*flags, "--workers", str(REPLICAS)))
    way, environment = WAYS[name]
    engine, port, processes = free_port(), free_port(), stage.processes()
    counters = gateways.completions_engine(name, stage, processes, engine)
    model = cache.model()
    settings = {
        "engine": f"vllm:http://127.0.0.1:{engine}",
        "alias": [MODEL],
        "tokenizer": str(model / "tokenizer.json"),
        "template": str(model / "template.jinja"),
        "dialect": "hermes",
        "log_level": "warning",
        "store": store,
        "seal_key": "a key for measuring",
        "concurrency": 2048,
        "allow_anonymous": True,
    }
    command = [sys.executable, "-m", "benchmarks.ray.serving", way, str(port), str(REPLICAS), json.dumps(settings)]
    # Ray's sockets need a short path, and its files are many: a folder of its own that goes with the run.
    files = Path(tempfile.mkdtemp(prefix="tw-ray-"))
    processes.after(partial(shutil.rmtree, files, ignore_errors=True))
    more = {"PYTHONPATH": f"{cache.ROOT / 'src'}:{cache.ROOT}", "RAY_TMPDIR": str(files), **environment}
    pid = processes.start(name, command, more, orderly=True)
    processes.wait(serves(port, MODEL), 240)
    return Gateway(name, "HTTP", gateways.commit(cache.ROOT), APIS, port, pid, counters, processes)


def _measure(session: Session, cases: str, seconds: float) -> None:
    request = {api: body(api, [Said("user", "Write the ledger module.")]) for api in session.apis}
    (gateway,) = session.gateways
    idle = _idle_cores(gateway)
    for _, api, gateway in session.turns():
        for case, name in ((SATURATED, "saturated"), (PACED, "paced")):
            if name not in cases:
                continue
            session.playbook.play("mixed", 0 if name == "saturated" else PERIOD)
            try:
                if name == "saturated":
                    # Not measured: the first turns of processes that have just started.
                    generator.turns(gateway, api, request[api], 8, 16, SEEN)
                    load = generator.turns(gateway, api, request[api], STREAMS, 4 * STREAMS, SEEN)
                else:
                    load = generator.window(gateway, api, request[api], STREAMS, 2.5, seconds, SEEN)
            except generator.LoadFailure as failure:
                session.fail(gateway, api, case, str(failure))
                continue
            session.add(
                gateway,
                api,
                case,
                cpu_us=load.each,
                first_ms=load.counted.first_ms[1],
                tokens_per_s=load.tokens / load.counted.seconds,
                rss_mib=load.rss,
                idle_cores=idle,
            )


def _idle_cores(gateway: Gateway) -> float:
    """The least of some seconds: processes may still be starting in the first of them."""
    least = math.inf
    for _ in range(_IDLE_WINDOWS):
        began, used = time.monotonic(), cpu_seconds(gateway.pid)
        time.sleep(_IDLE_S)
        least = min(least, (cpu_seconds(gateway.pid) - used) / (time.monotonic() - began))
    return least
