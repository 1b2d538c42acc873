"""How late tokens are among 64 streams of 50 tokens/s: from the engine's step to the client, over all streams.

    python -m benchmarks lateness [--rounds 3] [--streams 64] [--rate 50]

The scripted engines step at multiples of the period of the monotonic clock, so a client knows when a token was due.
What the engine itself needs to write a step is part of it; those of Dynamo and smg are Python and need more.
"""

from __future__ import annotations

import time

from benchmarks.load import generator
from benchmarks.load.requests import Said, body
from benchmarks.load.turns import WORD
from benchmarks.measure.session import Session, options


def main(arguments: list[str]) -> None:
    parser = options(__doc__, 3, light=True)
    parser.set_defaults(apis="chat,messages")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=5)
    chosen = parser.parse_args(arguments)
    case = f"{chosen.streams} x {chosen.rate:g} tokens/s"
    with Session("lateness", chosen) as session:
        session.playbook.play("counted", 1 / chosen.rate)
        for _, api, gateway in session.turns(heavy=True):
            request = body(api, [Said("user", "Count.")])
            try:
                load = generator.window(
                    gateway, api, request, chosen.streams, 2, chosen.seconds, WORD, period=1 / chosen.rate
                )
            except generator.LoadFailure as failure:
                session.fail(gateway, api, case, str(failure))
                continue
            median, _, p99, most = load.counted.late_ms
            session.add(gateway, api, case, p50_ms=median, p99_ms=p99, most_ms=most, cpu_us=load.each)
            time.sleep(0.5)
        session.finish("p99_ms", "ms late at most, for 99 of 100 tokens")
