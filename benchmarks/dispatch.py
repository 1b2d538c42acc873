"""When tools start: the same turn, with its calls buffered, as inline deltas, and dispatched.

A scripted model writes one turn for three seconds and calls three tools in it, each of which takes 300 ms. Four ways of
serving and reading that turn are timed: when each tool started, and when the turn and all its tools were done.

    python benchmarks/dispatch.py [--svg docs/images/dispatch.svg]

Wall clock, one run each, everything on this machine; the times are made of waiting, not of work, so that they hold on
any machine that is not overloaded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from aiohttp import web

from turnwire.agent import AsyncChatSession, Endpoint, StepFinished, StepStarted, ToolFinished, ToolStarted
from turnwire.agent.stitching import Call, Stitcher
from turnwire.gateway.app import Gateway, create_app
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble

TOOL_SECONDS = 0.3
STREAM_SECONDS = 3.0
DELAY_MS = 20
NAMES = ("read_file", "list_files", "run_tests")


def script() -> list[dict[str, Any]]:
    """One turn of about three seconds: three calls, with thinking before, between and after them."""
    from turnwire.gateway.setup.sources import find_source

    encode = find_source(None, tokenizer=None, template=None, builtin=True).tokenizer.encode
    calls = [
        f"<tool_call>\n<function={name}>\n<parameter=path>\nsrc\n</parameter>\n</function>\n</tool_call>\n"
        for name in NAMES
    ]

    def turn(words: int) -> str:
        filler = " word" * words
        rest = "".join(f"{call}<think>\n{filler}\n</think>\n" for call in calls)
        return f"{filler}\n</think>\n{rest}Done."

    tokens = round(STREAM_SECONDS * 1000 / DELAY_MS)
    words = next(count for count in range(tokens) if len(encode(turn(count + 1))) > tokens)
    return [{"text": turn(words), "delay_ms": DELAY_MS}, {"text": "Well.\n</think>\n\nAll three ran."}]


@dataclass
class Run:
    """The times of one way, in seconds since the request."""

    title: str
    starts: dict[str, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    streamed: float = 0.0

    @property
    def done(self) -> float:
        return max(self.streamed, *self.ends.values())


async def tool(path: str) -> str:
    """A tool that takes its time."""
    await asyncio.sleep(TOOL_SECONDS)
    return "ok"


# ------------------------------------------------------------------------------------------------------- the servers


@asynccontextmanager
async def gateway(folder: str) -> AsyncIterator[str]:
    path = Path(folder) / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in script()))
    settings = Settings(engine=f"scripted:{path}", model="scripted", dialect="qwen3_coder")
    app = create_app(Gateway(settings, [await assemble(settings)]))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_config=None, lifespan="on"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn tells no other way
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def without_dispatch(base: str, *, buffered: bool) -> AsyncIterator[str]:
    """A server in between that knows no dispatch; `buffered`: it holds calls back until the turn is over, as servers
    do whose tool parser needs the whole text."""

    async def relay(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        held: list[bytes] = []
        async with (
            aiohttp.ClientSession() as session,
            session.post(base + str(request.rel_url), data=await request.read()) as upstream,
        ):
            async for line in upstream.content:
                if buffered and b'"tool_calls":[' in line:
                    held.append(line + b"\n")
                    continue
                if held and b'"finish_reason":"' in line:
                    await answer.write(b"".join(held))
                await answer.write(line)
        return answer

    app = web.Application()
    app.router.add_post("/v1/chat/completions", relay)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


# -------------------------------------------------------------------------------------------------------- the readers


async def by_agent(base: str, title: str) -> Run:
    """Our agent: a call starts when it is known to be complete."""
    from turnwire.agent import Tool

    run, begun, step = Run(title), 0.0, 0
    names: dict[str, str] = {}
    tools = [Tool(tool, name=name) for name in NAMES]
    async with AsyncChatSession(base, "scripted", tools=tools) as session:
        async for event in session.stream("Look around."):
            now = time.monotonic() - begun
            if isinstance(event, StepStarted):
                step, begun = event.step, begun or time.monotonic()
            elif isinstance(event, ToolStarted):
                names[event.call_id] = event.name
                run.starts[event.name] = now
            elif isinstance(event, ToolFinished):
                run.ends[names[event.call_id]] = now
            elif isinstance(event, StepFinished) and step == 1:
                run.streamed = now
    return run


async def by_stitching(base: str, title: str) -> Run:
    """A harness that stitches fragments together and runs the calls once the turn is over."""
    run, begun, stitcher, calls = Run(title), time.monotonic(), Stitcher(), []
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": "Look around."}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES],
    }
    async with Endpoint(base) as endpoint:
        async for name, payload in endpoint.stream(body, {}):
            calls += [part for part in stitcher.feed(name, payload) if isinstance(part, Call)]
        calls += stitcher.end()
    run.streamed = time.monotonic() - begun

    async def one(call: Call) -> None:
        run.starts[call.name] = time.monotonic() - begun
        await tool("src")
        run.ends[call.name] = time.monotonic() - begun

    await asyncio.gather(*map(one, calls))
    return run


async def measure() -> list[Run]:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            gateway(folder) as base,
            without_dispatch(base, buffered=True) as buffered,
            without_dispatch(base, buffered=False) as inline,
        ):
            return [
                await by_agent(buffered, "buffered calls"),
                await by_stitching(inline, "inline deltas, tools run when the turn ends"),
                await by_agent(inline, "inline deltas, a tool runs when the stream has moved on"),
                await by_agent(base, "dispatch"),
            ]


# ---------------------------------------------------------------------------------------------------------- the picture

_LEFT, _TOP, _SECOND, _ROW, _BAR = 24, 64, 210, 104, 13
_COLOURS = ("#3b7dd8", "#d8743b", "#4c9a57")


def picture(runs: list[Run]) -> str:
    """The runs as an SVG timeline."""
    longest = max(run.done for run in runs)
    width, height = round(_LEFT * 2 + _SECOND * (longest + 0.35)), _TOP + _ROW * len(runs) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="26" font-size="16" font-weight="bold" fill="#222">When tools start</text>',
        f'<text x="{_LEFT}" y="46" fill="#555">One turn that streams for 3 s and calls three tools of 300 ms.</text>',
    ]
    bottom = _TOP + _ROW * len(runs)
    for half in range(int(longest * 2) + 1):
        x = _x(half / 2)
        parts.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" fill="#777">{half / 2:g} s</text>')
    for place, run in enumerate(runs):
        parts += _row(run, _TOP + _ROW * place)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(seconds: float) -> float:
    return round(_LEFT + seconds * _SECOND, 1)


def _row(run: Run, top: int) -> list[str]:
    parts = [
        f'<text x="{_LEFT}" y="{top + 18}" fill="#222" font-weight="bold">{run.title}</text>',
        _bar(0, run.streamed, top + 26, "#c9ccd1", f"the turn streams until {run.streamed:.2f} s"),
    ]
    for number, name in enumerate(NAMES):
        y = top + 26 + (number + 1) * (_BAR + 3)
        start, end = run.starts[name], run.ends[name]
        parts.append(_bar(start, end, y, _COLOURS[number], f"{name}: {start:.2f} s to {end:.2f} s"))
        anchor, x = ("end", _x(start) - 5) if start > 0.6 else ("start", _x(end) + 5)
        parts.append(
            f'<text x="{x}" y="{y + 11}" text-anchor="{anchor}" font-size="11" fill="#555">{name} {start:.2f} s</text>'
        )
    x = _x(run.done)
    parts.append(f'<line x1="{x}" y1="{top + 24}" x2="{x}" y2="{top + 92}" stroke="#222" stroke-dasharray="3 2"/>')
    parts.append(f'<text x="{x + 4}" y="{top + 36}" font-size="11" fill="#222">done {run.done:.2f} s</text>')
    return parts


def _bar(start: float, end: float, y: int, colour: str, title: str) -> str:
    return (
        f'<rect x="{_x(start)}" y="{y}" width="{max(2.0, round((end - start) * _SECOND, 1))}" height="{_BAR}" rx="2" '
        f'fill="{colour}"><title>{title}</title></rect>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--svg", type=Path, help="where to draw the timeline")
    arguments = parser.parse_args()
    runs = asyncio.run(measure())
    print(f"{'':56}{'  '.join(f'{name:>10}' for name in NAMES)}  {'turn ends':>10}  {'all done':>10}")
    for run in runs:
        times = [*(run.starts[name] for name in NAMES), run.streamed, run.done]
        print(f"{run.title:56}" + "  ".join(f"{value:8.2f} s" for value in times))
    if arguments.svg is not None:
        arguments.svg.parent.mkdir(parents=True, exist_ok=True)
        arguments.svg.write_text(picture(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
