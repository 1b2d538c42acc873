"""CPU per output token of the stream path: saturated, and paced at 64 streams of 50 tokens/s, on all three APIs.

    python -m benchmarks stream [--rounds 3] [--cases saturated,paced]

Every gateway runs in front of an engine process that says the same mixed turn (reasoning, prose, one file-writing
call), one token at a time. Saturated: whole turns, as fast as the engine and the gateway can. Paced: a window in
mid-stream, so that starting and ending turns does not count. `events` is the number of events the client got for a
token: a gateway that merges tokens writes less and pays less. A gateway that does not carry 64 streams has a quarter of
them in the saturated case, and no paced one.
"""

from __future__ import annotations

import time

from benchmarks.load import generator
from benchmarks.load.requests import Said, body
from benchmarks.measure.session import Session, options
from benchmarks.peers.gateways import Gateway

STREAMS, PERIOD = 64, 0.02
SATURATED, PACED = "saturated, 64 streams", "paced, 64 x 50 tokens/s"
SMALL = 4
SEEN = "gateway"  # a word of the turn's first sentence


def main(arguments: list[str]) -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--seconds", type=float, default=4, help="the window of the paced case")
    parser.add_argument("--cases", default="saturated,paced")
    parser.add_argument("--turns", type=int, default=2 * STREAMS, help="whole turns of the saturated case")
    chosen = parser.parse_args(arguments)
    with Session("stream", chosen) as session:
        request = {api: body(api, [Said("user", "Write the ledger module.")]) for api in session.apis}
        for number, api, gateway in session.turns():
            if "saturated" in chosen.cases:
                session.playbook.play("mixed", 0)
                try:
                    if number == 0:
                        generator.turns(gateway, api, request[api], 8, 8, SEEN)
                    share = SMALL if gateway.small else 1
                    load = generator.turns(gateway, api, request[api], STREAMS // share, chosen.turns // share, SEEN)
                except generator.LoadFailure as failure:
                    session.fail(gateway, api, SATURATED, str(failure))
                else:
                    _add(session, gateway, api, SATURATED, load)
            if "paced" in chosen.cases and not gateway.small:
                session.playbook.play("mixed", PERIOD)
                try:
                    load = generator.window(gateway, api, request[api], STREAMS, 2.5, chosen.seconds, SEEN)
                except generator.LoadFailure as failure:
                    session.fail(gateway, api, PACED, str(failure))
                else:
                    _add(session, gateway, api, PACED, load)
                time.sleep(0.5)
        session.finish("cpu_us", "µs of CPU per output token")


def _add(session: Session, gateway: Gateway, api: str, case: str, load: generator.Load) -> None:
    session.add(
        gateway,
        api,
        case,
        cpu_us=load.each,
        events=load.counted.events / max(1, load.tokens),
        first_ms=load.counted.first_ms[1],
        tokens_per_s=load.tokens / load.counted.seconds,
        rss_mib=load.rss,
    )
