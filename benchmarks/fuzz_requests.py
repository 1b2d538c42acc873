"""Bad requests by the hundred thousand: no 500, no hang, every refusal in the API's own shape.

    python benchmarks/fuzz_requests.py [--requests 100000] [--seed 1] [--connections 16]

Good requests for every route of the OpenAPI document are broken in one or more of many ways: bytes, JSON, types, depth,
numbers, Unicode, methods, paths, headers, encodings. The same seed breaks them the same way. Exits 1 on any finding.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE_S = 20.0
TOOL = {
    "name": "Bash",
    "description": "Run.",
    "input_schema": {"type": "object", "properties": {"c": {"type": "string"}}},
}
GOOD: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "model": "m",
        "max_tokens": 20,
        "stream": False,
        "system": [{"type": "text", "text": "Be brief."}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [TOOL],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["END"],
        "temperature": 0.5,
        "metadata": {"user_id": "u"},
        "messages": [
            {"role": "user", "content": "Hi."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"c": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.py"}]},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                ],
            },
        ],
    },
    "/v1/chat/completions": {
        "model": "m",
        "stream": False,
        "max_tokens": 20,
        "n": 1,
        "stop": ["END"],
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [{"type": "function", "function": {"name": "Bash", "parameters": TOOL["input_schema"]}}],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "seed": 3,
        "logit_bias": {"5": 1},
        "chat_template_kwargs": {"enable_thinking": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi."},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "Bash", "arguments": '{"c":"ls"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        ],
    },
    "/v1/completions": {"model": "m", "prompt": "Once upon", "max_tokens": 8, "stop": ["END"], "echo": True, "n": 2},
    "/v1/embeddings": {"model": "m", "input": ["a", "b"], "encoding_format": "float", "dimensions": 4},
    "/v1/responses": {
        "model": "m",
        "instructions": "Be brief.",
        "stream": False,
        "store": True,
        "max_output_tokens": 20,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "parallel_tool_calls": True,
        "tools": [
            {"type": "function", "name": "Bash", "parameters": TOOL["input_schema"]},
            {
                "type": "custom",
                "name": "patch",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
            },
        ],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AAAA"},
            {"type": "function_call", "call_id": "call1", "name": "Bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call1", "output": "a.py"},
        ],
    },
    "/v1/tokenize": {"text": "Hi there.", "return_token_strs": True},
    "/v1/detokenize": {"tokens": [1, 2, 3]},
}
GOOD["/v1/messages/count_tokens"] = GOOD["/v1/messages"]
GOOD["/v1/responses/compact"] = GOOD["/v1/responses"]
GOOD["/v1/responses/input_tokens"] = GOOD["/v1/responses"]
READS = (
    "/v1/models",
    "/v1/models/m",
    "/v1/responses/resp_x",
    "/v1/responses/resp_x/input_items",
    "/health",
    "/ready",
    "/metrics",
    "/admin/turns",
    "/openapi.json",
    "/",
    "/v1/responses",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE")
# Routes that are open answer in no API's shape.
PLAIN = frozenset({"/", "/health", "/ready", "/api/hello"})

TEXTS = (
    "",
    " ",
    "\x00",
    "\ud800",
    "\udfff\ud800",
    "é" * 300,
    "🙂" * 100,
    "\u2028\u0085",
    "<|im_end|>",
    "</think>",
    "{{7*7}}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
    "../../etc/passwd",
    "%00",
    "' OR 1=1 --",
    "a" * 5000,
    "null",
    "true",
    "-1",
    "NaN",
    "\r\nset-cookie: a=b",
    "resp_" + "x" * 400,
)
NUMBERS = (0, -1, 1, 2**31, 2**53, 2**63, 2**64, 10**400, -(10**30), 1.5, 1e308, -1e-320, 0.1)
RAW = (
    b"",
    b" ",
    b"{",
    b"}",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"{}",
    b"\xff\xfe{}",
    b"\x00" * 64,
    b'{"a":' * 3000,
    b"[" * 100_000,
    b'{"model":NaN}',
    b'{"model":"m",}',
    b'{"model":"m","model":"n"}',
    b"\xef\xbb\xbf{}",
    b'"\\ud800"',
    b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b"POST / HTTP/1.1\r\n\r\n",
    b"9" * 5000,
)


class Fuzzer:
    """Breaks good requests."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        """Any JSON value, mostly of a wrong type."""
        dice = self.dice
        kind = dice.randrange(8 if depth < 3 else 5)
        if kind == 0:
            return dice.choice(TEXTS)
        if kind == 1:
            return dice.choice(NUMBERS)
        if kind == 2:
            return dice.choice((None, True, False))
        if kind == 3:
            return []
        if kind == 4:
            return {}
        if kind == 5:
            return [self.value(depth + 1) for _ in range(dice.randrange(4))]
        if kind == 6:
            return {dice.choice(TEXTS)[:40]: self.value(depth + 1) for _ in range(dice.randrange(4))}
        deep: Any = dice.choice(("x", 1, None))
        for _ in range(dice.choice((5, 120, 130, 600))):
            deep = {"a": deep} if dice.random() < 0.5 else [deep]
        return deep

    def places(self, value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        found = [path] if path else []
        items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            found += self.places(inner, (*path, key))
        return found

    def broken(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with one to three places changed."""
        dice = self.dice
        body = copy.deepcopy(body)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            places = self.places(body)
            if not places:
                break
            *way, last = dice.choice(places)
            at: Any = body
            for step in way:
                at = at[step]
            what = dice.randrange(6)
            if what == 0:
                del at[last]
            elif what == 1 and isinstance(at, list):
                at.extend([at[last]] * dice.choice((1, 50)))
            elif what == 2 and isinstance(at, dict):
                at[dice.choice(TEXTS)[:60]] = self.value()
            elif what == 3 and isinstance(at[last], str):
                at[last] = at[last] + dice.choice(TEXTS)
            else:
                at[last] = self.value()
        return body

    def request(self) -> tuple[str, str, list[tuple[str, str]], bytes]:
        """Method, path, headers and body."""
        dice = self.dice
        roll = dice.random()
        headers: list[tuple[str, str]] = []
        if roll < 0.62:
            path = dice.choice(list(GOOD))
            body = self.broken(GOOD[path])
            if dice.random() < 0.15 and isinstance(body, dict):
                body["stream"] = True
            data = json.dumps(body, ensure_ascii=dice.random() < 0.8).encode("utf-8", "surrogatepass")
            method = "POST"
        elif roll < 0.8:
            path, method, data = dice.choice(list(GOOD)), "POST", dice.choice(RAW)
            if dice.random() < 0.5:
                good = bytearray(json.dumps(GOOD[path]).encode())
                for _ in range(dice.randrange(1, 6)):
                    good[dice.randrange(len(good))] = dice.randrange(256)
                data = bytes(good[: dice.randrange(1, len(good))]) if dice.random() < 0.4 else bytes(good)
        else:
            path = dice.choice((*READS, *GOOD))
            method = dice.choice(METHODS)
            data = b"" if method in ("GET", "HEAD", "TRACE", "OPTIONS") else dice.choice(RAW[:12])
            if dice.random() < 0.5:
                path += dice.choice(
                    (
                        "/",
                        "//x",
                        "/../..",
                        "/%2e%2e/%2e%2e/etc/passwd",
                        "?limit=-1",
                        "?limit=x&after=%00",
                        "/%ff",
                        "/é".encode().decode("latin-1"),
                        "?stream=true&starting_after=z",
                        "/" + "a" * 3000,
                        "?order=sideways",
                        "/%0d%0aset-cookie:a",
                    )
                )
        if dice.random() < 0.25:
            headers += dice.sample(
                [
                    (
                        "content-encoding",
                        dice.choice(("gzip", "zstd", "br", "deflate", "lzma", "gzip,gzip,gzip,gzip,gzip")),
                    ),
                    ("content-type", dice.choice(("text/plain", "application/xml", "multipart/form-data; boundary=x"))),
                    ("anthropic-version", dice.choice(("2023-06-01", "1999-01-01", ""))),
                    ("anthropic-beta", "x" * dice.choice((1, 4000))),
                    ("authorization", dice.choice(("Bearer", "Bearer x", "Basic eDp5", "\xff"))),
                    ("x-claude-code-session-id", "s" * dice.choice((1, 5000))),
                    ("x-turnwire-dispatch", dice.choice(("1", "maybe"))),
                    ("accept", "application/xml"),
                    ("traceparent", "00-zz"),
                    ("expect", "100-continue"),
                    ("origin", dice.choice(("http://127.0.0.1", "http://evil.example", "null"))),
                ],
                dice.randrange(1, 4),
            )
        if dice.random() < 0.02:
            data = gzip.compress(data)
            headers.append(("content-encoding", "gzip"))
        return method, path, headers, data


def fault(path: str, method: str, status: int, head: str, body: bytes) -> str | None:
    """What is wrong with an answer."""
    # 502: the model stopped before it wrote the summary that /compact is for.
    if status >= 500 and status not in (502, 503, 529):
        return f"status {status}"
    if status < 400 or method == "HEAD" or path.split("?")[0] in PLAIN:
        return None
    if status in (408, 431) or (status == 400 and b"valid HTTP" in body):
        return None
    try:
        told = json.loads(body)
        message = told["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"status {status} without an error object"
    if not isinstance(message, str) or not message or not isinstance(told["error"].get("type"), str):
        return "an error without message or type"
    if path.startswith("/v1/messages") and told.get("type") != "error":
        return "not Anthropic's error shape"
    if "Traceback" in message or "site-packages" in message:
        return "a trace in the message"
    return None


class Connection:
    """A raw HTTP/1.1 client: any bytes may be sent, and a hang is seen."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, headers: list[tuple[str, str]], data: bytes) -> tuple[int, str, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Length: {len(data)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        reader, writer = self._streams
        writer.write(head.encode("latin-1", "replace") + data)
        try:
            status, answer, keep = await self._answer(reader, method)
        except (ConnectionError, asyncio.IncompleteReadError):
            # A kept connection may have been closed between two requests; a new one tells.
            self.close()
            raise
        if not keep:
            self.close()
        return status, "", answer

    async def _answer(self, reader: asyncio.StreamReader, method: str) -> tuple[int, bytes, bool]:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(head.split()[1])
            if status != 100:
                break
        lower = head.lower()
        keep = "connection: close" not in lower
        if method == "HEAD" or status in (204, 304):
            return status, b"", keep
        length = re.search(r"content-length: (\d+)", lower)
        if length:
            return status, await reader.readexactly(int(length[1])), keep
        if "chunked" not in lower:
            return status, await reader.read(), False
        body = b""
        while True:
            size = int(await reader.readline(), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            if not size:
                return status, body, keep

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def fuzz(port: int, requests: int, seed: int, connections: int) -> tuple[Counter[int], list[str]]:
    fuzzer, statuses, findings = Fuzzer(seed), Counter[int](), list[str]()
    left = requests

    async def work() -> None:
        nonlocal left
        connection = Connection(port)
        while left > 0:
            left -= 1
            method, path, headers, data = fuzzer.request()
            shown = f"{method} {path[:80]} {headers} {data[:300]!r}"
            for attempt in (1, 2):
                try:
                    async with asyncio.timeout(DEADLINE_S):
                        status, head, body = await connection.ask(method, path, headers, data)
                except TimeoutError:
                    findings.append(f"hang: {shown}")
                    connection.close()
                    break
                except (ConnectionError, asyncio.IncompleteReadError, OSError) as error:
                    connection.close()
                    if attempt == 2:
                        findings.append(f"cut ({error!r}): {shown}")
                    continue
                statuses[status] += 1
                wrong = fault(path, method, status, head, body)
                if wrong:
                    findings.append(f"{wrong}: {shown} -> {body[:200]!r}")
                break
        connection.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return statuses, findings


def gateway_on_a_script(folder: Path, check: Callable[[int], tuple[Counter[int], list[str]]]) -> Any:
    """Run `check` with the port of a fresh gateway."""
    script = folder / "script.jsonl"
    script.write_text(json.dumps({"text": "Hm.\n</think>\n\nA short answer to anything at all."}) + "\n")
    command = [sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--model", "m"]
    command += ["--engine", f"scripted:{script}", "--dialect", "qwen3_coder", "--log-level", "error"]
    gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        port = int(re.search(r":(\d+) ", gateway.stdout.readline())[1])  # type: ignore[index]
        return check(port)
    finally:
        gateway.terminate()
        gateway.wait(30)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--requests", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--connections", type=int, default=16)
    options = arguments.parse_args()
    # The fuzzer walks what it nests; the gateway has its own bounds.
    sys.setrecursionlimit(20_000)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        statuses, findings = gateway_on_a_script(
            Path(name), lambda port: asyncio.run(fuzz(port, options.requests, options.seed, options.connections))
        )
    kinds = Counter(re.sub(r"\d+", "N", finding.split(":")[0]) for finding in findings)
    for finding in findings[:20]:
        print(finding[:700])
    print(f"{statuses.total()} requests in {time.monotonic() - started:.0f} s")
    print("answers: " + ", ".join(f"{status} x {count}" for status, count in sorted(statuses.items())))
    print("findings: " + (", ".join(f"{kind} x {count}" for kind, count in kinds.items()) or "none"))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
