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
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.engines.stand_ins import StandIn
from benchmarks.fuzz.bodies import script
from benchmarks.fuzz.findings import Finding, Tally
from benchmarks.fuzz.requests import Fuzzer, Request
from benchmarks.fuzz.sockets import Visit, drawn, make
from benchmarks.fuzz.verdicts import STREAM, fault
from benchmarks.fuzz.wire import Answer, Connection

DATA = Path(__file__).resolve().parents[2] / "src" / "turnwire" / "prompts" / "data"
DEADLINE_S = 30.0
DIALECTS = {"m": "qwen3_coder", "h": "hermes", "g": "gpt_oss"}


class Fuzz:
    """Several connections that draw from one fuzzer."""

    def __init__(self, port: int, requests: int, seed: int) -> None:
        self.tally = Tally(statuses={}, routes={}, findings=[])
        self._port = port
        self._requests = requests
        self._seed = seed
        self._drawn = 0
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
        before: tuple[Request, ...] = ()
        while self.tally.requests < self._requests:
            self._drawn += 1
            number = self._drawn
            self._fuzzer.begin(number)
            if self._fuzzer.dice.random() < 0.03:
                await self._visit(number, drawn(self._fuzzer))
                continue
            self.tally.requests += 1
            request = self._fuzzer.request()
            leave = leaving(request, self._fuzzer.dice.random())
            self._routes[request.route] += 1
            before = (*before[-1:], request) if connection.is_open else (request,)
            wrong = await self.ask(connection, request, leave)
            if wrong is not None:
                self.tally.find(Finding(wrong[0], self._seed, number, before, answer=wrong[1]))
        connection.close()

    async def ask(self, connection: Connection, request: Request, leave: bytes | None) -> tuple[str, str] | None:
        """One exchange; what was wrong with it and what was answered."""
        for _ in range(2):
            try:
                async with asyncio.timeout(DEADLINE_S):
                    answer = await connection.ask(request.method, request.path, request.headers, request.body, leave)
            except TimeoutError:
                connection.close()
                return "hang", ""
            except (ConnectionError, asyncio.IncompleteReadError, OSError, ValueError) as error:
                # A kept connection may be closed between two requests; on a new one it is a defect.
                connection.close()
                cut = repr(error)
                continue
            wrong = self._judge(request, answer, leave)
            return None if wrong is None else (wrong, f"{answer.status} {answer.body!r}")
        return "cut", cut

    def _judge(self, request: Request, answer: Answer, leave: bytes | None) -> str | None:
        tally = self.tally
        self._statuses[str(answer.status)] += 1
        if answer.kind == STREAM:
            if leave is not None and leave in answer.body:
                tally.left += 1
                return None
            tally.streams += 1
            tally.events += answer.body.count(b"\ndata: ") + answer.body.startswith(b"data: ")
        self._fuzzer.learn(answer.body)
        return fault(request, answer)

    async def _visit(self, number: int, visit: Visit) -> None:
        sent, wrong = await visited(self._port, visit)
        self.tally.requests += sent
        self._routes[visit.route] += sent
        if wrong is not None:
            self.tally.find(Finding(wrong, self._seed, number, visit=visit))


async def visited(port: int, visit: Visit) -> tuple[int, str | None]:
    """How many messages of a visit were sent, and what was wrong."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await make(port, visit)
    except (TimeoutError, OSError) as error:
        return 1, f"a WebSocket failed: {error!r}"


def leaving(request: Request, roll: float) -> bytes | None:
    """What makes the client leave once it has come: the first events of a stream that has no end, or now and then the
    first of any."""
    return b"event: live" if request.route == "GET /admin/events" else b"data: " if roll < 0.02 else None


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


@contextlib.contextmanager
def gateway(tally: Tally) -> Iterator[int]:
    """A gateway of its own, by its port. Its end and its log are judged too."""
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
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        stack.callback(process.kill)
        assert process.stdout is not None
        port = int(re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())[1])  # type: ignore[index]
        yield port
        asyncio.run(_afterwards(port, tally))
        process.send_signal(signal.SIGTERM)
        try:
            if process.wait(40) != 0:
                tally.find(Finding(f"the gateway ended with {process.returncode}"))
        except subprocess.TimeoutExpired:
            tally.find(Finding("the gateway did not end"))
        log.seek(0)
        for trace in log.read().split("Traceback (most recent call last)")[1:]:
            tally.find(Finding(f"a trace in the log: {trace[-1500:]}"))


def share(requests: int, seed: int, connections: int) -> Tally:
    """A gateway of its own under so many requests."""
    # The fuzzer walks what it nests; the gateway has its own bounds.
    sys.setrecursionlimit(20_000)
    tally = Tally(statuses={}, routes={}, findings=[])
    with gateway(tally) as port:
        tally.add(asyncio.run(Fuzz(port, requests, seed).run(connections)))
    return tally


def again(findings: Sequence[Finding]) -> Tally:
    """Send what the findings hold once more, one after the other, to a fresh gateway."""
    tally = Tally(statuses={}, routes={}, findings=[])
    with gateway(tally) as port:
        tally.add(asyncio.run(_again(port, findings)))
    return tally


async def _again(port: int, findings: Sequence[Finding]) -> Tally:
    fuzz = Fuzz(port, 0, 0)
    for finding in findings:
        wrong: str | None = None
        if finding.visit is not None:
            fuzz.tally.requests += (done := await visited(port, finding.visit))[0]
            wrong = done[1]
        connection = Connection(port)
        for request in finding.requests:
            fuzz.tally.requests += 1
            judged = await fuzz.ask(connection, request, leaving(request, 1.0))
            wrong = None if judged is None else judged[0]
        connection.close()
        if wrong is not None:
            fuzz.tally.find(msgspec.structs.replace(finding, what=wrong))
    return await fuzz.run(0)


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
        tally.find(Finding("a turn is left running"))
    for line in re.findall(r'^turnwire_failures.*kind="internal".*$', page, re.MULTILINE):
        if not line.startswith("turnwire_failures_created"):
            tally.find(Finding(f"failures of the gateway's own: {line}"))
    connection.close()
