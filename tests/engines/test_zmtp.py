"""ZMTP as a server speaks it: against scripts of bytes, and against libzmq."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvloop
import zmq
import zmq.asyncio

from turnwire.engines.vllm_core import zmtp
from turnwire.engines.vllm_core.zmtp import WAITING, Listener, Peer

NULL = b"NULL".ljust(20, b"\0")
MOST = 1 << 20


def greeting(version: bytes = b"\3\1", mechanism: bytes = NULL) -> bytes:
    return (b"\xff" + bytes(8) + b"\x7f" + version + mechanism).ljust(64, b"\0")


def short(flags: int, body: bytes) -> bytes:
    return bytes((flags, len(body))) + body


def long(flags: int, body: bytes) -> bytes:
    return bytes((flags | 2,)) + len(body).to_bytes(8, "big") + body


def prop(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def ready(kind: bytes = b"DEALER", identity: bytes | None = b"\0\0") -> bytes:
    named = b"" if identity is None else prop(b"Identity", identity)
    return short(4, b"\5READY" + prop(b"Socket-Type", kind) + named)


OURS = greeting() + short(4, b"\5READY" + prop(b"Socket-Type", b"ROUTER"))


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.paused = False
        self.protocol: Any = None
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said += data

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Heard:
    """A listener, and what its peers do."""

    def __init__(self, kind: Any = "ROUTER", most: int = MOST, identity: int | None = 2) -> None:
        self.joined: list[Peer] = []
        self.left: list[Peer] = []
        self.calls: list[list[list[bytes]]] = []
        self.listener = Listener(
            kind, self._received, most=most, identity=identity, joined=self.joined.append, left=self.left.append
        )

    def _received(self, peer: Peer, messages: list[list[bytes]]) -> None:
        assert peer in self.joined
        assert peer not in self.left
        self.calls.append(messages)

    @property
    def messages(self) -> list[list[bytes]]:
        return [message for call in self.calls for message in call]

    def wire(self) -> Wire:
        wire = Wire()
        wire.protocol = self.listener.meet()
        wire.protocol.connection_made(wire)
        return wire


def feed(wire: Wire, data: bytes) -> None:
    if not wire.is_closing():
        wire.protocol.data_received(data)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


# --------------------------------------------------------------------------------------------------- scripts of bytes

SCRIPT = b"".join(
    (
        greeting(),
        ready(identity=b"\7\0"),
        short(0, b"one"),
        short(1, b"two"),
        short(4, b"\4PING\0\1abc"),
        short(0, b""),
        long(0, b"three"),
        short(4, b"\7UNKNOWN and its body"),
        long(1, b"x" * 300),
        long(4, b"\4PING\0\1" + b"c" * 40),
        long(3, b"y" * 3),
        short(0, b"z"),
    )
)
MESSAGES = [[b"one"], [b"two", b""], [b"three"], [b"x" * 300, b"y" * 3, b"z"]]
PONGS = short(4, b"\4PONGabc") + short(4, b"\4PONG" + b"c" * 16)


async def test_any_cut_of_the_bytes_gives_the_same_messages() -> None:
    async def read(*cuts: int) -> None:
        heard = Heard()
        wire = heard.wire()
        for start, end in zip((0, *cuts), (*cuts, len(SCRIPT)), strict=True):
            feed(wire, SCRIPT[start:end])
        assert heard.messages == MESSAGES
        assert wire.said == OURS + PONGS
        assert heard.joined[0].identity == b"\7\0"
        assert not wire.is_closing()

    for cut in range(1, len(SCRIPT)):
        await read(cut)
    await read(*range(1, len(SCRIPT)))
    chance = random.Random(1)
    for _ in range(200):
        await read(*sorted(chance.sample(range(1, len(SCRIPT)), chance.randrange(1, 20))))


async def test_what_one_read_completes_comes_in_one_call() -> None:
    heard = Heard()
    wire = heard.wire()
    feed(wire, greeting() + ready())
    feed(wire, short(0, b"a") * 50 + short(1, b"b"))
    feed(wire, short(0, b"c") + short(0, b"d"))
    assert heard.calls == [[[b"a"]] * 50, [[b"b", b"c"], [b"d"]]]


async def test_a_large_read_comes_in_portions_with_other_work_between() -> None:
    heard = Heard()
    wire = heard.wire()
    feed(wire, greeting() + ready())
    feed(wire, short(0, b"a" * 100) * 2000)
    assert wire.paused
    first = len(heard.messages)
    assert 0 < first < 1000
    await asyncio.sleep(0)
    assert first < len(heard.messages) < 2000
    await until(lambda: len(heard.messages) == 2000)
    assert not wire.paused
    feed(wire, short(0, b"a" * 100) * 2000)
    wire.abort()
    await until(lambda: heard.left)
    assert len(heard.messages) < 3000, "nothing comes from a connection that is gone"


async def test_what_a_large_read_brings_is_not_passed_over_where_it_cannot_be_taken() -> None:
    """What follows would be taken for the whole."""

    class Failing(Heard):
        def _received(self, peer: Peer, messages: list[list[bytes]]) -> None:
            super()._received(peer, messages)
            if len(self.calls) == 2:
                raise RuntimeError("a defect")

    heard = Failing()
    wire = heard.wire()
    feed(wire, greeting() + ready())
    feed(wire, short(0, b"a" * 100) * 3000)
    await until(lambda: heard.left)
    assert len(heard.calls) == 2


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak ZMTP"),
        (b"\x16\x03\x01", "does not speak ZMTP"),
        (b"\xff" + bytes(9), "does not speak ZMTP"),
        (greeting(version=b"\1\0"), "old version"),
        (greeting(mechanism=b"CURVE".ljust(20, b"\0")), "the mechanism b'CURVE'"),
        (greeting() + short(0, b"message"), "does not say what it is"),
        (greeting() + short(5, b"\5READY"), "does not say what it is"),
        (greeting() + short(4, b"\4PING\0\1"), "begins with b'PING'"),
        (greeting() + short(4, b"\5ERROR\3bad"), "begins with b'ERROR'"),
        (greeting() + short(4, b""), "no name"),
        (greeting() + short(4, b"\0READY"), "no name"),
        (greeting() + short(4, b"\xffREADY"), "no name"),
        (greeting() + short(4, b"\5READY\x0bSocket-Type\0\0\0\xffDEALER"), "properties"),
        (greeting() + short(4, b"\5READY\x0bSocket-Type\0"), "properties"),
        (greeting() + short(4, b"\5READY\xff"), "properties"),
        (greeting() + short(4, b"\5READY"), "type None"),
        (greeting() + ready(b"SUB"), "type b'SUB'"),
        (greeting() + ready(identity=b""), "identity has 0 bytes"),
        (greeting() + ready(identity=None), "identity has 0 bytes"),
        (greeting() + ready(identity=b"abc"), "identity has 3 bytes"),
        (greeting() + long(4, b"\5READY" + bytes(5000))[:73], "too large"),
        (greeting() + ready() + b"\x08\0", "flags 0x8"),
        (greeting() + ready() + b"\x05\0", "flags 0x5"),
        (greeting() + ready() + b"\xff" * 9, "flags 0xff"),
        (greeting() + ready() + b"\2" + b"\xff" * 8, "too large"),
        (greeting() + ready() + b"\2" + (MOST + 1).to_bytes(8, "big"), "too large"),
        (greeting() + ready() + b"\6" + (4097).to_bytes(8, "big"), "too large"),
        (greeting() + ready() + short(1, b"") * (MOST // 64 + 1), "too large"),
        (greeting() + ready() + short(4, b""), "no name"),
        (greeting() + ready() + short(4, b"\5ERROR\3bad"), "bad"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_breaks_the_protocol_ends_the_connection(
    said: bytes, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    other = heard.wire()
    feed(other, greeting() + ready())
    for step in (len(said), 1):
        wire = heard.wire()
        with caplog.at_level(logging.WARNING):
            for at in range(0, len(said), step):
                feed(wire, said[at : at + step])
                await asyncio.sleep(0)
        assert wire.is_closing()
        assert heard.messages == []
    assert word in caplog.text
    assert heard.left == heard.joined[1:], "who joined has left"
    feed(other, short(0, b"on"))
    assert heard.messages == [[b"on"]], "and no other is hurt"


async def test_messages_before_the_fault_are_delivered() -> None:
    heard = Heard()
    wire = heard.wire()
    feed(wire, greeting() + ready() + short(0, b"one") + b"\xff\xff")
    assert heard.messages == [[b"one"]]
    assert wire.is_closing()


async def test_old_and_new_minor_versions_are_understood() -> None:
    for version in (b"\3\0", b"\3\1", b"\3\2", b"\4\0"):
        heard = Heard()
        feed(heard.wire(), greeting(version=version) + ready())
        assert len(heard.joined) == 1


async def test_names_of_properties_have_no_case_and_unknown_ones_are_passed_over() -> None:
    heard = Heard("PULL", identity=None)
    feed(heard.wire(), greeting() + short(4, b"\5READY" + prop(b"X-Mine", b"1" * 50) + prop(b"socket-TYPE", b"PUSH")))
    assert heard.joined[0].identity == b""


async def test_a_stranger_has_little_time(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(zmtp, "_INTRODUCTION_SECONDS", 0.05)
    heard = Heard()
    silent, slow, quick = heard.wire(), heard.wire(), heard.wire()
    feed(quick, greeting() + ready())
    for byte in greeting()[:40]:
        feed(slow, bytes((byte,)))
        await asyncio.sleep(0.002)
    await until(lambda: silent.is_closing() and slow.is_closing())
    await asyncio.sleep(0.05)
    assert not quick.is_closing()
    assert caplog.text.count("did not say in time") == 1, "the same is said once"


async def test_strangers_are_bounded_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmtp, "_STRANGERS", 3)
    monkeypatch.setattr(zmtp, "_PEERS", 2)
    heard = Heard()
    wires = [heard.wire() for _ in range(5)]
    assert [wire.is_closing() for wire in wires] == [True, True, False, False, False]
    for wire in wires:
        feed(wire, greeting() + ready())
    assert [wire.is_closing() for wire in wires] == [True, True, False, False, True]
    assert len(heard.joined) == 2


async def test_pings_of_a_peer_that_does_not_read_are_not_answered() -> None:
    heard = Heard()
    wire = heard.wire()
    feed(wire, greeting() + ready())
    heard.joined[0].pause_writing()
    feed(wire, short(4, b"\4PING\0\1") * 1000)
    assert wire.said == OURS
    heard.joined[0].resume_writing()
    feed(wire, short(4, b"\4PING\0\1"))
    assert wire.said == OURS + short(4, b"\4PONG")


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
async def test_what_is_sent_is_framed(size: int) -> None:
    heard = Heard()
    wire = heard.wire()
    feed(wire, greeting() + ready())
    body = b"b" * size
    heard.joined[0].send((b"\0",), (body[:100], memoryview(body)[100:]))
    heard.joined[0].send((body,))
    framed = (short if size < 256 else long)(0, body)
    assert wire.said == OURS + short(1, b"\0") + framed + framed


# ------------------------------------------------------------------------------------------------------------ libzmq

on_both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


def port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def peer(kind: int, place: int, host: str = "127.0.0.1", **options: Any) -> Iterator[zmq.asyncio.Socket]:
    """A socket of libzmq's that connects to us."""
    context = zmq.asyncio.Context()
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.IPV6, ":" in host)
    for name, value in options.items():
        made.setsockopt(getattr(zmq, name), value)
    made.connect(f"tcp://[{host}]:{place}" if ":" in host else f"tcp://{host}:{place}")
    try:
        yield made
    finally:
        context.destroy(linger=0)


async def listening(heard: Heard, host: str = "127.0.0.1") -> int:
    place = port()
    await heard.listener.open(host, place)
    return place


@on_both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_dealer_talks_and_hears(run: Callable[[Any], None], host: str) -> None:
    async def scenario() -> None:
        heard = Heard()
        place = await listening(heard, host)
        with peer(zmq.DEALER, place, host, IDENTITY=b"\3\0") as dealer:
            big = random.Random(2).randbytes(MOST - 1000)
            for message in ([b"hello"], [b"", b"b"], [big], [b"end"]):
                await dealer.send_multipart(message)
            await until(lambda: len(heard.messages) == 4)
            assert heard.messages == [[b"hello"], [b"", b"b"], [big], [b"end"]]
            (one,) = heard.joined
            assert one.identity == b"\3\0"
            bigger = big * 20
            for sent in ([b"\0", b"x"], [b"\0", bigger], [b"y"], [b"\0", b"", big[:256]]):
                one.send(*((frame,) for frame in sent))
                assert await dealer.recv_multipart() == sent
        await until(lambda: heard.left)
        await heard.listener.close(0.2)

    run(scenario())


@on_both_loops
def test_a_push_is_read_in_order_and_without_loss(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        heard = Heard("PULL", identity=None)
        place = await listening(heard)
        with peer(zmq.PUSH, place, SNDHWM=0) as push:
            sent = [[b"%d" % number, b"x" * (number % 700)] for number in range(20_000)]
            for message in sent:
                await push.send_multipart(message)
            await until(lambda: len(heard.messages) == len(sent))
            assert heard.messages == sent
            assert len(heard.calls) < len(sent) / 10
        await heard.listener.close(0.2)

    run(scenario())


@on_both_loops
def test_a_peer_comes_before_us_and_again(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        heard, place = Heard(), port()
        with peer(zmq.DEALER, place, IDENTITY=b"\3\0", RECONNECT_IVL=10) as dealer:
            await dealer.send(b"early")
            await asyncio.sleep(0.05)
            await heard.listener.open("127.0.0.1", place)
            await until(lambda: heard.messages)
            heard.joined[0].drop()
            await until(lambda: len(heard.joined) == 2)
            assert heard.left == heard.joined[:1]
            await dealer.send(b"again")
            await until(lambda: heard.messages == [[b"early"], [b"again"]])
            # The port is free at once, and another socket on it serves the same peer.
            await heard.listener.close(0.2)
            second = Heard()
            await second.listener.open("127.0.0.1", place)
            await until(lambda: second.joined)
            assert second.joined[0].identity == b"\3\0"
            await second.listener.close(0.2)

    run(scenario())


@on_both_loops
def test_heartbeats_are_answered(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        heard = Heard()
        place = await listening(heard)
        beats = {"HEARTBEAT_IVL": 20, "HEARTBEAT_TIMEOUT": 100, "HEARTBEAT_TTL": 100}
        with peer(zmq.DEALER, place, IDENTITY=b"\3\0", **beats) as dealer:
            await until(lambda: heard.joined)
            await asyncio.sleep(0.5)
            assert (len(heard.joined), heard.left) == (1, [])
            heard.joined[0].send((b"still here",))
            assert await dealer.recv() == b"still here"
        await heard.listener.close(0.2)

    run(scenario())


@on_both_loops
def test_a_peer_that_does_not_read_is_full(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        heard = Heard()
        place = await listening(heard)
        reader, writer = await asyncio.open_connection("127.0.0.1", place, limit=1 << 16)
        writer.write(greeting() + ready())
        await until(lambda: heard.joined)
        (one,) = heard.joined
        sent = 0
        body = bytes(1 << 20)
        while not one.full:
            one.send((body,))
            sent += 1
            await asyncio.sleep(0)
            assert sent < 2 * (WAITING >> 20)
        assert sent >= WAITING >> 20
        await reader.readexactly(len(OURS) + sent * (len(body) + 9))
        await until(lambda: not one.full)
        writer.close()
        await heard.listener.close(0.2)

    run(scenario())


@on_both_loops
def test_closing_sends_what_is_left_within_a_time(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        heard = Heard()
        place = await listening(heard)
        with peer(zmq.DEALER, place, IDENTITY=b"\3\0"):
            await until(lambda: heard.joined)
        await until(lambda: heard.left)
        heard.joined.clear()
        heard.left.clear()
        with peer(zmq.DEALER, place, IDENTITY=b"\3\0") as dealer:
            reader, writer = await asyncio.open_connection("127.0.0.1", place, limit=1 << 16)
            writer.write(greeting() + ready(identity=b"\4\0"))
            await until(lambda: len(heard.joined) == 2)
            body = bytes(10_000_000)
            for one in heard.joined:
                one.send((body,))
            began = asyncio.get_running_loop().time()
            await heard.listener.close(0.5)
            assert asyncio.get_running_loop().time() - began < 2
            assert await dealer.recv() == body
            with pytest.raises(asyncio.IncompleteReadError):
                await reader.readexactly(len(body))
            writer.close()
        assert heard.left == [], "after the end nobody is told"

    run(scenario())


@on_both_loops
def test_libzmq_leaves_a_listener_of_another_kind(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        heard = Heard()
        place = await listening(heard)
        with peer(zmq.PUSH, place), peer(zmq.DEALER, place, IDENTITY=b"\3\0") as dealer:
            await dealer.send(b"x")
            await until(lambda: heard.messages)
            assert [one.identity for one in heard.joined] == [b"\3\0"]
        await heard.listener.close(0.2)

    run(scenario())


async def test_who_comes_while_it_closes_is_sent_away() -> None:
    heard = Heard()
    await listening(heard)
    await heard.listener.close(0.2)
    wire = heard.wire()
    assert wire.is_closing()
    feed(wire, greeting() + ready())
    assert heard.joined == []


async def test_a_port_in_use_is_an_error() -> None:
    heard = Heard()
    place = await listening(heard)
    with pytest.raises(OSError, match="in use"):
        await Heard().listener.open("127.0.0.1", place)
    await heard.listener.close(0.2)
