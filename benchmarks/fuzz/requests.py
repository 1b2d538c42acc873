"""Requests drawn at random: good ones of every route, broken in bytes, JSON, types, depth, numbers, Unicode, methods,
paths, headers and encodings.

Promise: a request follows from the seed and its number alone, whatever was drawn before it and in whatever order the
answers came, but for the ids that earlier answers brought.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import zlib
from collections import deque
from typing import Any

import msgspec

from benchmarks.fuzz.bodies import GOOD, IMAGES, LINES, MODELS, last_content
from benchmarks.fuzz.schemas import Schemas, place
from turnwire.gateway.routes import ROUTES, RouteRow
from turnwire.protocols.fields.table import TABLES

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE")
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
ENDINGS = (
    "/",
    "//x",
    "/../..",
    "/%2e%2e/%2e%2e/etc/passwd",
    "?limit=-1",
    "?limit=1&order=asc",
    "?limit=x&after=%00",
    "?days=31&limit=5&session=x&model=m",
    "?days=99999999999999999999",
    "/%ff",
    "/é".encode().decode("latin-1"),
    "?stream=true",
    "?stream=true&starting_after=2",
    "?stream=true&starting_after=z",
    "?include[]=reasoning.encrypted_content&include=%ff",
    "/" + "a" * 3000,
    "?order=sideways",
    "/%0d%0aset-cookie:a",
    "?client_version=0.1&before_id=x&after_id=m",
    "?model=m",
    "?model=h&worker=nobody&patience=x",
    "?model=nobody&engine=vllm:http://127.0.0.1:9",
    "?model=m&engine=nonsense:",
    "?model=m&engine=vllm:http://127.0.0.1:9",
    "?model=m&engine=%00",
)
# What fills the {name} of a path, next to ids that answers brought.
INSERTED = (
    "resp_x",
    "m",
    "x" * 300,
    "%00",
    "%ff",
    "..",
    "%2e%2e",
    "console.css",
    "icon.svg",
    "é".encode().decode("latin-1"),
)
IDS = 64
BODIES = tuple(row for row in ROUTES if row.path in GOOD and row.method == "POST")
TURNS = tuple(row for row in BODIES if row.streams)


GZIP = b"\x1f\x8b\x08"


class Request(msgspec.Struct, frozen=True):
    """One request; `route` is the row of the table of routes that it was made for."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    route: str

    @property
    def plain(self) -> bytes:
        """The body as it was before it was compressed."""
        return zlib.decompressobj(31).decompress(self.body) if self.body.startswith(GZIP) else self.body

    def __str__(self) -> str:
        return f"{self.method} {self.path[:80]} {self.headers} {self.body[:2000]!r}"


class Fuzzer:
    """Breaks good requests."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.dice = random.Random(seed)
        self.schemas = Schemas(self.dice, self.value)
        self.ids: deque[str] = deque(maxlen=IDS)

    def begin(self, number: int) -> None:
        """What is drawn from here on is the request of this number."""
        self.dice.seed(f"{self._seed}/{number}")

    def learn(self, body: bytes) -> None:
        """Keep the id of an answer, so that later requests can name it."""
        at = body.find(b'"resp_')
        if at >= 0 and b'"' in body[at + 1 : at + 80]:
            self.ids.append(body[at + 1 : body.index(b'"', at + 1)].decode("ascii", "replace"))

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

    def _places(self, value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        found = [path] if path else []
        items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            found += self._places(inner, (*path, key)) if len(path) < 40 else []
        return found

    def broken(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with one to three places changed."""
        dice = self.dice
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            places = self._places(body)
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

    def body(self, path: str) -> dict[str, Any]:
        """A body for a path: whole, with schemas of its own, with other fields, or broken."""
        dice = self.dice
        body = copy.deepcopy(GOOD[path])
        if "model" in body:
            body["model"] = dice.choice(MODELS)
        turns = path.startswith(("/v1/messages", "/v1/chat", "/v1/responses"))
        if turns:
            parts = last_content(path, body, f"Go on, say-{dice.randrange(LINES)}.")
            if dice.random() < 0.03:
                image = next(image for start, image in IMAGES.items() if path.startswith(start))
                parts.append(image)
            if dice.random() < 0.3:
                place(path, body, self.schemas, dice)
        if path == "/v1/responses":
            self._stored(body)
        if path == "/v1/chat/completions" and dice.random() < 0.2:
            body["n"] = dice.choice((1, 2, 3))
        if "stream" in body or path == "/v1/completions":
            body["stream"] = dice.random() < 0.6
            if dice.random() < (0.3 if body["stream"] else 0.02):
                body["stream_options"] = {"include_usage": dice.random() < 0.7}
        names = [name for name in TABLES[_table(path)] if "." not in name]
        for _ in range(dice.choice((0, 0, 0, 1, 2))):
            body[dice.choice(names)] = self.value()
        return body if dice.random() < 0.6 else self.broken(body)

    def _stored(self, body: dict[str, Any]) -> None:
        """Sometimes in the background, sometimes from where another response ended."""
        dice = self.dice
        body["background"] = dice.random() < 0.1
        if dice.random() < 0.15:
            body["previous_response_id"] = self._known(dice.randrange(IDS + 1))
        if dice.random() < 0.3:
            body["store"] = False

    def _known(self, place: int) -> str:
        """The id at a place among those that answers brought; one that nobody has where there are not so many."""
        return self.ids[place] if place < len(self.ids) else "resp_x"

    def path(self, row: RouteRow) -> str:
        """A path that fits a row."""
        drawn = self.dice.randrange(len(INSERTED) + IDS)
        inserted = INSERTED[drawn] if drawn < len(INSERTED) else self._known(drawn - len(INSERTED))
        head, brace, rest = row.path.partition("{")
        return f"{head}{inserted}{rest.partition('}')[2]}" if brace else head

    def request(self) -> Request:
        """Any request."""
        dice = self.dice
        roll = dice.random()
        row = dice.choice(ROUTES if roll < 0.25 else BODIES if roll < 0.5 else TURNS)
        method, path, data = row.method, self.path(row), b""
        if row.path in GOOD and method == "POST" and dice.random() < 0.88:
            body = self.body(row.path)
            data = json.dumps(body, ensure_ascii=dice.random() < 0.8).encode("utf-8", "surrogatepass")
            if dice.random() < 0.002:
                data += b" " * (1 << 20)
        elif row.path in GOOD and method == "POST":
            data = dice.choice(RAW)
            if dice.random() < 0.5:
                good = bytearray(json.dumps(GOOD[row.path]).encode())
                for _ in range(dice.randrange(1, 6)):
                    good[dice.randrange(len(good))] = dice.randrange(256)
                data = bytes(good[: dice.randrange(1, len(good))]) if dice.random() < 0.4 else bytes(good)
        else:
            method = row.method if dice.random() < 0.7 else dice.choice(METHODS)
            data = b"" if method in ("GET", "HEAD", "TRACE", "OPTIONS") else dice.choice(RAW[:12])
            if dice.random() < 0.6:
                path += dice.choice(ENDINGS)
        headers = self._headers()
        if dice.random() < 0.02:
            data = gzip.compress(data, mtime=0)
            headers.append(("content-encoding", "gzip"))
        return Request(method, path, tuple(headers), data, f"{row.method} {row.path}")

    def _headers(self) -> list[tuple[str, str]]:
        dice = self.dice
        if dice.random() < 0.75:
            return []
        encodings = ("gzip", "zstd", "br", "deflate", "lzma", "gzip,gzip,gzip,gzip,gzip")
        kinds = ("text/plain", "application/xml", "multipart/form-data; boundary=x")
        drawn = [
            ("content-encoding", dice.choice(encodings)),
            ("content-type", dice.choice(kinds)),
            ("anthropic-version", dice.choice(("2023-06-01", "1999-01-01", ""))),
            ("anthropic-beta", "x" * dice.choice((1, 4000))),
            ("authorization", dice.choice(("Bearer", "Bearer x", "Basic eDp5", "\xff"))),
            ("x-claude-code-session-id", "s" * dice.choice((1, 5000))),
            ("x-turnwire-dispatch", dice.choice(("1", "maybe"))),
            ("x-turnwire-deadline", dice.choice(("5", "-1", "nan", "1e400", "x"))),
            ("x-dynamo-request-priority", dice.choice(("100", "9" * 40, "x"))),
            ("accept", "application/xml"),
            ("traceparent", "00-zz"),
            ("expect", "100-continue"),
            ("origin", dice.choice(("http://127.0.0.1", "http://evil.example", "null"))),
        ]
        return dice.sample(drawn, dice.randrange(1, 4))


def _table(path: str) -> str:
    """The name of the table of fields that a route's body has."""
    (row,) = [row for row in ROUTES if row.path == path and row.body is not None]
    return {"Chat": "Chat Completions"}.get(str(row.body), str(row.body))
