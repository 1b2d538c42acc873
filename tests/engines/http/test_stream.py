"""Streamed answers over real sockets: every way an engine's answer can break, and what the receiver hears of it."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.http.connections import Address, Connection, Connections
from turnwire.engines.http.stream import Stream
from turnwire.engines.interface import (
    Completion,
    EngineError,
    EventBatch,
    GenerateRequest,
    Generation,
    Hints,
    TokenBatch,
)
from turnwire.engines.vllm import VLLMEngine
from turnwire.turns import Conversation, Sampling

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"text":"one","token_ids":[1]}]}\n\n'
END = b'data: {"choices":[{"text":"","token_ids":[2],"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
DEATH = b'data: {"error":{"message":"EngineCore encountered an issue.","code":500}}\n\n'
FAULT = b'data: {"error":{"message":"Grammar error","code":400}}\n\n'
DEEP = b'data: {"choices":[{"text":"x","token_ids":[1],"of":' + b"[" * 1500 + b"]" * 1500 + b"}]}\n\n"
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


WHOLE = HEAD + chunk(TOKEN) + chunk(END + USAGE + DONE) + LAST


class Engine(VLLMEngine):
    """The adapter without its questions at start."""

    async def _discover(self):  # type: ignore[no-untyped-def]
        return None


class Recorder:
    """A receiver that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.over = asyncio.Event()

    def tokens(self, batch: TokenBatch) -> None:
        assert not self.over.is_set()
        self.heard.append(batch)

    def events(self, batch: EventBatch) -> None:
        self.heard.append(batch)

    def done(self, completion: Completion) -> None:
        assert not self.over.is_set()
        self.heard.append(completion)
        self.over.set()

    def failed(self, error: EngineError) -> None:
        assert not self.over.is_set()
        self.heard.append(error)
        self.over.set()

    @property
    def text(self) -> str:
        return "".join(batch.text for batch in self.heard if isinstance(batch, TokenBatch))


def request() -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=[1, 2, 3],
        sampling=Sampling(max_tokens=10),
        hints=Hints(request_id="turn_1"),
        conversation=Conversation(model="m", messages=()),
    )


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


@asynccontextmanager
async def engine_at(handler: Handler) -> AsyncIterator[Engine]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    engine = Engine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()
        server.close()


def answering(data: bytes, *, then_hang: bool = False) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(data)
        await writer.drain()
        if then_hang:
            await reader.read()

    return handler


async def heard(handler: Handler) -> Recorder:
    async with engine_at(handler) as engine, asyncio.timeout(10):
        receiver = Recorder()
        engine.submit(request(), receiver)
        assert not receiver.heard
        await receiver.over.wait()
        await asyncio.sleep(0)
        return receiver


BROKEN: dict[str, tuple[bytes, str, str]] = {
    "a chunk size that is none": (HEAD + chunk(TOKEN) + b"zz\r\n", "disconnected", "one"),
    "a chunk longer than it says": (HEAD + chunk(TOKEN) + b"2\r\nabcdef\r\n", "disconnected", "one"),
    "not HTTP": (b"SSH-2.0-OpenSSH\r\n", "internal", ""),
    "headers without end": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 9000, "internal", ""),
    "invalid UTF-8": (HEAD + chunk(TOKEN) + chunk(b'data: {"choices":[{"text":"\xff"}]}\n\n'), "internal", ""),
    "invalid JSON": (HEAD + chunk(TOKEN) + chunk(b"data: {nonsense\n\n"), "internal", ""),
    "too deep": (HEAD + chunk(TOKEN) + chunk(DEEP), "internal", ""),
    "a refusal that is not UTF-8": (b'HTTP/1.1 500 X\r\nContent-Length: 13\r\n\r\n{"error":"\xff"}', "internal", ""),
    "an unknown end": (HEAD + chunk(TOKEN) + chunk(TOKEN.replace(b"]}]", b'],"finish_reason":"x"}]')), "internal", ""),
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "internal", ""),
    "only the end mark": (HEAD + chunk(DONE) + LAST, "disconnected", ""),
    "an answer without a finish": (HEAD + chunk(TOKEN) + chunk(DONE) + LAST, "disconnected", "one"),
    "an error event": (HEAD + chunk(TOKEN) + chunk(DEATH + DONE) + LAST, "internal", "one"),
    "a client's error in an event": (HEAD + chunk(FAULT + DONE) + LAST, "invalid_request", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_answer_is_an_error_at_once_though_the_connection_stays_open(name: str) -> None:
    data, kind, text = BROKEN[name]
    receiver = await heard(answering(data, then_hang=True))
    error = receiver.heard[-1]
    assert isinstance(error, EngineError), receiver.heard
    assert error.kind == kind, error
    if name != "an unknown end":
        assert receiver.text == text
    if name == "a redirect":
        assert "http://elsewhere/" in error.message
        assert "not followed" in error.message


CUT: dict[str, tuple[bytes, str, str]] = {
    "before any byte": (b"", "unreachable", ""),
    "in the head": (HEAD[:20], "unreachable", ""),
    "after the head": (HEAD, "disconnected", ""),
    "in a chunk's size": (HEAD + chunk(TOKEN) + b"3", "disconnected", "one"),
    "in an event": (HEAD + chunk(TOKEN) + chunk(TOKEN[:20]), "disconnected", "one"),
    "in an event, chunks complete": (HEAD + chunk(TOKEN) + chunk(TOKEN[:20]) + LAST, "disconnected", "one"),
    "in an event without chunks": (b"HTTP/1.1 200 OK\r\n\r\n" + TOKEN + TOKEN[:20], "disconnected", "one"),
    "between events": (HEAD + chunk(TOKEN), "disconnected", "one"),
}


@pytest.mark.parametrize("name", CUT)
async def test_a_connection_closed_too_early_is_never_a_success(name: str) -> None:
    data, kind, text = CUT[name]
    receiver = await heard(answering(data))
    error = receiver.heard[-1]
    assert isinstance(error, EngineError), receiver.heard
    assert (error.kind, receiver.text) == (kind, text)


FRAMINGS = {
    "chunked": WHOLE,
    "sized": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(TOKEN + END + USAGE) + TOKEN + END + USAGE,
    "until close": b"HTTP/1.1 200 OK\r\n\r\n" + TOKEN + END + USAGE,
    "old": b"HTTP/1.0 200 OK\r\n\r\n" + TOKEN + END + USAGE + DONE,
    "no usage, closed": HEAD + chunk(TOKEN + END),
    "last event without its blank line": b"HTTP/1.1 200 OK\r\n\r\n" + TOKEN + END[:-1],
}


@pytest.mark.parametrize("name", FRAMINGS)
async def test_every_framing_of_an_answer_reads_the_same(name: str) -> None:
    receiver = await heard(answering(FRAMINGS[name]))
    completion = receiver.heard[-1]
    assert isinstance(completion, Completion), receiver.heard
    assert (receiver.text, completion.reason, completion.output_tokens) == ("one", "stop", 2)


@pytest.mark.parametrize("wish", ["inf", "nan", "-inf", "1e999"])
async def test_a_pause_that_is_no_number_is_none(wish: str) -> None:
    data = b"HTTP/1.1 429 Slow\r\nRetry-After: %s\r\nContent-Length: 2\r\n\r\n{}" % wish.encode()
    error = (await heard(answering(data))).heard[-1]
    assert isinstance(error, EngineError)
    assert (error.kind, error.retry_after) == ("overloaded", None)


async def test_a_refusal_whose_body_never_ends_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwire.engines.http.stream._REFUSAL_SECONDS", 0.05)
    data = b'HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 999\r\n\r\n{"error":"busy"}'
    error = (await heard(answering(data, then_hang=True))).heard[-1]
    assert isinstance(error, EngineError)
    assert (error.kind, error.retry_after) == ("overloaded", 7.0)


async def test_an_engine_that_ends_its_side_and_takes_no_request_does_not_answer() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        await asyncio.sleep(3600)

    async with engine_at(handler) as engine, asyncio.timeout(10):
        receiver = Recorder()
        engine.submit(msgspec.structs.replace(request(), prompt_ids=[100_000] * 3_000_000), receiver)
        await receiver.over.wait()
        (error,) = receiver.heard
        assert isinstance(error, EngineError)
        assert error.kind == "unreachable"


UNENDED = b'data: {"choices":[{"text":"two","token_ids":[2],"finish_reason":"length"}]}'
LASTS = [UNENDED, UNENDED + b"\n\n", UNENDED + b"\n\n" + DONE]


@pytest.mark.parametrize("last", LASTS, ids=["without its end", "whole", "before the end mark"])
async def test_whoever_leaves_at_the_last_event_hears_nothing_more(last: bytes) -> None:
    class Leaving(Recorder):
        generation: Generation

        def tokens(self, batch: TokenBatch) -> None:
            super().tokens(batch)
            if 2 in batch.ids:
                self.generation.abort()

    async with engine_at(answering(HEAD + chunk(TOKEN) + chunk(last) + LAST)) as engine, asyncio.timeout(10):
        receiver = Leaving()
        receiver.generation = engine.submit(request(), receiver)
        while receiver.text != "onetwo":
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert {type(one) for one in receiver.heard} == {TokenBatch}


@pytest.mark.parametrize("last", LASTS, ids=["without its end", "whole", "before the end mark"])
async def test_an_answer_whose_last_event_cannot_be_taken_is_no_success(last: bytes) -> None:
    class Failing(Recorder):
        def tokens(self, batch: TokenBatch) -> None:
            if 2 in batch.ids:
                raise OverflowError
            super().tokens(batch)

    async with engine_at(answering(HEAD + chunk(TOKEN) + chunk(last) + LAST)) as engine, asyncio.timeout(10):
        receiver = Failing()
        engine.submit(request(), receiver)
        await receiver.over.wait()
        error = receiver.heard[-1]
        assert isinstance(error, EngineError)
        assert error.kind == "internal"


async def test_of_an_answer_without_an_end_only_so_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwire.engines.http.engine._ANSWER_BYTES", 1 << 20)
    closed: list[str] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(bytes(100_000))
                await writer.drain()
        finally:
            closed.append(path)

    async with engine_at(handler) as engine, asyncio.timeout(4):
        assert await engine.health()
        with pytest.raises(EngineError, match="did not answer as"):
            await engine._ask("/v1/models", list[str])
        while len(closed) < 2:
            await asyncio.sleep(0)
    assert closed == ["/health", "/v1/models"]


async def test_a_kept_connection_that_the_engine_had_dropped_is_replaced_once() -> None:
    visits = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        await read_request(reader)
        writer.write(WHOLE)
        # The next request on this connection is read, and answered by closing.
        await read_request(reader)

    async with engine_at(handler) as engine:
        for _ in range(3):
            steps = [step async for step in pull(engine, request())]
            assert isinstance(steps[-1], Completion)
        assert visits == 3


async def test_an_engine_that_closes_without_an_answer_is_asked_once_more_only() -> None:
    visits = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        await read_request(reader)
        if visits == 1:
            writer.write(WHOLE)
            await read_request(reader)

    async with engine_at(handler) as engine:
        [step async for step in pull(engine, request())]
        with pytest.raises(EngineError) as caught:
            [step async for step in pull(engine, request())]
        assert (caught.value.kind, visits) == ("unreachable", 2)


async def test_abort_closes_the_connection_and_nothing_more_is_heard() -> None:
    gone = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + chunk(TOKEN))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        gone.set()

    async with engine_at(handler) as engine, asyncio.timeout(10):

        class Leaving(Recorder):
            def tokens(self, batch: TokenBatch) -> None:
                super().tokens(batch)
                generation.abort()

        receiver = Leaving()
        generation = engine.submit(request(), receiver)
        await gone.wait()
        await asyncio.sleep(0.01)
        generation.abort()
        assert [type(step) for step in receiver.heard] == [TokenBatch]
        assert len(engine._streams) == 0


async def test_abort_before_the_connection_stands() -> None:
    async with engine_at(answering(WHOLE)) as engine:
        receiver = Recorder()
        engine.submit(request(), receiver).abort()
        await asyncio.sleep(0.05)
        assert receiver.heard == []
        assert len(engine._streams) == 0


async def test_a_paused_stream_holds_the_engine_back() -> None:
    flood = chunk(TOKEN * 2000)
    written = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(HEAD)
        for _ in range(400):
            writer.write(flood)
            await writer.drain()
            written += 1
        writer.write(chunk(END + USAGE + DONE) + LAST)

    async with engine_at(handler) as engine, asyncio.timeout(30):

        class Slow(Recorder):
            def tokens(self, batch: TokenBatch) -> None:
                super().tokens(batch)
                if len(self.heard) == 1:
                    generation.pause()

        receiver = Slow()
        generation = engine.submit(request(), receiver)
        before = -1
        while written != before or not receiver.heard:
            before = written
            await asyncio.sleep(0.2)
        calls = len(receiver.heard)
        assert written < 400
        await asyncio.sleep(0.1)
        assert len(receiver.heard) == calls
        generation.resume()
        await receiver.over.wait()
        assert isinstance(receiver.heard[-1], Completion)
        assert receiver.text == "one" * 2000 * 400


async def test_a_large_read_is_taken_in_portions_so_that_others_have_their_turn() -> None:
    receiver = await heard(answering(HEAD + chunk(TOKEN * 20_000) + chunk(END + USAGE + DONE) + LAST))
    batches = [step for step in receiver.heard if isinstance(step, TokenBatch)]
    assert receiver.text == "one" * 20_000
    assert max(len(batch.ids) for batch in batches) <= 64 * 1024 // len(TOKEN) + 1
    assert isinstance(receiver.heard[-1], Completion)


@pytest.mark.parametrize("fault", [DEEP, b'data: {"choices":[{"text":"\xff"}]}\n\n'], ids=["too deep", "not UTF-8"])
async def test_no_part_of_a_large_read_is_left_out(fault: bytes) -> None:
    """A portion that cannot be read ends the answer: what follows it is no success."""
    body = TOKEN * 2000 + fault + TOKEN * 4000 + END + USAGE + DONE
    receiver = await heard(answering(HEAD + chunk(body) + LAST))
    assert isinstance(receiver.heard[-1], EngineError)
    assert receiver.heard[-1].kind == "internal"


async def test_a_defect_in_a_portion_of_a_large_read_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def defective(self: Stream, body: bytes) -> None:
        taken.append(len(body))
        if len(taken) == 3:
            raise LookupError("a defect")
        take(self, body)

    take = Stream._take
    monkeypatch.setattr(Stream, "_take", defective)
    receiver = await heard(answering(HEAD + chunk(TOKEN * 20_000 + END + USAGE + DONE) + LAST))
    assert isinstance(receiver.heard[-1], EngineError)
    assert receiver.heard[-1].kind == "disconnected"
    assert len(taken) == 3


async def test_closing_the_engine_ends_what_runs_and_what_dials() -> None:
    async with engine_at(answering(HEAD + chunk(TOKEN), then_hang=True)) as engine, asyncio.timeout(10):
        running, dialling = Recorder(), Recorder()
        engine.submit(request(), running)
        while not running.heard:
            await asyncio.sleep(0.01)
        engine.submit(request(), dialling)
        await engine.close()
        for receiver in (running, dialling):
            error = receiver.heard[-1]
            assert isinstance(error, EngineError)
            assert error.kind == "disconnected"
        late = Recorder()
        engine.submit(request(), late)
        await late.over.wait()
        assert isinstance(late.heard[0], EngineError)
        assert late.heard[0].kind == "unreachable"


async def test_nobody_listens_there() -> None:
    engine = Engine("http://127.0.0.1:9")
    await engine.start()
    receiver = Recorder()
    engine.submit(request(), receiver)
    await receiver.over.wait()
    error = receiver.heard[0]
    assert isinstance(error, EngineError)
    assert error.kind == "unreachable"
    await engine.close()


async def test_the_events_of_one_read_are_one_call() -> None:
    receiver = await heard(answering(HEAD + chunk(TOKEN * 50) + chunk(END + USAGE) + LAST))
    batches = [step for step in receiver.heard if isinstance(step, TokenBatch)]
    assert len(batches) <= 2
    assert receiver.text == "one" * 50


async def test_the_end_of_a_connection_is_told_behind_all_that_was_read() -> None:
    heard: list[str] = []

    class Waiting:
        def received(self, data: bytes) -> None:
            heard.append(f"{len(data)} bytes")

        def ended(self) -> None:
            heard.append("end")

    class Transport(asyncio.Transport):
        def pause_reading(self) -> None:
            """TLS tells of the end all the same."""

    connections = Connections(Address("https://127.0.0.1:1"))
    connection = Connection(connections)
    connection.connection_made(Transport())
    connection.exchange = Waiting()  # type: ignore[assignment]
    connection.data_received(b"x" * 100_000)
    connection.eof_received()
    assert heard == ["65536 bytes", "34464 bytes", "end"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with the openssl command")
async def test_tls_is_spoken_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    process = await asyncio.create_subprocess_exec(*command, *names, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(answering(WHOLE, then_hang=True), "localhost", 0, ssl=context)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    for trusted in (False, True):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        engine, receiver = Engine(url), Recorder()
        await engine.start()
        engine.submit(request(), receiver)
        async with asyncio.timeout(10):
            await receiver.over.wait()
        if trusted:
            assert receiver.text == "one"
        else:
            error = receiver.heard[-1]
            assert isinstance(error, EngineError)
            assert error.kind == "unreachable"
            assert "certificate" in error.message.lower()
        await engine.close()
    server.close()
