"""How long others wait while large bodies arrive: the slowest of many small requests beside four bodies of 30 MB.

    python -m benchmarks loop_pauses [--rounds 3] [--bodies 4] [--megabytes 30]

A process of its own makes a small request over one connection, every two milliseconds, first alone and then while the
bodies are sent and answered. It is one that a gateway answers by itself: /health, but of Turnwire, whose /health asks
the engine, /api/hello. An event loop that is held by a body answers late. The quiet figure is what the machine itself
does to such a probe. The step is the longest that Turnwire's loop itself worked meanwhile before others had their turn,
in CPU time, so that other work on the machine does not count.
"""

from __future__ import annotations

import http.client
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.load.client import head
from benchmarks.load.requests import PATHS, Api, Said, body
from benchmarks.measure.session import Session, options
from benchmarks.measure.usage import cpu_seconds
from benchmarks.peers.gateways import Gateway

QUIET_SECONDS = 2.0
EVERY = 0.002


def main(arguments: list[str]) -> None:
    parser = options(__doc__, 3)
    parser.set_defaults(apis="chat,messages")
    parser.add_argument("--bodies", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=30)
    chosen = parser.parse_args(arguments)
    case = f"{chosen.bodies} bodies of {chosen.megabytes} MB"
    with Session("loop_pauses", chosen, watched=True) as session:
        for _, api, gateway in session.turns(heavy=True):
            quiet = _waits(gateway, partial(time.sleep, QUIET_SECONDS))
            request = _large(api, chosen.megabytes)
            answers: list[bytes] = []
            before = cpu_seconds(gateway.pid)
            if gateway.steps is not None:
                gateway.steps.longest = 0.0
            busy = _waits(gateway, partial(_send, gateway, api, request, chosen.bodies, answers))
            step = {} if gateway.steps is None else {"step_ms": gateway.steps.longest * 1e3}
            session.add(
                gateway,
                api,
                case,
                most_ms=busy[-1] * 1e3,
                p99_ms=busy[int(len(busy) * 0.99)] * 1e3,
                quiet_most_ms=quiet[-1] * 1e3,
                cpu_s=cpu_seconds(gateway.pid) - before,
                answered=float(sum(answer.startswith(b"HTTP/1.1 ") for answer in answers)),
                **step,
            )
        session.finish("most_ms", "ms that the slowest probe waited")


def _large(api: Api, megabytes: int) -> bytes:
    """A body of many messages, in all as large as asked for."""
    line = "A line of a file that somebody has pasted, with some more words in it.\n" * 14
    count = megabytes * 1_000_000 // len(body(api, [Said("user", line)] * 101)) * 100
    return body(api, [Said("assistant" if n % 2 else "user", line) for n in range(count - 1)])


def _send(gateway: Gateway, api: Api, request: bytes, bodies: int, answers: list[bytes]) -> None:
    """Send the same body several times at once, and read what is answered."""

    def one() -> None:
        with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
            connection.settimeout(120)
            try:
                connection.sendall(head(PATHS[api], gateway.port, len(request)))
                connection.sendall(request)
            except ConnectionError:
                pass  # an answer may come before the whole body was taken
            received = b""
            try:
                while data := connection.recv(1 << 16):
                    received = received[:64] + data if len(received) > 64 else received + data
            except (ConnectionError, TimeoutError):
                pass  # counts as not answered, unless its head had come
            answers.append(received)

    threads = [threading.Thread(target=one) for _ in range(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _waits(gateway: Gateway, work: Callable[[], None]) -> list[float]:
    """What each probe waited for while `work` went on, sorted."""
    ours, theirs = multiprocessing.Pipe()
    probe = multiprocessing.Process(target=_probe, args=(gateway.port, gateway.probe, theirs))
    probe.start()
    theirs.close()
    try:
        ours.recv()
        work()
        ours.send(None)
        waits: list[float] = ours.recv()
    finally:
        probe.join()
    return sorted(waits)


def _probe(port: int, path: str, pipe: Connection) -> None:
    waits: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    pipe.send(None)
    while not pipe.poll():
        started = time.perf_counter()
        connection.request("GET", path)
        connection.getresponse().read()
        waits.append(time.perf_counter() - started)
        time.sleep(EVERY)
    connection.close()
    pipe.send(waits)
