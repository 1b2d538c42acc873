"""What decoding a request costs: a growing tool loop on each API, with nothing known and with all but its last message.

Promise: prints microseconds, the best of many rounds; run it with `python benchmarks/decoding.py`.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.fields.decoded import DecodedParts

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "file",
    "path",
    "return",
    "value",
    "error",
    "test",
    "import",
    "class",
    "def",
    "self",
    "none",
    "true",
    "false",
    "print",
]
SIZES = ((20, 400), (200, 1000))
ROUNDS = 60
_random = random.Random(3)


def words(size: int) -> str:
    """Text of a size, with what JSON must escape."""
    return " ".join(_random.choice(WORDS) for _ in range(size // 5))[:size] + '\n "x"'


def tools() -> list[dict[str, Any]]:
    """Twenty tools of a coding harness's size."""
    names = {f"p{number}": {"type": "string", "description": words(60)} for number in range(5)}
    schema = {"type": "object", "properties": names, "required": ["p0"]}
    return [{"name": f"tool{number}", "description": words(400), "parameters": schema} for number in range(20)]


def bodies(messages: int, size: int) -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """The same conversation as a request of each API."""
    said: list[dict[str, Any]] = []
    chatted: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    for number in range(messages // 2):
        text, thought, arguments = words(size), words(size // 3), {"p0": words(size // 3)}
        spoken, call_id, before = json.dumps(arguments), f"c{number}", f"c{number - 1}"
        if number % 4 == 0:
            said.append({"role": "user", "content": text})
            chatted.append({"role": "user", "content": text})
            items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
        else:
            said.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": before, "content": text}]})
            chatted.append({"role": "tool", "tool_call_id": before, "content": text})
            items.append({"type": "function_call_output", "call_id": before, "output": text})
        use = {"type": "tool_use", "id": call_id, "name": "tool1", "input": arguments}
        seal = {"type": "thinking", "thinking": thought, "signature": "s" * 200}
        said.append({"role": "assistant", "content": [seal, use]})
        function = {"name": "tool1", "arguments": spoken}
        call = {"id": call_id, "type": "function", "function": function}
        chatted.append({"role": "assistant", "content": None, "reasoning_content": thought, "tool_calls": [call]})
        summary = [{"type": "summary_text", "text": thought}]
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "s" * 200})
        items.append({"type": "function_call", "call_id": call_id, **function})
    last, system, offered = {"role": "user", "content": "go"}, words(8000), tools()
    named = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in offered]
    functions = [{"type": "function", "function": tool} for tool in offered]
    flat = [{"type": "function", **tool} for tool in offered]
    yield "messages", anthropic.decode, {"system": system, "tools": named, "messages": [*said, last]}
    opening = {"role": "system", "content": system}
    yield "chat", chat.decode, {"tools": functions, "messages": [opening, *chatted, last]}
    yield "responses", responses.decode, {"instructions": system, "tools": flat, "input": [*items, last]}


def best(work: Callable[[], object]) -> float:
    """Microseconds of the fastest round."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times) * 1e6


def main() -> None:
    """Print one line for each API and size."""
    for messages, size in SIZES:
        for name, decode, fields in bodies(messages, size):
            body = json.dumps({"model": "m", "stream": True, **fields}).encode()
            cache = DecodedParts()
            decode(body, {}, cache=cache)
            cold = best(lambda decode=decode, body=body: decode(body, {}))  # type: ignore[misc]
            warm = best(lambda decode=decode, body=body, cache=cache: decode(body, {}, cache=cache))  # type: ignore[misc]
            print(f"{name:10} {messages:4} messages {len(body):7} bytes  cold {cold:5.0f} us  known {warm:5.0f} us")


if __name__ == "__main__":
    main()
