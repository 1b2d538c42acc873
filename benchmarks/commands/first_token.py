"""Time to first token that a gateway adds at a prompt of about 52K tokens, on all three APIs.

    python -m benchmarks first_token [--rounds 5]

first request: a short one, the first of its API after the start; cold: a system prompt never seen; again: the same
request; new user: the same system prompt, another question; growing: the conversation goes on. The engine answers at
once, so all of the time is the gateway's and the machine's. CPU beside it says how much of the time was waiting for a
core.
"""

from __future__ import annotations

import random
import time

from benchmarks.load.client import AnswerFailure, ask
from benchmarks.load.requests import Api, Said, body, passage
from benchmarks.load.turns import SHORT
from benchmarks.measure.session import Session, options
from benchmarks.measure.usage import cpu_seconds

CHARACTERS = 210_000
SEEN = SHORT.split()[1]
GROWING = 3


def main(arguments: list[str]) -> None:
    chosen = options(__doc__, 5, light=True).parse_args(arguments)
    with Session("first_token", chosen) as session:
        session.playbook.play("short", 0)
        for number, api, gateway in session.turns():
            if number == 0:
                try:
                    first = ask(gateway.port, api, body(api, [Said("user", "Hello.")]), SEEN)
                except AnswerFailure as failure:
                    session.fail(gateway, api, "first request", str(failure))
                else:
                    session.add(gateway, api, "first request", first_ms=first.first * 1e3)
            for case, request in _requests(api, number):
                before = cpu_seconds(gateway.pid)
                try:
                    answer = ask(gateway.port, api, request, SEEN)
                except AnswerFailure as failure:
                    session.fail(gateway, api, case, str(failure))
                    continue
                time.sleep(0.1)
                cpu = cpu_seconds(gateway.pid) - before
                session.add(gateway, api, case, first_ms=answer.first * 1e3, cpu_ms=cpu * 1e3)
        session.finish("first_ms", "ms to the first text")


def _requests(api: Api, number: int) -> list[tuple[str, bytes]]:
    """The requests of a round, in order, each with its case; the same for every gateway, since their tokens count."""
    source = random.Random(repr((api, number)))
    system = passage(source, CHARACTERS)
    said = [Said("user", passage(source, 2000))]
    requests = [(case, body(api, said, system)) for case in ("cold", "again")]
    requests.append(("new user", body(api, [Said("user", passage(source, 2000))], system)))
    for _ in range(GROWING):
        said = [*said, Said("assistant", SHORT), Said("user", passage(source, 2000))]
        requests.append(("growing", body(api, said, system)))
    return requests
