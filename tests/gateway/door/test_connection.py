"""HTTP/1.1 as it is spoken on a client's connection, byte for byte, under both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from turnwire.gateway.door.bounds import HttpBounds
from turnwire.gateway.door.connection import bounded_http
from turnwire.gateway.door.exchange import DIRECT

from .conftest import GET, LAST, Run, bodies, body_of, echo, serving

CHUNKED = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"


async def streamed(scope: Scope, receive: Receive, send: Send) -> None:
    """Two pieces of unknown length."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one ", "more_body": True})
    await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"two", "more_body": True})
    await send({"type": "http.response.body"})


async def direct(scope: Scope, receive: Receive, send: Send) -> None:
    """The same, written straight to the connection."""
    exchange = scope["extensions"][DIRECT]
    await body_of(receive)
    exchange.start([(b"content-type", b"text/plain")])
    exchange.write(b"one ")
    await asyncio.sleep(0.01)
    exchange.write_last(b"two")
    exchange.finish()


def test_a_connection_serves_one_request_after_another(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            assert bodies(await talk(GET, LAST, pause=0.05)) == [b"GET /a  ", b"GET /b  "]

    run(main())


def test_requests_that_are_sent_ahead_are_answered_in_their_order(run: Run) -> None:
    async def slow_first(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/a":
            await asyncio.sleep(0.1)
        await echo(scope, receive, send)

    async def main() -> None:
        post = b"POST /p HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nbody"
        async with serving(slow_first) as (_, talk):
            assert bodies(await talk(GET + post + GET + LAST)) == [
                b"GET /a  ",
                b"POST /p  body",
                b"GET /a  ",
                b"GET /b  ",
            ]

    run(main())


def test_what_follows_a_request_that_closes_is_not_answered(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            answer = await talk(LAST + GET)
            assert bodies(answer) == [b"GET /b  "]
            assert b"connection: close\r\n" in answer

    run(main())


def test_path_and_query_are_taken_apart(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            for target in (b"/%C3%A4%20b?c=%20d", b"http://elsewhere.example/%C3%A4%20b?c=%20d"):
                answer = await talk(LAST.replace(b"/b", target))
                assert bodies(answer) == ["GET /ä b c=%20d ".encode()]

    run(main())


@pytest.mark.parametrize("app", [streamed, direct])
def test_a_body_of_unknown_length_is_chunked_and_the_connection_kept(run: Run, app: ASGIApp) -> None:
    async def main() -> None:
        async with serving(app) as (_, talk):
            answer = await talk(GET, LAST, pause=0.1)
        first, second = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
        for part in (first, second):
            head, _, body = part.partition(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head
            assert body == b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"
        assert b"connection: close" not in first
        assert b"connection: close" in second

    run(main())


@pytest.mark.parametrize("app", [streamed, direct])
def test_before_http_1_1_a_body_of_unknown_length_ends_with_its_connection(run: Run, app: ASGIApp) -> None:
    async def main() -> None:
        async with serving(app) as (_, talk):
            answer = await talk(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert body == b"one two"

    run(main())


@pytest.mark.parametrize("app", [echo, streamed])
def test_a_head_is_asked_for_and_nothing_else_sent(run: Run, app: ASGIApp) -> None:
    async def main() -> None:
        async with serving(app) as (_, talk):
            answer = await talk(LAST.replace(b"GET", b"HEAD"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert b"transfer-encoding" not in head
        assert body == b""

    run(main())


def test_an_answer_without_content_has_neither_length_nor_chunks(run: Run) -> None:
    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def main() -> None:
        async with serving(nothing) as (_, talk):
            assert await talk(LAST) == b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"

    run(main())


def test_a_body_in_chunks_is_put_together(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            answer = await talk(CHUNKED + b"3\r\nab", b"c\r\n", b"2\r\nde\r\n0\r\n\r\n", pause=0.02)
            assert bodies(answer) == [b"POST /  abcde"]

    run(main())


def test_what_follows_a_body_says_nothing_of_the_request(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        assert b"x-api-key" not in dict(scope["headers"])
        await streamed(scope, receive, send)

    async def main() -> None:
        async with serving(app) as (_, talk):
            answer = await talk(CHUNKED + b"1\r\na\r\n0\r\nx-api-key: secret\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 OK")

    run(main())


@pytest.mark.parametrize("flood", [b"0\r\nx: " + b"y" * 6000, b"0\r\n" + b"x: y\r\n" * 1000, b"1;" + b"x" * 6000])
def test_what_is_of_no_use_is_bounded_behind_the_head_too(run: Run, flood: bytes) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            answer = await talk(CHUNKED + b"1\r\na\r\n", flood, pause=0.05)
            assert answer.startswith(b"HTTP/1.1 431 ")

    run(main())


def test_so_many_requests_may_be_sent_ahead(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            assert bodies(await talk(GET * 100 + LAST)) == [b"GET /a  "] * 100 + [b"GET /b  "]
            assert (await talk(GET * 102)).startswith(b"HTTP/1.1 400 ")

    run(main())


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_once_it_is_read(run: Run) -> None:
    head = (
        b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n"
    )

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def main() -> None:
        async with serving(echo) as (_, talk):
            # Who speaks HTTP/1.0 cannot be asked.
            assert bodies(await talk(head.replace(b"1.1", b"1.0"), b"body", pause=0.05)) == [b"POST /  body"]
            answer = await talk(head, b"body", pause=0.05)
            asked, _, rest = answer.partition(b"\r\n\r\n")
            assert asked == b"HTTP/1.1 100 Continue"
            assert bodies(rest) == [b"POST /  body"]
        async with serving(refusing) as (_, talk):
            assert (await talk(head)).startswith(b"HTTP/1.1 413 ")

    run(main())


def test_a_body_that_nobody_reads_is_not_taken_in(run: Run) -> None:
    size = 40_000_000
    asked = asyncio.Event()

    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        await asked.wait()
        assert len(await body_of(receive)) == size
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def main() -> None:
        async with serving(patient) as (_, talk):
            head = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % size
            told = asyncio.ensure_future(talk(head, b"x" * size))
            done, _ = await asyncio.wait([told], timeout=0.3)
            assert not done
            asked.set()
            assert (await told).startswith(b"HTTP/1.1 200")

    run(main())


def test_a_request_that_is_refused_unread_leaves_the_connection_usable(run: Run) -> None:
    async def careless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await echo(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async def main() -> None:
        size = 3_000_000
        head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % size
        async with serving(careless) as (_, talk):
            answer = await talk(head, b"x" * size, LAST, pause=0.02)
            assert bodies(answer) == [b"no", b"GET /b  "]

    run(main())


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_refusal_reaches_a_client_that_is_still_sending_on_a_connection_that_closes(run: Run, version: bytes) -> None:
    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async def main() -> None:
        size = 20_000_000
        head = b"POST / HTTP/%b\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (version, size)
        async with serving(refusing) as (server, talk):
            answer = await talk(head, b"x" * size)
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert answer.endswith(b"\r\n\r\nno")
            async with asyncio.timeout(5):
                while server.server_state.connections:
                    await asyncio.sleep(0.01)

    run(main())


def test_a_head_that_is_far_too_large_is_answered_to_a_client_that_is_still_sending_it(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            answer = await talk(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 20_000_000 + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 431 ")

    run(main())


def test_a_client_that_left_while_it_was_refused_is_let_go(run: Run) -> None:
    heard: list[str] = []

    class Broken(asyncio.Transport):
        def is_closing(self) -> bool:
            return "close" in heard

        def write(self, data: bytes | bytearray | memoryview) -> None:
            heard.append(bytes(data[:12]).decode())

        def can_write_eof(self) -> bool:
            return True

        def write_eof(self) -> None:
            raise OSError(107, "Transport endpoint is not connected")

        def close(self) -> None:
            heard.append("close")

        def get_write_buffer_size(self) -> int:
            return 0

    async def main() -> None:
        bounds = HttpBounds(head_bytes=4096, headers=50, request_s=30.0, stall_s=30.0)
        connection: Any = bounded_http(bounds)(uvicorn.Config(echo), ServerState(), {})  # type: ignore[call-arg]
        connection.connection_made(Broken())
        connection.data_received(b"GET / HTTP/1.1\r\n no header")
        assert heard == ["HTTP/1.1 400", "close"]

    run(main())


def test_who_sends_on_and_on_behind_an_answer_is_cut_off(run: Run) -> None:
    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def main() -> None:
        async with serving(refusing, request_s=0.3) as (server, _):
            for ends in (False, True):
                reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
                writer.write(CHUNKED)
                assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
                server.should_exit = ends
                async with asyncio.timeout(10):
                    while server.server_state.connections:
                        writer.write(b"1\r\na\r\n")
                        await asyncio.sleep(0.01)
                writer.close()

    run(main())


def test_a_request_behind_a_direct_answer_that_nobody_takes_does_not_wait_for_ever(run: Run) -> None:
    class Listening:
        def pause(self) -> None: ...
        def resume(self) -> None: ...
        def gone(self) -> None: ...

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/b":
            await echo(scope, receive, send)
            return
        exchange = scope["extensions"][DIRECT]
        exchange.listen(Listening())
        exchange.start([])
        exchange.write_last(bytes(20_000_000))
        exchange.finish()

    async def main() -> None:
        async with serving(app) as (server, _):
            with socket.create_connection(server.servers[0].sockets[0].getsockname()) as peer:
                peer.sendall(GET + LAST)
                await asyncio.sleep(0.2)
                async with asyncio.timeout(10):
                    while server.server_state.connections or server.server_state.tasks:
                        await asyncio.sleep(0.01)

    run(main())


def test_a_client_that_took_all_in_between_is_not_one_that_takes_nothing() -> None:
    """However often as much waits for it as did before."""
    heard: list[str] = []

    class Steady(asyncio.Transport):
        def get_write_buffer_size(self) -> int:
            return 70_000

        def is_closing(self) -> bool:
            return bool(heard)

        def abort(self) -> None:
            heard.append("abort")

    class Clock:
        """An event loop whose timers ring when they are told to."""

        def __init__(self) -> None:
            self.rings: list[Callable[[], None]] = []

        def time(self) -> float:
            return 0.0

        def call_later(self, _: float, call: Callable[..., None], *args: Any) -> Any:
            def ring() -> None:
                call(*args)

            class Handle:
                def cancel(handle) -> None:
                    if ring in self.rings:
                        self.rings.remove(ring)

            self.rings.append(ring)
            return Handle()

        def call_at(self, _: float, call: Callable[..., None]) -> Any: ...

        def pass_by(self) -> None:
            rings, self.rings = self.rings, []
            for ring in rings:
                ring()

    clock = Clock()
    bounds = HttpBounds(head_bytes=4096, headers=50, request_s=30.0, stall_s=30.0)
    connection: Any = bounded_http(bounds)(uvicorn.Config(echo), ServerState(), {}, clock)  # type: ignore[call-arg]
    connection.connection_made(Steady())
    for _ in range(3):
        connection.pause_writing()
        connection.resume_writing()
    connection.pause_writing()
    assert len(clock.rings) == 1
    connection.resume_writing()
    clock.pass_by()
    assert not heard
    connection.pause_writing()
    clock.pass_by()
    assert heard == ["abort"]


def test_over_tls_a_refused_client_that_is_still_sending_hears_the_end(run: Run) -> None:
    """There the direction to it cannot be closed alone."""
    heard: list[str] = []

    class Tls(asyncio.Transport):
        def can_write_eof(self) -> bool:
            return False

        def write(self, data: Any) -> None:
            heard.append("answer")

        def close(self) -> None:
            heard.append("close")

        def is_closing(self) -> bool:
            return "close" in heard

    async def main() -> None:
        bounds = HttpBounds(head_bytes=4096, headers=50, request_s=30.0, stall_s=30.0, linger_s=0.05)
        connection: Any = bounded_http(bounds)(uvicorn.Config(echo), ServerState(), {})  # type: ignore[call-arg]
        connection.connection_made(Tls({"sslcontext": object()}))
        connection.data_received(b"GET / HTTP/1.1\r\nx: " + b"y" * 5000)
        assert heard == ["answer"]
        async with asyncio.timeout(5):
            while "close" not in heard:
                await asyncio.sleep(0.01)

    run(main())


def test_a_slow_client_pauses_and_resumes_a_direct_answer_and_its_end_is_told(run: Run) -> None:
    heard: list[str] = []

    class Listening:
        def pause(self) -> None:
            heard.append("pause")

        def resume(self) -> None:
            heard.append("resume")

        def gone(self) -> None:
            heard.append("gone")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = scope["extensions"][DIRECT]
        exchange.listen(Listening())
        exchange.start([])
        for _ in range(100):
            exchange.write(b"x" * 1_000_000)
        assert exchange.full
        assert heard == ["pause"]
        while (await receive())["type"] != "http.disconnect":
            pass
        assert not exchange.full
        exchange.write(b"to nobody")
        exchange.finish()

    async def main() -> None:
        async with serving(app) as (server, _):
            address = server.servers[0].sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(*address)
            writer.write(GET)
            async with asyncio.timeout(10):
                while "pause" not in heard:
                    await asyncio.sleep(0.01)
                while "resume" not in heard:
                    await reader.read(1 << 20)
                writer.transport.abort()
                while "gone" not in heard:
                    await asyncio.sleep(0.01)
                while server.server_state.tasks:
                    await asyncio.sleep(0.01)
        assert heard == ["pause", "resume", "gone"]

    run(main())


def test_a_client_that_leaves_is_told_of_to_whoever_waits(run: Run) -> None:
    told: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        told.append((await receive())["type"])
        told.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def main() -> None:
        async with serving(app) as (server, _):
            _, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
            writer.write(GET)
            await asyncio.sleep(0.05)
            writer.close()
            async with asyncio.timeout(5):
                while len(told) < 2 or server.server_state.tasks:
                    await asyncio.sleep(0.01)
        assert told == ["http.request", "http.disconnect"]

    run(main())


async def never_begins(scope: Scope, receive: Receive, send: Send) -> None:
    pass


async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("a defect")


async def splits(scope: Scope, receive: Receive, send: Send) -> None:
    """A header that would begin another."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nset-cookie: b")]})


@pytest.mark.parametrize("app", [never_begins, fails, splits])
def test_an_application_that_fails_is_answered_for(run: Run, app: ASGIApp) -> None:
    async def main() -> None:
        async with serving(app) as (_, talk):
            answer = await talk(GET)
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"connection: close" in answer
        assert b"set-cookie" not in answer

    run(main())


@pytest.mark.parametrize("length", [b"5", b"50", None])
def test_an_answer_that_breaks_off_is_cut(run: Run, length: bytes | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        head = [(b"content-length", length)] if length is not None else []
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"1234", "more_body": True})
        if length is not None:
            await send({"type": "http.response.body", "body": b"56"})

    async def main() -> None:
        async with serving(app) as (_, talk):
            answer = await talk(GET)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"1234" in answer
        assert not answer.endswith(b"0\r\n\r\n")
        assert length is None or len(answer.partition(b"\r\n\r\n")[2]) < int(length)

    run(main())


def test_nothing_follows_an_answer_that_is_whole(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await echo(scope, receive, send)
        assert (await receive())["type"] == "http.disconnect"
        with pytest.raises(RuntimeError):
            await send({"type": "http.response.body", "body": b"more"})
        with pytest.raises(RuntimeError):
            await send({"type": "http.response.start", "status": 200})

    async def main() -> None:
        async with serving(app) as (_, talk):
            assert bodies(await talk(LAST)) == [b"GET /b  "]

    run(main())


def test_what_is_no_http_after_a_request_does_not_get_into_its_answer(run: Run) -> None:
    async def main() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            exchange = scope["extensions"][DIRECT]
            exchange.start([])
            exchange.write(b"one")
            begun.set()
            await release.wait()

        async with serving(app) as (server, _):
            reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
            writer.write(GET)
            await begun.wait()
            writer.write(b"\x00 nonsense\r\n\r\n")
            heard = b""
            try:
                async with asyncio.timeout(5):
                    heard = await reader.read()
            except ConnectionError:
                pass
            assert b"400" not in heard
            release.set()
            writer.close()

    run(main())


def test_idle_connections_are_closed_and_slow_requests_are_not_taken_for_idle(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(echo, keep_alive=1, request_s=3.0) as (_, talk):
            began = loop.time()
            assert bodies(await talk(GET)) == [b"GET /a  "]
            assert 0.9 < loop.time() - began < 2.5
            # Half of the next request has come in time: from then on the request's own time counts.
            assert bodies(await talk(GET + LAST[:20], b"", LAST[20:], pause=0.7)) == [b"GET /a  ", b"GET /b  "]

    run(main())


def test_a_request_has_its_time_from_its_first_byte(run: Run) -> None:
    async def main() -> None:
        async with serving(echo, request_s=0.6) as (_, talk):
            assert bodies(await talk(b"", LAST[:10], LAST[10:], pause=0.4)) == [b"GET /b  "]
            assert (await talk(LAST[:10])).startswith(b"HTTP/1.1 408 ")
            assert await talk() == b""

    run(main())


def test_a_request_that_waits_behind_another_is_not_timed(run: Run) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/a":
            await asyncio.sleep(0.8)
        await echo(scope, receive, send)

    async def main() -> None:
        post = b"POST /p HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 4\r\n\r\n"
        async with serving(slow, request_s=0.3) as (_, talk):
            assert bodies(await talk(GET + post, b"body")) == [b"GET /a  ", b"POST /p  body"]

    run(main())


def test_a_server_that_ends_closes_what_is_idle_and_lets_the_rest_finish(run: Run) -> None:
    async def main() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/a":
                begun.set()
                await release.wait()
            await echo(scope, receive, send)

        async with serving(app) as (server, talk):
            idle = asyncio.ensure_future(talk(GET.replace(b"/a", b"/idle")))
            running = asyncio.ensure_future(talk(GET))
            await begun.wait()
            await asyncio.sleep(0.05)
            server.should_exit = True
            assert bodies(await idle) == [b"GET /idle  "]
            assert not running.done()
            release.set()
            answer = await running
            assert bodies(answer) == [b"GET /a  "]

    run(main())


@pytest.mark.parametrize("cut", [0, 20, 150, 160])
def test_another_upgrade_is_answered_as_if_nobody_had_asked(run: Run, cut: int) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            # As Java's client sends each request that is not encrypted.
            asks = b"connection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAEAAEAA\r\nupgrade: h2c\r\n"
            get = b"GET /a HTTP/1.1\r\nhost: localhost\r\n" + asks + b"\r\n"
            post = b"POST /c HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n" + asks + b"\r\nhello"
            said = get + post + LAST
            answer = await talk(said[:cut], said[cut:], pause=0.05)
            assert bodies(answer) == [b"GET /a  ", b"POST /c  hello", b"GET /b  "]
            assert b"connection: close" in await talk(get.replace(b"1.1", b"1.0"))

    run(main())


def test_a_tunnel_is_refused(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as (_, talk):
            answer = await talk(b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 400 ")

    run(main())
