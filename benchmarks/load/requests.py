"""Request bodies for the three APIs, with the tools that the scripted turns call and any history before the question.

Promise: the same conversation in each API; nothing in a body but what every measured gateway accepts.
"""

from __future__ import annotations

import functools
import json
import random
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

Api = Literal["chat", "messages", "responses"]
APIS: tuple[Api, ...] = ("chat", "messages", "responses")
PATHS: dict[Api, str] = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
# What the stream of a whole answer holds.
ENDINGS: dict[Api, str] = {"chat": "[DONE]", "messages": "message_stop", "responses": "response.completed"}
MODEL = "qwen3"
_STRING = {"type": "string"}
_TOOLS = {
    "Write": ("Write a file.", {"file_path": _STRING, "content": _STRING}),
    "Read": ("Read a file.", {"file_path": _STRING}),
    "Bash": ("Run a command.", {"command": _STRING}),
}


class Said(NamedTuple):
    """One message of a history."""

    role: Literal["user", "assistant"]
    text: str


def body(api: Api, messages: Sequence[Said], system: str = "You are an agent.", tools: int = 0) -> bytes:
    """A streaming request that ends with the last of `messages`. It offers so many `tools` beside the few that are
    called."""
    return json.dumps(request(api, written(api, messages), system, tools)).encode()


def request(
    api: Api, said: Sequence[dict[str, Any]], system: str = "You are an agent.", tools: int = 0
) -> dict[str, Any]:
    """The same with a conversation in the API's own words."""
    asked: dict[str, Any] = {"model": MODEL, "stream": True, "tools": _tools(api, tools)}
    if api == "responses":
        return asked | {"instructions": system, "max_output_tokens": 32000, "input": said}
    asked["max_tokens"] = 32000
    if api == "chat":
        return asked | {"messages": [{"role": "system", "content": system}, *said]}
    return asked | {"system": system, "messages": said, "thinking": {"type": "enabled", "budget_tokens": 4096}}


def written(api: Api, messages: Sequence[Said]) -> list[dict[str, Any]]:
    """Messages in the API's words."""
    return [_item(m) if api == "responses" else {"role": m.role, "content": m.text} for m in messages]


def _item(message: Said) -> dict[str, Any]:
    kind = "input_text" if message.role == "user" else "output_text"
    return {"type": "message", "role": message.role, "content": [{"type": kind, "text": message.text}]}


def _tools(api: Api, more: int) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for name, (description, properties) in [*_TOOLS.items(), *_more_tools()[:more]]:
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        about: dict[str, Any] = {"name": name, "description": description}
        if api == "messages":
            tools.append(about | {"input_schema": schema})
        elif api == "responses":
            tools.append({"type": "function", **about, "parameters": schema})
        else:
            tools.append({"type": "function", "function": about | {"parameters": schema}})
    return tools


@functools.cache
def _more_tools() -> list[tuple[str, tuple[str, dict[str, Any]]]]:
    """Tools with as many words as those of coding agents: some 2.5 KB each."""
    source = random.Random("tools")
    return [
        (
            f"Tool{number}",
            (passage(source, 1000), {f"option_{n}": _STRING | {"description": passage(source, 120)} for n in range(8)}),
        )
        for number in range(30)
    ]


def history(seed: object, messages: int, characters: int) -> list[Said]:
    """`messages` messages, `characters` in all, that no other seed gives; the assistant has the last one."""
    source = random.Random(repr(seed))
    each = characters // messages
    return [Said("assistant" if n % 2 else "user", passage(source, each)) for n in range(messages)]


def passage(source: random.Random, size: int) -> str:
    """Some lines of code and prose as an agent reads them: a random cut of Python's standard library."""
    library = _library()
    start = source.randrange(len(library) - size)
    return f"# {source.random()}\n{library[start : start + size]}"[:size]


@functools.cache
def _library() -> str:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
