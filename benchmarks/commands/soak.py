"""Hours of mixed work: clients of three APIs, tools, leaving, slow reading and killed engines, on one gateway.

    python -m benchmarks soak [--minutes 60] [--clients 12] [--real] [--save]

Two stand-ins for engines say a text that the prompt determines, so that every answer is checked to the character; one
of them is killed every half minute and started again. With `--real` a real vLLM (CPU build, tiny random weights) serves
a second model; its answers mean nothing and are checked for their form. Every ten seconds
memory, descriptors, threads, live turns and the time of a `/health` request are noted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.commands.prefix import load_tools
from benchmarks.engines.stand_ins import TOKENS, StandIn, kill_now_and_then
from benchmarks.measure.results import FOLDER, machine, today
from benchmarks.measure.usage import cpu_seconds, rss_mib

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "src" / "turnwire" / "prompts" / "data"
EVERY = 10.0
APIS = ("messages", "chat", "responses")
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}


class Sample(msgspec.Struct):
    """What the gateway's process looked like at one moment; `health_ms` is the longest of the probes since the last."""

    minute: float
    rss_mib: float
    descriptors: int
    threads: int
    live: int
    health_ms: float
    turns: int


class Soak(msgspec.Struct):
    """The result file."""

    command: str
    taken: str
    minutes: float
    machine: dict[str, str | int | float]
    tally: dict[str, int]
    cpu_seconds: float
    samples: list[Sample]


def story(nonce: str) -> str:
    """What a stand-in says to a nonce, thought and answer in one."""
    words = " ".join(f"{nonce}:{number}" for number in range(TOKENS // 4))
    return f"thinking about {nonce}{words} the end of {nonce}"


class Client:
    """One user: turns with pauses between them, each conversation some turns long."""

    def __init__(self, number: int, base: str, session: aiohttp.ClientSession, tally: Counter[str], real: bool) -> None:
        self.base = base
        self.session = session
        self.tally = tally
        self.number = number
        self.dice = random.Random(number)
        self.api = APIS[number % len(APIS)]
        self.real = real and number == 0

    async def run(self, until: float) -> None:
        turn, history = 0, []
        while time.monotonic() < until:
            turn += 1
            nonce = f"{self.number}x{turn}"
            self.tally["asked"] += 1
            outcome, said = await self._turn(nonce, history)
            self.tally[outcome] += 1
            if outcome == "complete" and len(history) < 12:
                history += [("user", f"Tell me about nonce-{nonce}"), ("assistant", said)]
            else:
                history = []
            await asyncio.sleep(self.dice.uniform(1, 4) * (8 if self.real else 1))

    async def _turn(self, nonce: str, history: list[tuple[str, str]]) -> tuple[str, str]:
        messages = [{"role": role, "content": text} for role, text in history]
        messages.append({"role": "user", "content": f"Tell me about nonce-{nonce}"})
        stream = self.dice.random() < 0.8
        leaves, slow = stream and self.dice.random() < 0.05, stream and self.dice.random() < 0.05
        body: dict[str, Any] = {"model": "tiny" if self.real else "stand-in", "stream": stream}
        body |= {"input" if self.api == "responses" else "messages": messages}
        if self.dice.random() < 0.3:
            body["tools"] = [self._tool()]
        limit = 12 if self.real else 4096
        body |= {"max_output_tokens" if self.api == "responses" else "max_tokens": limit}
        if self.api == "messages":
            body["thinking"] = {"type": "adaptive"}
        try:
            async with self.session.post(self.base + PATHS[self.api], json=body) as answer:
                if answer.status != 200:
                    self.tally[f"status {answer.status}"] += 1
                    return "told an error", ""
                if not stream:
                    return self._judge(nonce, *self._whole(json.loads(await answer.read())))
                return self._judge(nonce, *await self._streamed(answer, leaves, slow))
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return "cut with an error", ""

    def _tool(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        if self.api == "messages":
            return {"name": "read", "input_schema": schema}
        tool = {"name": "read", "parameters": schema}
        return {"type": "function", **tool} if self.api == "responses" else {"type": "function", "function": tool}

    def _whole(self, data: dict[str, Any]) -> tuple[str, str, str]:
        """The thought, the text and how it ended."""
        if self.api == "messages":
            parts = data["content"]
            thought = "".join(p.get("thinking", "") for p in parts)
            return thought, "".join(p.get("text", "") for p in parts), "ended"
        if self.api == "chat":
            message = data["choices"][0]["message"]
            return message.get("reasoning_content") or "", message.get("content") or "", "ended"
        thought = text = ""
        for item in data["output"]:
            found = "".join(part["text"] for part in [*item.get("content", ()), *item.get("summary", ())])
            thought, text = (thought + found, text) if item["type"] == "reasoning" else (thought, text + found)
        return thought, text, "ended" if data["status"] in ("completed", "incomplete") else "failed"

    async def _streamed(self, answer: aiohttp.ClientResponse, leaves: bool, slow: bool) -> tuple[str, str, str]:
        thought, text, end, count = "", "", "open", 0
        async for raw in answer.content:
            if not raw.startswith(b"data: ") or raw.startswith(b"data: [DONE]"):
                end = "ended" if raw.startswith(b"data: [DONE]") and end == "open" else end
                continue
            data = json.loads(raw[6:])
            kind = data.get("type", "")
            more, other = self._delta(kind, data)
            thought, text, count = thought + more, text + other, count + 1
            if leaves and count > 20:
                answer.close()
                return thought, text, "left"
            if slow and count % 20 == 0:
                await asyncio.sleep(0.2)
            if kind in ("message_stop", "response.completed", "response.incomplete"):
                end = "ended"
            elif kind in ("error", "response.failed") or "error" in data:
                end = "failed" if data.get("error") or kind == "error" or kind == "response.failed" else end
        return thought, text, end

    @staticmethod
    def _delta(kind: str, data: dict[str, Any]) -> tuple[str, str]:
        if kind == "content_block_delta":
            return data["delta"].get("thinking", ""), data["delta"].get("text", "")
        if kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            return data["delta"], ""
        if kind == "response.output_text.delta":
            return "", data["delta"]
        if data.get("choices"):
            delta = data["choices"][0]["delta"]
            return delta.get("reasoning_content") or "", delta.get("content") or ""
        return "", ""

    def _judge(self, nonce: str, thought: str, text: str, end: str) -> tuple[str, str]:
        if end == "left":
            return "left", ""
        if end == "failed":
            return "told an error", ""
        if end == "open":
            return "SILENTLY TRUNCATED", ""
        if self.real:
            return "complete on vLLM", ""
        whole = thought + text if thought else f"thinking about {nonce}{text}"
        return ("complete", text) if whole == story(nonce) else ("WRONG TEXT AS SUCCESS", "")


def held(pid: int) -> tuple[int, int]:
    """Threads and file descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"Threads:\s+(\d+)", status)[1]), len(list(Path(f"/proc/{pid}/fd").iterdir()))  # type: ignore[index]


async def watch(
    session: aiohttp.ClientSession, base: str, pid: int, began: float, until: float, tally: Counter[str]
) -> list[Sample]:
    """Samples, with a probe of /health every half second."""
    samples, longest, due = [], 0.0, time.monotonic() + EVERY
    while time.monotonic() < until:
        asked = time.perf_counter()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"{base}/health") as answer:
                await answer.read()
        longest = max(longest, (time.perf_counter() - asked) * 1000)
        if time.monotonic() >= due:
            due += EVERY
            async with session.get(f"{base}/metrics") as answer:
                found = re.findall(r"^turnwire_live_turns(?:{.*})? (\S+)$", await answer.text(), re.MULTILINE)
            threads, descriptors = held(pid)
            minute, done = (time.monotonic() - began) / 60, tally["asked"]
            live = int(sum(float(value) for value in found))
            samples.append(Sample(minute, rss_mib(pid), descriptors, threads, live, longest, done))
            longest = 0.0
        await asyncio.sleep(0.5)
    return samples


def configuration(folder: Path, engines: list[StandIn], real: Any) -> Path:
    """The gateway's file: the stand-ins as one model, the real engine as another."""
    urls = ", ".join(f'"vllm:http://127.0.0.1:{engine.port}"' for engine in engines)
    text = (
        f'[[model]]\nname = "stand-in"\nengines = [{urls}]\ntokenizer = "{DATA / "turnwire-tokenizer.json"}"\n'
        f'template = "{DATA / "turnwire.jinja"}"\ndialect = "qwen3_coder"\n'
    )
    if real is not None:
        text += f'[[model]]\nname = "tiny"\nengine = "vllm:{real.url}"\nsource = "{real.installation.model}"\n'
    file = folder / "turnwire.toml"
    file.write_text(text)
    return file


async def run(options: argparse.Namespace) -> Soak:
    """All of it; the processes end with it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines = [StandIn(), StandIn()]
        for engine in engines:
            engine.start()
            stack.callback(engine.kill)
        real = None
        if options.real:
            real = stack.enter_context(load_tools().VLLMServer(folder / "vllm.log", "--enable-prompt-tokens-details"))
        await asyncio.sleep(3)
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--log-level", "error"]
        command += ["--config", str(configuration(folder, engines, real))]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - nothing runs yet
        stack.callback(gateway.kill)
        assert gateway.stdout is not None
        port = int(re.search(r"127\.0\.0\.1:(\d+)", gateway.stdout.readline())[1])  # type: ignore[index]
        base, tally = f"http://127.0.0.1:{port}", Counter[str]()
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            began = time.monotonic()
            until = began + options.minutes * 60
            clients = [Client(number, base, session, tally, options.real) for number in range(options.clients)]
            samples, *_ = await asyncio.gather(
                watch(session, base, gateway.pid, began, until, tally),
                kill_now_and_then(engines, until - 30, tally, between=(20, 40), away=(0.5, 3)),
                *(client.run(until) for client in clients),
            )
        spent = cpu_seconds(gateway.pid)
        gateway.send_signal(signal.SIGTERM)
        tally["exit status of the gateway"] = await asyncio.to_thread(gateway.wait, 30)
    return Soak("soak", today(), options.minutes, machine(), dict(sorted(tally.items())), spent, samples)


CURVES = (("rss_mib", "memory, MiB"), ("descriptors", "file descriptors"), ("threads", "threads"),
          ("live", "live turns"), ("health_ms", "longest /health, ms"))  # fmt: skip


def picture(soak: Soak) -> str:
    """A curve per quantity over the minutes, each on its own scale from zero."""
    wide, high, parts = 720, 84, []
    last = soak.samples[-1].minute
    for number, (name, text) in enumerate(CURVES):
        top = 40 + number * (high + 30)
        values = [float(getattr(sample, name)) for sample in soak.samples]
        most = max(values) or 1.0
        points = " ".join(
            f"{60 + wide * sample.minute / last:.1f},{top + high - high * value / most:.1f}"
            for sample, value in zip(soak.samples, values, strict=True)
        )
        parts.append(
            f'<text x="60" y="{top - 8}">{text}</text><text class="small" x="52" y="{top + 10}">{most:.0f}</text>'
            f'<text class="small" x="52" y="{top + high}">0</text>'
            f'<path d="M60 {top + high}H{60 + wide}"/><polyline points="{points}"/>'
        )
    bottom = 40 + len(CURVES) * (high + 30)
    style = (
        "text{font:13px system-ui,sans-serif;fill:#1f2933}.small{font-size:11px;fill:#5f6c7b;text-anchor:end}"
        "polyline{fill:none;stroke:#3b82c4;stroke-width:1.5}path{stroke:#9aa7b4}"
        "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9aa7b4}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide + 90} {bottom + 20}" role="img" '
        f'aria-label="The gateway over {last:.0f} minutes"><style>{style}</style>{"".join(parts)}'
        f'<text class="small" x="{60 + wide}" y="{bottom}">minute {last:.0f}</text></svg>\n'
    )


def main(arguments: list[str]) -> None:
    """Run, print what was counted, and end with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--real", action="store_true", help="with a real vLLM as a second model")
    parser.add_argument("--save", action="store_true", help="write the result file and the picture")
    soak = asyncio.run(run(parser.parse_args(arguments)))
    for name, count in soak.tally.items():
        print(f"{name:28} {count}")
    half = [sample.rss_mib for sample in soak.samples[len(soak.samples) // 2 :]]
    print(f"memory in the second half    {min(half):.0f} to {max(half):.0f} MiB")
    print(f"longest /health              {max(sample.health_ms for sample in soak.samples):.0f} ms")
    if parser.parse_args(arguments).save:
        (FOLDER / "soak.json").write_bytes(msgspec.json.format(msgspec.json.encode(soak), indent=1) + b"\n")
        (ROOT / "docs" / "images" / "soak.svg").write_text(picture(soak), encoding="utf-8")
    if any(name.isupper() for name in soak.tally):
        raise SystemExit("a promise was broken")
