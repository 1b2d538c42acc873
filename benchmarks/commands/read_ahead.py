"""What reading the next prompt ahead is worth on a real vLLM: time to first token after a pause of two seconds.

    python -m benchmarks read_ahead [--rounds 5] [--pause 2] [--save]

Starts vLLM's CPU build with a tiny model of random weights. Each round is a new conversation: a turn, a pause, the next
turn. Two kinds of next turn: `loop`, which goes on from all that was read and written (a tool's result), and `dropped`,
whose prompt differs from it after 500 tokens (a template that drops the thoughts of a finished loop), so that about
4,000 tokens have to be read again. Each with and without reading ahead.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import random
import re
import statistics
import tempfile
from pathlib import Path

import msgspec

from benchmarks.installers import installer
from benchmarks.measure.results import FOLDER
from turnwire.engines.interface import Completion, EngineError, EventBatch, GenerateRequest, Hints, TokenBatch
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.vllm import VLLMEngine
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Sampling

KEPT, LONG, RESULT = 500, 4_500, 300
WORDS = {
    "loop": "goes on from what was read and written",
    "dropped": "differs after 500 of 4,500 tokens: thoughts were dropped",
}
BEGIN, END = "<!-- read ahead: from results/read_ahead.json -->", "<!-- end of read ahead -->"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "routing.md"


class Measured(msgspec.Struct):
    """Milliseconds to the first token, round by round."""

    kind: str
    read_ahead: bool
    first_ms: list[float]


class Run(msgspec.Struct):
    """A result file, with what the pool counted over all rounds that read ahead."""

    taken: str
    pause: float
    measured: list[Measured]
    hit: int
    cut: int
    wasted: int
    needless: int
    tokens: int
    saved_ms: float


class _First:
    """The time of a turn's first token, and its ids."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.began = loop.time()
        self.first: float | None = None
        self.ids: list[int] = []
        self.over: asyncio.Future[Completion] = loop.create_future()

    def tokens(self, batch: TokenBatch) -> None:
        if self.first is None:
            self.first = asyncio.get_running_loop().time() - self.began
        self.ids += batch.ids

    def events(self, batch: EventBatch) -> None: ...

    def done(self, completion: Completion) -> None:
        self.over.set_result(completion)

    def failed(self, error: EngineError) -> None:
        self.over.set_exception(error)


def _request(session: str, prompt: list[int]) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=prompt,
        sampling=Sampling(max_tokens=16, temperature=0.0),
        hints=Hints(request_id=f"r-{random.random()}", session=session),
        conversation=Conversation(model="tiny", messages=()),
    )


def page(run: Run) -> str:
    """The table of docs/routing.md, between its marks."""
    lines = [BEGIN, "| next turn | as it comes | read ahead |", "|---|---|---|"]
    for kind, words in WORDS.items():
        cells = {cell.read_ahead: sorted(cell.first_ms) for cell in run.measured if cell.kind == kind}
        told = (
            f"{statistics.median(ms):,.0f} ms ({ms[0]:,.0f} to {ms[-1]:,.0f})" for ms in (cells[False], cells[True])
        )
        lines.append(f"| {words} | {' | '.join(told)} |")
    lines += [
        "",
        f"Of the prompts read ahead {run.hit} were found, {run.cut} cut short by their turn, {run.wasted} wasted;",
    ]
    lines += [f"{run.needless} were not read, since the worker held them. {run.tokens:,} tokens were read ahead.", END]
    return "\n".join(lines)


def write_page(run: Run) -> None:
    """Write the table."""
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    PAGE.write_text(re.sub(pattern, lambda _: page(run), PAGE.read_text("utf-8"), flags=re.DOTALL), "utf-8")


async def _turn(pool: WorkerPool, request: GenerateRequest) -> _First:
    told = _First()
    pool.submit(request, told)
    await told.over
    return told


async def _round(pool: WorkerPool, session: str, kind: str, ahead: bool, pause: float) -> float:
    dice = random.Random(session)
    prompt = [dice.randrange(1_000, 90_000) for _ in range(LONG)]
    said = await _turn(pool, _request(session, prompt))
    if kind == "loop":
        prefix, known = [*prompt, *said.ids], LONG + len(said.ids)
    else:
        prefix, known = [*prompt[:KEPT], *(dice.randrange(1_000, 90_000) for _ in range(LONG - KEPT))], KEPT
    if ahead:
        pool.read_ahead.begin(_request(session, prefix), known)
    await asyncio.sleep(pause)
    told = await _turn(pool, _request(session, [*prefix, *(dice.randrange(1_000, 90_000) for _ in range(RESULT))]))
    assert told.first is not None
    return told.first * 1e3


async def measure(url: str, tokenizer: Path, rounds: int, pause: float) -> Run:
    """All kinds in turn, round by round, on a server that runs."""
    pool = WorkerPool([Worker(VLLMEngine(url), f"vllm:{url}")], load_tokenizer(tokenizer), PoolLimits())
    await pool.start()
    cells = [Measured(kind, ahead, []) for kind in ("loop", "dropped") for ahead in (False, True)]
    await _round(pool, "warm-up", "loop", False, 0.0)
    for number in range(rounds):
        for cell in cells:
            name = f"{cell.kind}-{cell.read_ahead}-{number}"
            cell.first_ms.append(round(await _round(pool, name, cell.kind, cell.read_ahead, pause), 1))
    told = pool.read_ahead.statistics
    await pool.close()
    taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Run(
        taken, pause, cells, told.hit, told.cut, told.wasted, told.needless, told.tokens, round(told.saved * 1e3, 1)
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=2.0)
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, installer("engines").VLLMServer(Path(folder) / "log") as server:
        run = asyncio.run(measure(server.url, server.installation.tokenizer, chosen.rounds, chosen.pause))
    for cell in run.measured:
        words = "read ahead" if cell.read_ahead else "as it comes"
        print(f"{cell.kind:8} {words:12} median {statistics.median(cell.first_ms):7.1f} ms  {cell.first_ms}")
    print(f"hit {run.hit}, cut {run.cut}, wasted {run.wasted}, needless {run.needless}; {run.tokens} tokens read ahead")
    if chosen.save:
        path = FOLDER / "read_ahead.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
        write_page(run)
