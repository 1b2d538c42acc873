"""Signs of life, deadlines, and clients that leave or stop reading, over real sockets on all three APIs."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp
import pytest

from turnwire.engines.bridge import pull, push
from turnwire.engines.interface import Completion, Engine, GenerateRequest, Generation, Receiver, Step
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.turns.turn import Turn

from .conftest import Client, Serve

QUESTION = "How many lines?"
BODIES: dict[str, dict[str, Any]] = {
    "messages": {
        "model": "test-model",
        "max_tokens": 100_000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": QUESTION}],
    },
    "chat": {"model": "test-model", "messages": [{"role": "user", "content": QUESTION}]},
    "responses": {"model": "test-model", "input": QUESTION, "store": False},
}
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
SIGNS = {"messages": b"event: ping\n", "chat": b": keep-alive\n", "responses": b"event: response.in_progress\n"}
SUCCESS = {"messages": b"message_stop", "chat": b"[DONE]", "responses": b"response.completed"}
# What holds a turn at each of its stages. A queue is made by another turn that holds the only place.
HELD: dict[str, dict[str, Any]] = {
    "queue": {"text": "never said", "first_delay_ms": 600_000},
    "prefill": {"text": "never said", "first_delay_ms": 600_000},
    "stream": {"text": "Let me think about that for a while, and then say more.", "finish": "hang", "after": 6},
}
APIS = pytest.mark.parametrize("api", list(PATHS))
STAGES = pytest.mark.parametrize("stage", list(HELD))
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])


class Counted:
    """An engine that counts what is begun on it and what is left early."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.begun = self.left = self.open = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        return push(self._steps(request), receiver)

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        self.begun += 1
        self.open += 1
        over = False
        steps = pull(self._engine, request)
        try:
            async for step in steps:
                over = type(step) is Completion
                yield step
        finally:
            self.left += not over
            self.open -= 1
            await steps.aclose()


def pool_of(client: Client) -> WorkerPool:
    pool = client.gateway.runtimes[0].engine
    assert isinstance(pool, WorkerPool)
    return pool


def counted(client: Client) -> Counted:
    worker = pool_of(client).workers[0]
    worker.engine = engine = Counted(worker.engine)  # type: ignore[assignment]
    return engine


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


class Visit:
    """One request whose bytes are read as they come, on a connection of its own."""

    def __init__(self, client: Client, api: str, *, stream: bool = True) -> None:
        self.seen = b""
        self.status = 0
        self.clean = False
        self._task = asyncio.create_task(self._run(client.base + PATHS[api], BODIES[api] | {"stream": stream}))

    async def _run(self, url: str, body: dict[str, Any]) -> None:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session, session.post(url, json=body) as answer:
            self.status = answer.status
            try:
                async for piece in answer.content.iter_any():
                    self.seen += piece
                self.clean = True
            except aiohttp.ClientPayloadError:
                pass

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def end(self) -> Visit:
        async with asyncio.timeout(10):
            await self._task
        return self


async def held_at(serve: Serve, stage: str, **over: Any) -> tuple[Client, Counted, list[Visit]]:
    """A gateway whose next turn is held at a stage."""
    limits = {"concurrency": 1} if stage == "queue" else {}
    client = await serve(HELD[stage], **(limits | over))
    engine = counted(client)
    if stage != "queue":
        return client, engine, []
    holder = Visit(client, "chat")
    await until(lambda: engine.open == 1)
    return client, engine, [holder]


async def reached(client: Client, engine: Counted, visit: Visit, stage: str, *, stream: bool) -> None:
    """Wait until the visit's turn is where it is held."""
    if stage == "queue":
        await until(lambda: pool_of(client).waiting == 1)
    else:
        await until(lambda: engine.open == 1)
    if stage == "stream" and stream:
        await until(lambda: b"think" in visit.seen)
    elif stream:
        await until(lambda: visit.status == 200)


@APIS
@STAGES
async def test_a_silent_engine_is_covered_by_the_apis_own_sign_of_life(serve: Serve, api: str, stage: str) -> None:
    client, engine, others = await held_at(serve, stage, keepalive=0.04)
    visit = Visit(client, api)
    await reached(client, engine, visit, stage, stream=True)
    before = visit.seen.count(SIGNS[api])
    await until(lambda: visit.seen.count(SIGNS[api]) >= before + 3)
    assert SUCCESS[api] not in visit.seen
    for one in (visit, *others):
        await one.leave()


@APIS
@STAGES
@STREAMED
async def test_silence_beyond_the_deadline_is_an_error_and_never_a_success(
    serve: Serve, api: str, stage: str, stream: bool
) -> None:
    client, engine, others = await held_at(serve, stage, keepalive=0.05)
    # The holder of the queue has its own deadline; only what comes after it is short of time.
    client.gateway.heartbeat._idle = 12
    visit = await Visit(client, api, stream=stream).end()
    assert SUCCESS[api] not in visit.seen
    if not stream:
        assert visit.status == 504
        assert json.loads(visit.seen)["error"]["message"]
    elif api == "messages" and stage == "stream":
        # Shown text cannot be taken back by an error event; the client tries again when the connection breaks.
        assert not visit.clean
    else:
        told = {"messages": b"event: error", "chat": b'"error"', "responses": b"event: response.failed"}
        assert visit.clean
        assert told[api] in visit.seen
    await until(lambda: pool_of(client).waiting == 0)
    for one in others:
        await one.leave()
    await until(lambda: engine.open == 0)
    assert engine.left == engine.begun


@APIS
@STAGES
@STREAMED
async def test_a_client_that_leaves_stops_the_engine_exactly_once(
    serve: Serve, api: str, stage: str, stream: bool
) -> None:
    client, engine, others = await held_at(serve, stage)
    visit = Visit(client, api, stream=stream)
    await reached(client, engine, visit, stage, stream=stream)
    await visit.leave()
    pool = pool_of(client)
    if stage == "queue":
        await until(lambda: pool.waiting == 0)
        assert (engine.begun, engine.left) == (1, 0)
        assert pool.statistics.left_queue == 1
        await others[0].leave()
    await until(lambda: engine.open == 0)
    assert (engine.begun, engine.left) == (1, 1)
    assert pool.statistics.aborts == 1
    assert pool.active == 0
    await until(lambda: len(client.gateway.heartbeat) == 0)


async def test_choices_are_all_stopped_when_their_client_leaves(serve: Serve) -> None:
    client = await serve(HELD["stream"])
    engine = counted(client)
    body = BODIES["chat"] | {"stream": True, "n": 3}
    async with client.session.post(client.base + PATHS["chat"], json=body) as answer:
        await until(lambda: engine.open == 3)
        answer.close()
    await until(lambda: engine.open == 0)
    assert (engine.begun, engine.left, pool_of(client).statistics.aborts) == (3, 3, 3)


def slow_reader(client: Client, api: str) -> socket.socket:
    """A client that sends its request and never reads the answer."""
    host, port = client.base.removeprefix("http://").split(":")
    body = json.dumps(BODIES[api] | {"stream": True}).encode()
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect((host, int(port)))
    head = f"POST {PATHS[api]} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    reader.sendall(head.encode() + body)
    return reader


@APIS
async def test_a_reader_that_stalls_is_cut_and_holds_no_more_than_the_socket_does(serve: Serve, api: str) -> None:
    # Much more than a socket's buffers hold.
    client = await serve({"text": "Hm.\n</think>\n\n" + "word " * 40_000, "cut": 40, "burst": 1}, stall_timeout=0.3)
    engine = counted(client)
    with slow_reader(client, api):
        await until(lambda: engine.open == 1)
        turn = next(iter(client.gateway.heartbeat._pulses))
        await until(lambda: turn.writing)
        # Nothing is produced for a reader that does not take it: the turn stands still in one write.
        said = len(turn.outcome.output_ids)  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        assert len(turn.outcome.output_ids) == said  # type: ignore[attr-defined]
        await until(lambda: engine.open == 0)
        assert (engine.begun, engine.left) == (1, 1)
        await until(lambda: len(client.gateway.heartbeat) == 0)
    page = client.gateway.metrics.page().decode()
    assert 'finish="stalled"' in page


async def test_a_websocket_that_is_not_read_is_cut_too(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\n" + "word " * 40_000, "cut": 40, "burst": 1}, stall_timeout=0.3)
    engine = counted(client)
    message = json.dumps({"type": "response.create", **BODIES["responses"]}).encode()
    assert len(message) < 126
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = client.base.removeprefix("http://").split(":")
        reader.connect((host, int(port)))
        reader.sendall(
            b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert b" 101 " in await asyncio.to_thread(reader.recv, 4096)
        # A text frame under a mask of zeros.
        reader.sendall(bytes([0x81, 0x80 | len(message), 0, 0, 0, 0]) + message)
        await until(lambda: engine.open == 1)
        await until(lambda: engine.open == 0)
        assert (engine.begun, engine.left) == (1, 1)
        await until(lambda: len(client.gateway.heartbeat) == 0)
    assert 'finish="stalled"' in client.gateway.metrics.page().decode()


@APIS
async def test_overload_is_told_as_each_client_understands_it(serve: Serve, api: str) -> None:
    client = await serve(HELD["prefill"], concurrency=1, queue=0)
    engine = counted(client)
    holder = Visit(client, "chat")
    await until(lambda: engine.open == 1)
    for stream in (True, False):
        async with client.session.post(client.base + PATHS[api], json=BODIES[api] | {"stream": stream}) as answer:
            assert answer.status == (529 if api == "messages" else 503)
            assert int(answer.headers["retry-after"]) >= 1
            error = (await answer.json())["error"]
        if api == "messages":
            assert error["type"] == "overloaded_error"
        else:
            assert error["code"] == "server_is_overloaded"
    assert pool_of(client).statistics.refused == 2
    await holder.leave()


@APIS
async def test_overload_in_mid_queue_is_told_on_the_stream(serve: Serve, api: str) -> None:
    client = await serve(HELD["prefill"], concurrency=1, queue=1, queue_timeout=0.2)
    engine = counted(client)
    holder = Visit(client, "chat")
    await until(lambda: engine.open == 1)
    visit = await Visit(client, api).end()
    told = {
        "messages": b"overloaded_error",
        "chat": b"server_is_overloaded",
        "responses": b"rate_limit_exceeded",
    }
    assert visit.status == 200
    assert told[api] in visit.seen
    assert SUCCESS[api] not in visit.seen
    if api == "responses":
        # Codex waits for as long as the message says.
        assert b"try again in" in visit.seen
    await holder.leave()


@APIS
@pytest.mark.parametrize(
    ("end", "stream"),
    [("finished", True), ("finished", False), ("left", True), ("left", False), ("failed", True)],
)
async def test_a_turn_that_is_over_is_not_left_to_the_collector(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, api: str, stream: bool, end: str
) -> None:
    """With it would stay its prompt and its output, until the collector looks at what has lived for long."""
    made: list[weakref.ref[Turn]] = []
    begin = Turn.__init__

    def watched(self: Turn, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Turn, "__init__", watched)
    line: dict[str, Any] = {"finished": {}, "left": {"finish": "hang", "after": 6}, "failed": {"finish": "error"}}[end]
    client = await serve({"text": "Let me think about that for a while.\n</think>\n\nThree.", **line})
    gc.collect()
    gc.disable()
    try:
        visit = Visit(client, api, stream=stream)
        await until(lambda: made and (end != "left" or next(iter(client.gateway.heartbeat._pulses)).produced))
        if end == "left":
            await visit.leave()
        await until(lambda: all(turn() is None for turn in made))
        assert len(client.gateway.heartbeat) == 0
    finally:
        gc.enable()
        await visit.leave()
