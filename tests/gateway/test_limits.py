"""Every limit is a setting, and what is over it gets the status that docs/security.md says."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn

from turnwire.gateway.door.bounds import HttpBounds
from turnwire.gateway.door.connection import bounded_http
from turnwire.gateway.door.limits import request_limits
from turnwire.gateway.door.websocket import bounded_socket
from turnwire.gateway.server import server_config
from turnwire.gateway.settings import Settings
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Conversation, ImageBlock, Message

from .conftest import Client, Serve
from .test_liveness import BODIES, PATHS

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
USER = {"role": "user", "content": "Hi."}


def tool(schema: dict[str, Any], api: str) -> dict[str, Any]:
    if api == "messages":
        return {"name": "t", "input_schema": schema}
    if api == "responses":
        return {"type": "function", "name": "t", "parameters": schema}
    return {"type": "function", "function": {"name": "t", "parameters": schema}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def messages(count: int, api: str) -> dict[str, Any]:
    return {"input" if api == "responses" else "messages": [USER] * count}


def image(size: int, api: str) -> dict[str, Any]:
    data = base64.b64encode(b"x" * size).decode()
    if api == "messages":
        part: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        return {"messages": [{"role": "user", "content": [part]}]}
    if api == "responses":
        part = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
        return {"input": [{"role": "user", "content": [part]}]}
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {"messages": [{"role": "user", "content": [part]}]}


def stops(values: list[str], api: str) -> dict[str, Any]:
    return {"stop_sequences" if api == "messages" else "stop": values}


# Setting, its value, what is just within it, what is just over it.
CASES: dict[str, tuple[int, Any, Any]] = {
    "max_tools": (
        3,
        lambda api: {"tools": [json.loads(json.dumps(tool({}, api)).replace('"t"', f'"t{n}"')) for n in range(3)]},
        lambda api: {"tools": [json.loads(json.dumps(tool({}, api)).replace('"t"', f'"t{n}"')) for n in range(4)]},
    ),
    "max_schema": (
        5_000,
        lambda api: {"tools": [tool({"type": "object", "description": "d" * 4_900}, api)]},
        lambda api: {"tools": [tool({"type": "object", "description": "d" * 5_000}, api)]},
    ),
    "max_pattern": (
        40,
        lambda api: {"tools": [tool({"properties": {"a": {"type": "string", "pattern": "a" * 40}}}, api)]},
        lambda api: {"tools": [tool({"properties": {"a": {"type": "string", "pattern": "a" * 41}}}, api)]},
    ),
    "max_depth": (
        40,
        lambda api: {"tools": [tool(nested(10), api)]},
        lambda api: {"tools": [tool(nested(40), api)]},
    ),
    "max_messages": (5, lambda api: messages(5, api), lambda api: messages(6, api)),
    "max_stops": (2, lambda api: stops(["a", "b"], api), lambda api: stops(["a", "b", "c"], api)),
    "max_stop_chars": (10, lambda api: stops(["x" * 10], api), lambda api: stops(["x" * 11], api)),
    "max_image": (3_000, lambda api: image(2_990, api), lambda api: image(3_100, api)),
}


@pytest.mark.parametrize("api", list(PATHS))
@pytest.mark.parametrize("setting", list(CASES))
async def test_within_is_served_and_over_is_a_400_that_names_it(serve: Serve, setting: str, api: str) -> None:
    value, within, over = CASES[setting]
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, **{setting: value})
    status, answer = await client.post(PATHS[api], BODIES[api] | within(api))
    assert status == 200, answer
    status, answer = await client.post(PATHS[api], BODIES[api] | over(api))
    assert status == 400, answer
    assert str(value) in answer["error"]["message"]


async def test_the_output_formats_schema_is_a_schema_too(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, max_pattern=40)
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "a" * 41}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    status, _ = await client.post(PATHS["chat"], BODIES["chat"] | {"response_format": form})
    assert status == 400


async def test_choices_grammars_and_images_have_limits(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, max_choices=2, max_grammar=100, max_images=1)
    for number, status in ((2, 200), (3, 400), (10**6, 400)):
        assert (await client.post(PATHS["chat"], BODIES["chat"] | {"n": number}))[0] == status
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /" + "x" * 101 + "/"}
    custom = {"tools": [{"type": "custom", "name": "patch", "format": grammar}]}
    assert (await client.post(PATHS["responses"], BODIES["responses"] | custom))[0] == 400
    two = image(5, "chat")
    two["messages"][0]["content"] *= 2
    assert (await client.post(PATHS["chat"], BODIES["chat"] | two))[0] == 400


async def test_a_body_may_be_so_large_before_and_after_unpacking(serve: Serve) -> None:
    import gzip

    client = await serve({"text": "Hm.\n</think>\n\nHi."}, max_body=20_000)
    big = json.dumps(BODIES["messages"] | {"x": "y" * 30_000}).encode()
    for body, headers in ((big, {}), (gzip.compress(big), {"content-encoding": "gzip"})):
        for path, status in (
            ("/v1/messages", 413),
            ("/v1/messages/count_tokens", 413),
            ("/v1/chat/completions", 413),
            ("/v1/responses", 400),
            ("/v1/completions", 413),
            ("/v1/embeddings", 413),
            ("/v1/tokenize", 413),
        ):
            assert (await client.post(path, body, **headers))[0] == status, path


async def raw(client: Client, *pieces: bytes) -> bytes:
    host, port = client.base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_heads_are_bounded_in_size_number_and_time(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, max_head=4_000, max_headers=20, request_timeout=0.3)
    start = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
    end = b"connection: close\r\n\r\n"
    assert (await raw(client, start, end)).startswith(b"HTTP/1.1 200")
    assert (await raw(client, start, b"x: " + b"y" * 5_000 + b"\r\n", end)).startswith(b"HTTP/1.1 431")
    # One that never ends is refused as soon as it is over the limit.
    assert (await raw(client, start, b"x: " + b"y" * 5_000)).startswith(b"HTTP/1.1 431")
    assert (await raw(client, start, b"x: y\r\n" * 30, end)).startswith(b"HTTP/1.1 431")
    assert (await raw(client, b"GET /" + b"a" * 5_000 + b" HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 431")
    assert (await raw(client, start, b"x: y\r\n")).startswith(b"HTTP/1.1 408")
    assert (
        await raw(client, b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    ).startswith(b"HTTP/1.1 408")
    # Who says nothing is told nothing.
    assert await raw(client) == b""


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_closed_connection_is_gone_whether_its_peer_reads_or_not(kind: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 9_000_000, "more_body": True})
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "bytes": b"x" * 9_000_000})

    bounds = HttpBounds(head_bytes=4096, headers=50, request_s=30, stall_s=30, linger_s=0.2)
    config = uvicorn.Config(
        app, http=bounded_http(bounds), ws=bounded_socket(bounds), lifespan="off", access_log=False, log_config=None
    )
    server = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    upgrade = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    upgrade += b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    with socket.create_connection(listener.getsockname()) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + (upgrade if kind == "websocket" else b"") + b"\r\n")
        async with asyncio.timeout(20):
            while not server.server_state.connections:
                await asyncio.sleep(0.01)
            while server.server_state.connections:
                await asyncio.sleep(0.01)
    server.should_exit = True
    await task


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
    ],
)
async def test_what_is_not_clean_http_is_refused(serve: Serve, head: bytes) -> None:
    client = await serve({"text": "Hi."})
    answer = await raw(client, head)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


async def test_a_client_or_a_proxy_closes_an_idle_connection_before_we_do(serve: Serve) -> None:
    # httpx keeps one for 5 s, nginx and AWS's load balancer for 60.
    client = await serve({"text": "Hi."})
    assert server_config(client.gateway).timeout_keep_alive > 60


def test_references_are_refused_only_where_something_would_fetch_them() -> None:
    block = ImageBlock(url="https://example.com/cat.png")
    conversation = Conversation(model="m", messages=(Message(role="user", blocks=(block,)),))
    limits = request_limits(Settings())
    limits.check(conversation, 100, fetches=False)
    with pytest.raises(TurnFailure, match="allow_urls"):
        limits.check(conversation, 100, fetches=True)
    request_limits(Settings(allow_urls=True)).check(conversation, 100, fetches=True)


def test_every_limit_is_documented() -> None:
    page = SECURITY.read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", page))
    for field in msgspec.structs.fields(Settings):
        if field.name.startswith("max_") or field.name.endswith(("_timeout", "_steps")):
            assert field.name in named, field.name
