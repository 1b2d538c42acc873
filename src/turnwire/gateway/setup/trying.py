"""A short conversation with each model, really held: a question, a tool call, its result, the answer.

Promise: it goes through the same gateway, over a socket, as a client's would; what came of it is one line per model
with the figures that matter: whether the tool was called, whether the prefix held, what was cached, how fast it spoke.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from typing import Any, Literal

import aiohttp
import msgspec
import uvicorn

from turnwire.gateway.gateway import Gateway
from turnwire.gateway.server import server_config
from turnwire.gateway.settings import Settings
from turnwire.gateway.turns.runtime import ModelRuntime

__all__ = ["Trial", "try_models"]

_SECONDS = 120.0
_TOOL = {
    "name": "read_thermometer",
    "description": "Reads the thermometer in the room. Returns degrees Celsius.",
    "input_schema": {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]},
}
_SYSTEM = "You are a helpful assistant. Use the tools you are given. " * 12
_QUESTION = "How warm is the kitchen? Read the thermometer with the tool, then tell me."


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one model's conversation."""

    model: str
    state: Literal["fine", "warning", "error"]
    text: str
    fix: str = ""


async def try_models(settings: Settings, runtimes: Sequence[ModelRuntime]) -> list[Trial]:
    """Serve the models on a free loopback port for as long as the conversations take."""
    bare = msgspec.structs.replace(settings, host="127.0.0.1", keys=None, store=None, record=None, traces=None)
    gateway = Gateway(bare, runtimes)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        # Whoever connects before the server runs waits in the listener's line.
        listener.listen()
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(server_config(gateway))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            timeout = aiohttp.ClientTimeout(total=_SECONDS)
            async with aiohttp.ClientSession(base, timeout=timeout) as session:
                return [await _tried(session, runtime.id) for runtime in runtimes]
        finally:
            server.should_exit = True
            await task


async def _tried(session: aiohttp.ClientSession, model: str) -> Trial:
    try:
        return await _conversation(session, model)
    except TimeoutError:
        return Trial(
            model=model, state="error", text=f"no answer within {_SECONDS:.0f} s", fix="look at the engine's log"
        )
    except aiohttp.ClientError as error:
        return Trial(model=model, state="error", text=f"the conversation failed: {error}", fix="see the log above")


async def _conversation(session: aiohttp.ClientSession, model: str) -> Trial:
    messages: list[dict[str, Any]] = [{"role": "user", "content": _QUESTION}]
    body = {"model": model, "max_tokens": 400, "system": _SYSTEM, "tools": [_TOOL], "messages": messages}
    started = time.monotonic()
    first, _ = await _ask(session, body)
    calls = [block for block in first["content"] if block["type"] == "tool_use"]
    if not calls:
        text = f"answered in words instead of calling the tool ({first['stop_reason']})"
        fix = "not every model calls tools; check --dialect and the chat template if this one should"
        return Trial(model=model, state="warning", text=text, fix=fix)
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "21.5"} for call in calls]
    messages += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": results}]
    second, prefix = await _ask(session, body)
    seconds = time.monotonic() - started
    spoken = first["usage"]["output_tokens"] + second["usage"]["output_tokens"]
    cached = second["usage"].get("cache_read_input_tokens") or 0
    text = f"called the tool and answered; prefix {prefix}; {cached} tokens cached; {spoken / seconds:.1f} tokens/s"
    if prefix.startswith("broken"):
        return Trial(model=model, state="warning", text=text, fix="see docs/continuity.md for the cause it names")
    return Trial(model=model, state="fine", text=text)


async def _ask(session: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    async with session.post("/v1/messages", json=body) as answer:
        said = await answer.json(content_type=None)
        if answer.status != 200:
            raise aiohttp.ClientError(f"HTTP {answer.status}: {said.get('error', {}).get('message', said)}")
        return said, answer.headers.get("x-turnwire-prefix", "")
