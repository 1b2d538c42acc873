"""One gateway on scripted models under random requests, and what became of them.

Promise: a finding is a 5xx that nobody asked for, a hang, a cut, a refusal in another shape than the API's, a stream
that breaks its API's rules, a defect that the gateway logged, a turn left running, or a gateway that does not end well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from benchmarks.engines.stand_ins import StandIn
from benchmarks.fuzz.bodies import script
from benchmarks.fuzz.requests import Fuzzer, Request
from benchmarks.fuzz.sockets import visit
from benchmarks.fuzz.verdicts import STREAM, fault
from benchmarks.fuzz.wire import Answer, Connection

DATA = Path(__file__).resolve().parents[2] / "src" / "turnwire" / "prompts" / "data"
DEADLINE_S = 30.0
DIALECTS = {"m": "qwen3_coder", "h": "hermes", "g": "gpt_oss"}
KEPT = 40
"""How many findings are kept in full."""


class Tally(msgspec.Struct):
    """What was asked and what came of it; `routes` counts by the row of the table of routes."""

    requests: int = 0
    statuses: dict[str, int] = {}
    routes: dict[str, int] = {}
    streams: int = 0
    events: int = 0
    left: int = 0
    found: int = 0
    findings: list[str] = []

    def find(self, text: str) -> None:
        """One more defect."""
        self.found += 1
        if len(self.findings) < KEPT:
            self.findings.append(text)

    def add(self, other: Tally) -> None:
        """Take another's counts in."""
        for name in ("requests", "streams", "events", "left", "found"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.statuses = dict(sorted((Counter(self.statuses) + Counter(other.statuses)).items()))
        self.routes = dict(sorted((Counter(self.routes) + Counter(other.routes)).items()))
        self.findings = [*self.findings, *other.findings][:KEPT]


class Fuzz:
    """Several connections that draw from one fuzzer."""

    def __init__(self, port: int, requests: int, seed: int) -> None:
        self.tally = Tally(statuses={}, routes={}, findings=[])
        self._port = port
        self._requests = requests
        self._fuzzer = Fuzzer(seed)
        self._statuses: Counter[str] = Counter()
        self._routes: Counter[str] = Counter()

    async def run(self, connections: int) -> Tally:
        """All of them."""
        await asyncio.gather(*(self._work() for _ in range(connections)))
        self.tally.statuses, self.tally.routes = dict(self._statuses), dict(self._routes)
        return self.tally

    async def _work(self) -> None:
        connection = Connection(self._port)
        while self.tally.requests < self._requests:
            if self._fuzzer.dice.random() < 0.03:
                await self._visit()
                continue
            self.tally.requests += 1
            request = self._fuzzer.request()
            self._routes[request.route] += 1
            await self._ask(connection, request)
        connection.close()

    async def _ask(self, connection: Connection, request: Request) -> None:
        tally = self.tally
        leave = b"event: live" if request.route == "GET /admin/events" else None
        if leave is None and self._fuzzer.dice.random() < 0.02:
            leave = b"data: "
        for attempt in (1, 2):
            try:
                async with asyncio.timeout(DEADLINE_S):
                    answer = await connection.ask(request.method, request.path, request.headers, request.body, leave)
            except TimeoutError:
                tally.find(f"hang: {request} after {connection.before}")
                connection.close()
                return
            except (ConnectionError, asyncio.IncompleteReadError, OSError, ValueError) as error:
                connection.close()
                if attempt == 2:
                    tally.find(f"cut ({error!r}): {request}")
                continue
            self._judge(request, answer, leave)
            return

    def _judge(self, request: Request, answer: Answer, leave: bytes | None) -> None:
        tally = self.tally
        self._statuses[str(answer.status)] += 1
        if answer.kind == STREAM:
            if leave is not None and leave in answer.body:
                tally.left += 1
                return
            tally.streams += 1
            tally.events += answer.body.count(b"\ndata: ") + answer.body.startswith(b"data: ")
        self._fuzzer.learn(answer.body)
        wrong = fault(request, answer)
        if wrong is not None:
            tally.find(f"{wrong}: {request} -> {answer.status} {answer.body[:3000]!r}")

    async def _visit(self) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                route, sent, wrong = await visit(self._port, self._fuzzer)
        except (TimeoutError, OSError) as error:
            self.tally.requests += 1
            self.tally.find(f"a WebSocket failed: {error!r}")
            return
        self.tally.requests += sent
        self._routes[route] += sent
        if wrong is not None:
            self.tally.find(f"{route}: {wrong}")


def configuration(folder: Path, server: StandIn) -> Path:
    """The gateway's file: three scripted models, and one on a server that takes grammars."""
    text = ""
    for name, dialect in DIALECTS.items():
        lines = folder / f"{name}.jsonl"
        lines.write_text("".join(json.dumps(line) + "\n" for line in script(dialect)))
        text += f'[[model]]\nname = "{name}"\nengine = "scripted:{lines}"\ndialect = "{dialect}"\n'
    text += f'[[model]]\nname = "v"\nengine = "vllm:http://127.0.0.1:{server.port}"\ndialect = "hermes"\n'
    text += f'tokenizer = "{DATA / "turnwire-tokenizer.json"}"\ntemplate = "{DATA / "turnwire.jinja"}"\n'
    file = folder / "turnwire.toml"
    file.write_text(text)
    return file


def share(requests: int, seed: int, connections: int) -> Tally:
    """A gateway of its own under so many requests."""
    # The fuzzer walks what it nests; the gateway has its own bounds.
    sys.setrecursionlimit(20_000)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        said = folder / "said.txt"
        said.write_text(str(script("hermes")[1]["text"]))
        server = StandIn("--script", str(said), "--delay-ms", "0")
        server.start()
        stack.callback(server.kill)
        server.wait()
        log = stack.enter_context((folder / "log").open("w+"))
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--log-level", "error"]
        command += ["--config", str(configuration(folder, server))]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        stack.callback(gateway.kill)
        assert gateway.stdout is not None
        port = int(re.search(r"127\.0\.0\.1:(\d+)", gateway.stdout.readline())[1])  # type: ignore[index]
        tally = asyncio.run(Fuzz(port, requests, seed).run(connections))
        asyncio.run(_afterwards(port, tally))
        gateway.send_signal(signal.SIGTERM)
        try:
            if gateway.wait(40) != 0:
                tally.find(f"the gateway ended with {gateway.returncode}")
        except subprocess.TimeoutExpired:
            tally.find("the gateway did not end")
        log.seek(0)
        text = log.read()
        for trace in text.split("Traceback (most recent call last)")[1:]:
            tally.find(f"a trace in the log: {trace[-1500:]}")
    return tally


async def _afterwards(port: int, tally: Tally) -> None:
    """No turn is left, no failure was a defect of the gateway's own."""
    connection = Connection(port)
    page = ""
    for _ in range(100):
        page = (await connection.ask("GET", "/metrics", (), b"")).body.decode()
        if re.search(r"^turnwire_live_turns 0(\.0)?$", page, re.MULTILINE):
            break
        await asyncio.sleep(0.1)
    else:
        tally.find("a turn is left running")
    for line in re.findall(r'^turnwire_failures.*kind="internal".*$', page, re.MULTILINE):
        if not line.startswith("turnwire_failures_created"):
            tally.find(f"failures of the gateway's own: {line}")
    connection.close()
