"""A thousand paced streams on one process: resident memory, CPU, and how late tokens are.

python -m benchmarks memory [--streams 1000] [--rate 30]
"""

from __future__ import annotations

import resource
import time

from benchmarks.load import generator
from benchmarks.load.requests import Said, body
from benchmarks.load.turns import WORD
from benchmarks.measure.session import Session, options
from benchmarks.measure.usage import rss_mib


def main(arguments: list[str]) -> None:
    parser = options(__doc__, 2)
    parser.set_defaults(apis="chat,messages")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=30)
    parser.add_argument("--seconds", type=float, default=5)
    chosen = parser.parse_args(arguments)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * chosen.streams + 512)), hard))
    case = f"{chosen.streams} x {chosen.rate:g} tokens/s"
    with Session("memory", chosen) as session:
        session.playbook.play("counted", 1 / chosen.rate)
        for _, api, gateway in session.turns(heavy=True):
            request = body(api, [Said("user", "Count.")])
            idle = rss_mib(gateway.pid)
            try:
                load = generator.window(
                    gateway, api, request, chosen.streams, 8, chosen.seconds, WORD, period=1 / chosen.rate
                )
            except generator.LoadFailure as failure:
                session.fail(gateway, api, case, str(failure))
                continue
            session.add(
                gateway,
                api,
                case,
                rss_mib=load.rss,
                idle_rss_mib=idle,
                cores=load.cpu / load.counted.seconds,
                cpu_us=load.each,
                speaking=load.counted.speaking,
                tokens_per_s=load.tokens / load.counted.seconds,
                p99_ms=load.counted.late_ms[2],
            )
            time.sleep(2)
        session.finish("rss_mib", "MiB resident")
        session.finish("p99_ms", "ms late at most, for 99 of 100 tokens")
