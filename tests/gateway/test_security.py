"""The field's known holes, one by one, each with a test that it is not here."""

from __future__ import annotations

import ast
import json
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

import turnwire
from turnwire.cli.main import main
from turnwire.engines.guided.schema_check import faults
from turnwire.gateway.door.hosts import is_from_here
from turnwire.gateway.door.image_urls import forbidden_reference
from turnwire.gateway.door.keys import hash_key
from turnwire.gateway.routes import ROUTES, access_of
from turnwire.parsers import Parser, dialect_names, resolve
from turnwire.turns import Tool

from .conftest import Client, Serve
from .test_messages import MIXED, next_request, records, request
from .test_websocket import Socket, create

SOURCE = Path(turnwire.__file__).parent
KEYS = {"alice": "tw-alice-secret", "bob": "tw-bob-secret", "root": "tw-root-secret"}


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """Two tenants and an operator."""
    rows = []
    for name, secret in KEYS.items():
        scopes = '["admin"]' if name == "root" else '["inference"]'
        rows.append(f'[[key]]\nname = "{name}"\nhash = "{hash_key(secret)}"\nscopes = {scopes}\n')
    path = tmp_path / "keys.toml"
    path.write_text("\n".join(rows))
    return str(path)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


async def status_of(client: Client, method: str, path: str, **headers: str) -> int:
    # Written by hand: a well-behaved client would tidy the path.
    url = aiohttp.client.URL(client.base + path, encoded=True)
    async with client.session.request(method, url, headers=headers, allow_redirects=False) as answer:
        await answer.read()
        return answer.status


# ------------------------------------------------------------------------------------------ code from the model's text


def test_nothing_in_the_source_turns_text_into_code() -> None:
    forbidden = {"eval", "exec", "__import__"}
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in forbidden, f"{path}:{node.lineno}"
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & modules, path


def test_a_call_written_as_code_stays_text_in_every_dialect(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    attack = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    tool = Tool(name="Bash", schema={"type": "object", "properties": {"command": {"type": "string"}}})
    for name in dialect_names():
        for text in (
            f"[Bash(command={attack})]",
            f"```tool_code\nBash(command={attack})\n```",
            f'<tool_call>\n{{"name": "Bash", "arguments": {attack}}}\n</tool_call>',
            f"<tool_call>\n<function=Bash>\n<parameter=command>\n{attack}\n</parameter>\n</function>\n</tool_call>",
            attack,
        ):
            parser = Parser(resolve(name), (tool,))
            parser.feed(text)
            parser.finish("stop")
    assert not canary.exists()


# --------------------------------------------------------------------------------------------------------- templates


async def test_templates_in_messages_are_text(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, record=str(tmp_path / "r"))
    attack = "{{ 7 * 191 }} {% for c in ().__class__.__base__.__subclasses__() %}{{ c }}{% endfor %}"
    for path, body in (
        ("/v1/messages", request(stream=False, system=attack, messages=[{"role": "user", "content": attack}])),
        ("/v1/chat/completions", {"model": "test-model", "messages": [{"role": "user", "content": attack}]}),
        ("/v1/responses", {"model": "test-model", "input": attack, "instructions": attack}),
    ):
        status, _ = await client.post(path, body)
        assert status == 200
    for record in records(tmp_path / "r"):
        assert attack in record["prompt_text"]
        assert "1337" not in record["prompt_text"]


async def test_a_request_brings_no_template_and_its_arguments_cannot_hide_the_conversation(
    serve: Serve, tmp_path: Path
) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, record=str(tmp_path / "r"))
    evil = "{{ 7 * 191 }}"
    body = {
        "model": "test-model",
        "messages": [{"role": "user", "content": "the real question"}],
        "chat_template": evil,
        "chat_template_kwargs": {
            "chat_template": evil,
            "messages": [{"role": "user", "content": "another question"}],
            "__turnwire_budget__": 10**15,
            "raise_exception": "x",
            "range": "x",
            "tools": [{"name": "evil"}],
        },
    }
    status, _ = await client.post("/v1/chat/completions", body)
    assert status == 200
    prompt = records(tmp_path / "r")[0]["prompt_text"]
    assert "the real question" in prompt
    assert "another question" not in prompt
    assert "1337" not in prompt
    assert "evil" not in prompt


async def test_a_template_that_runs_away_is_a_refusal(serve: Serve, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for m in messages %}{{ m.content }}{% if 'run away' in m.content %}{% for i in range(90000) %}"
        "{% for j in range(90000) %}{% endfor %}{% endfor %}{% endif %}{% endfor %}"
    )
    client = await serve({"text": "Hi."}, template=str(template), template_steps=200_000)
    messages = [{"role": "user", "content": "run away"}]
    status, error = await client.post("/v1/messages", request(stream=False, tools=[], messages=messages))
    assert status == 400
    assert "template" in error["error"]["message"]


# ------------------------------------------------------------------------------------------------ regular expressions


@pytest.mark.timeout(60)
def test_a_clients_pattern_is_never_run_here() -> None:
    # Were it run, this would take longer than anybody waits.
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}}}
    assert faults({"a": "a" * 80}, schema) == ()


@pytest.mark.timeout(100)
def test_hostile_output_takes_linear_time_in_every_dialect() -> None:
    # A quadratic reader of any of these would run for minutes.
    hostile = ("<" * 20_000, "<tool_call>" * 2_000, '{"a":' * 4_000, '"\\"' * 6_000, "<think>" * 3_000, "[" * 20_000)
    tool = Tool(name="Bash", schema={"type": "object", "properties": {"command": {"type": "string"}}})
    for name in dialect_names():
        for text in hostile:
            parser = Parser(resolve(name), (tool,))
            for at in range(0, len(text), 997):
                parser.feed(text[at : at + 997])
            parser.finish("stop")


# -------------------------------------------------------------------------------------------------- keys and the door


async def test_no_header_but_the_key_opens_the_door(serve: Serve, keys: str) -> None:
    client = await serve({"text": "Hi."}, keys=keys)
    for headers in (
        {},
        {"host": "localhost"},
        {"host": "127.0.0.1"},
        {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1"},
        {"x-forwarded-host": "localhost", "x-forwarded-proto": "https"},
        {"x-original-url": "/health", "x-rewrite-url": "/health"},
        {"x-http-method-override": "GET"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer ' OR '1'='1"},
        {"authorization": "Bearer " + hash_key(KEYS["alice"])},
        {"authorization": f"Basic {KEYS['alice']}"},
        {"x-api-key": KEYS["alice"][:-1]},
        {"x-api-key": KEYS["alice"] + "x"},
        {"cookie": f"authorization={KEYS['alice']}"},
    ):
        assert await status_of(client, "POST", "/v1/messages", **headers) == 401, headers
    assert await status_of(client, "POST", f"/v1/messages?api_key={KEYS['alice']}") == 401
    for path in (
        "/v1/models",
        "/v1/responses/x",
        "/openapi.json",
        "/metrics",
        "/admin/turns",
        "/v1/nothing",
        "/x/../health",
    ):
        assert await status_of(client, "GET", path) == 401, path
    for path in ("/", "/health", "/ready", "/api/hello"):
        assert await status_of(client, "GET", path) == 200
    assert await status_of(client, "GET", "/v1/models", **bearer("alice")) == 200


async def test_strangers_learn_nothing_of_a_model_by_asking_whether_it_is_ready(serve: Serve, keys: str) -> None:
    client = await serve({"text": "Hi."}, keys=keys)
    told = []
    for model in ("test-model", "nope"):
        for headers in ({}, {"x-api-key": "wrong"}):
            async with client.session.get(f"{client.base}/ready", params={"model": model}, headers=headers) as answer:
                told.append((answer.status, await answer.json()))
    assert told[0][0] == 401
    assert told[:2] == told[2:]
    for name in ("alice", "root"):
        assert await status_of(client, "GET", "/ready?model=test-model", **bearer(name)) == 200
        assert await status_of(client, "GET", "/ready?model=nope", **bearer(name)) == 404


async def test_only_admin_keys_see_admin_routes_however_the_path_is_written(serve: Serve, keys: str) -> None:
    client = await serve({"text": "Hi."}, keys=keys)
    for path in ("/metrics", "/admin/turns", "/%6detrics", "/admin%2Fturns", "/%61dmin/turns"):
        assert await status_of(client, "GET", path) == 401, path
        assert await status_of(client, "GET", path, **bearer("alice")) == 403, path
        assert await status_of(client, "GET", path, **bearer("root")) == 200, path
    for path in ("//metrics", "/metrics/", "/METRICS", "/x/../metrics", "/./metrics", "/metrics;x", "/ADMIN/turns"):
        assert await status_of(client, "GET", path, **bearer("alice")) in (403, 404), path
    assert await status_of(client, "POST", "/v1/messages", **bearer("root")) == 403


def test_who_may_use_a_path_is_what_the_table_of_routes_says() -> None:
    files = {"/console", "/console/{file}"}
    assert {row.path for row in ROUTES if row.access == "open"} == {"/", "/api/hello", "/health", "/ready"} | files
    assert {row.path for row in ROUTES if row.access == "admin"} == {
        row.path for row in ROUTES if row.path == "/metrics" or row.path.startswith("/admin/")
    }
    assert access_of("/no/such/path") == "inference"


def test_an_open_gateway_stays_on_its_machine() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "example.com"):
        result = CliRunner().invoke(main, ["serve", "--host", host, "--engine", "scripted:none"])
        assert result.exit_code == 1
        assert "--allow-anonymous" in result.output


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ({"host": "127.0.0.1:8000"}, True),
        ({"host": "localhost"}, True),
        ({"host": "[::1]:8000"}, True),
        ({"host": "app.localhost:1"}, True),
        ({}, True),
        ({"host": "named.example"}, True),
        ({"host": "evil.example"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "localhost.evil.example"}, False),
        ({"host": "10.0.0.1"}, False),
        ({"host": "localhost", "origin": "http://localhost:3000"}, True),
        ({"host": "localhost", "origin": "vscode-webview://abc"}, True),
        ({"host": "localhost", "origin": "https://evil.example"}, False),
        ({"host": "localhost", "origin": "null"}, False),
    ],
)
def test_names_an_open_gateway_answers_to(headers: dict[str, str], known: bool) -> None:
    assert is_from_here(headers, frozenset({"named.example"})) is known


async def test_no_web_page_can_use_an_open_gateway(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    body = json.dumps(request(stream=False)).encode()
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        async with client.session.post(client.base + "/v1/messages", data=body, headers=headers) as answer:
            assert answer.status == 403
            assert (await answer.json())["type"] == "error"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.session.ws_connect(client.base + "/v1/responses", headers=headers)
        assert refused.value.status == 403


async def test_no_other_origin_is_ever_allowed_in(serve: Serve, keys: str) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, keys=keys)
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for method in ("OPTIONS", "POST"):
        url = client.base + "/v1/chat/completions"
        body = json.dumps({"model": "test-model", "messages": [{"role": "user", "content": "Hi"}]})
        async with client.session.request(method, url, data=body, headers=asked | bearer("alice")) as answer:
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
            assert answer.status == (405 if method == "OPTIONS" else 200)


async def test_a_websocket_needs_a_key_like_everything_else(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(f'[[key]]\nname = "a"\nhash = "{hash_key("tw-a")}"\nconcurrency = 1\n')
    client = await serve({"text": "x\n</think>\n\nHi."}, keys=str(path))
    for headers in ({}, {"authorization": "Bearer tw-b"}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.session.ws_connect(client.base + "/v1/responses", headers=headers)
        assert refused.value.status == 401
    async with client.session.ws_connect(client.base + "/v1/responses", headers={"x-api-key": "tw-a"}) as opened:
        # The connection is the key's one place; turns on it are not refused for that.
        assert (await Socket(opened).ask(create()))[-1]["type"] == "response.completed"
        status, _ = await client.post("/v1/responses", {"model": "test-model", "input": "Hi"}, **{"x-api-key": "tw-a"})
        assert status == 429


# ------------------------------------------------------------------------------------------------- stores and tenants


@pytest.mark.parametrize("stored", ["memory", "sqlite"])
async def test_tenants_share_no_response_thread_or_item(serve: Serve, keys: str, tmp_path: Path, stored: str) -> None:
    store = f"sqlite:{tmp_path / 's.db'}" if stored == "sqlite" else "memory"
    client = await serve({"text": "Hm.\n</think>\n\nIt is 4711."}, keys=keys, store=store, record=str(tmp_path / "r"))
    body = {"model": "test-model", "input": "Hi", "store": True}
    _, response = await client.post("/v1/responses", body, **bearer("alice"))
    one = f"/v1/responses/{response['id']}"
    item = response["output"][-1]["id"]
    for method, path in (("GET", one), ("GET", one + "/input_items"), ("POST", one + "/cancel"), ("DELETE", one)):
        assert await status_of(client, method, path, **bearer("bob")) == 404
    again = body | {"previous_response_id": response["id"]}
    status, error = await client.post("/v1/responses", again, **bearer("bob"))
    assert (status, error["error"]["code"]) == (400, "previous_response_not_found")
    status, _ = await client.post("/v1/responses", again, **bearer("alice"))
    assert status == 200
    reference = [{"type": "item_reference", "id": item}, {"role": "user", "content": "And?"}]
    for name in ("bob", "alice"):
        await client.post("/v1/responses", body | {"input": reference}, **bearer(name))
    *_, bobs, alices = records(tmp_path / "r")
    assert "4711" not in bobs["prompt_text"]
    assert "4711" in alices["prompt_text"]
    _, message = await client.post("/v1/messages", request(stream=False, thread={"type": "create"}), **bearer("alice"))
    link = {"type": "continue", "previous_message_id": message["id"]}
    follow = {
        "model": "test-model",
        "max_tokens": 50,
        "thread": link,
        "messages": [{"role": "user", "content": "And?"}],
    }
    status, error = await client.post("/v1/messages", follow, **bearer("bob"))
    assert (status, error["error"]["details"]["error_code"]) == (404, "thread_not_found")
    assert await status_of(client, "GET", one, **bearer("alice")) == 200


async def test_a_turn_is_never_replayed_to_another_tenant(serve: Serve, keys: str, tmp_path: Path) -> None:
    """Neither by its seal nor by its call ids: what another tenant's model thought stays unsaid."""
    secret = MIXED.replace("First I look.", "The secret is 4711.")
    settings: dict[str, Any] = {"keys": keys, "seal_key": "a key for tests only", "record": str(tmp_path / "r")}
    client = await serve({"text": secret}, {"text": "Done.\n</think>\n\nSeven."}, **settings)
    _, message = await client.post("/v1/messages", request(stream=False), **bearer("alice"))
    for block in message["content"]:
        if block["type"] == "thinking":
            block["thinking"] = ""
    for name in ("bob", "alice"):
        status, _ = await client.post("/v1/messages", next_request(message), **bearer(name))
        assert status == 200
    _, bobs, alices = records(tmp_path / "r")
    assert "4711" not in bobs["prompt_text"]
    assert "4711" in alices["prompt_text"]


async def test_a_changed_seal_is_told_and_not_believed(serve: Serve, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"seal_key": "a key for tests only", "record": str(tmp_path / "r")}
    lines = ({"text": MIXED}, {"text": "Done.\n</think>\n\nSeven."})
    client = await serve(*lines, **settings)
    _, message = await client.post("/v1/messages", request(stream=False))
    # Another gateway with the same key and no store: only the seals speak.
    client = await serve(*lines, **settings)
    for block in message["content"]:
        if "signature" in block:
            seal = block["signature"]
            middle = len(seal) // 2
            block["signature"] = seal[:middle] + ("A" if seal[middle] != "A" else "B") + seal[middle + 1 :]
    status, _ = await client.post("/v1/messages", next_request(message))
    assert status == 200
    record = records(tmp_path / "r")[-1]
    assert any(note.startswith("replay.seal") for note in record["notes"])


@pytest.mark.parametrize(
    "wanted",
    [
        "' OR 1=1 --",
        "x'; DROP TABLE entries; --",
        "../../../../etc/passwd",
        "%2e%2e%2fkeys.toml",
        "\x00",
        "resp_" + "x" * 5000,
    ],
)
async def test_ids_are_only_ids(serve: Serve, tmp_path: Path, wanted: str) -> None:
    path = tmp_path / "s.db"
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, store=f"sqlite:{path}")
    _, response = await client.post("/v1/responses", {"model": "test-model", "input": "Hi", "store": True})
    quoted = aiohttp.client.URL(client.base).joinpath("v1", "responses", wanted.replace("/", "%2F"))
    for method in ("GET", "DELETE"):
        async with client.session.request(method, quoted) as answer:
            assert answer.status == 404
            assert (await answer.json())["error"]["type"] == "invalid_request_error"
    status, _ = await client.post(
        "/v1/responses", {"model": "test-model", "input": "Hi", "previous_response_id": wanted}
    )
    assert status == 400
    assert await status_of(client, "GET", f"/v1/responses/{response['id']}") == 200
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT COUNT(*) FROM entries").fetchone()[0] == 1


async def test_records_hold_no_key(serve: Serve, keys: str, tmp_path: Path) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, keys=keys, record=str(tmp_path / "r"))
    await client.post("/v1/messages", request(stream=False), **bearer("alice"))
    await client.post("/v1/messages", request(stream=False), **{"x-api-key": KEYS["alice"]})
    assert len(records(tmp_path / "r")) == 2
    assert KEYS["alice"] not in (tmp_path / "r" / "turns.jsonl").read_text()


# --------------------------------------------------------------------------------------------------------- references


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://localhost/x",
        "http://10.1.2.3/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://[fd00::1]/x",
        "http://2130706433/x",
        "http://0x7f.1/x",
        "http://127.1/x",
        "http://0/x",
        "http://metadata.google.internal/x",
        "http://router.local/x",
        "http://intranet/x",
        "http://user:pass@example.com/x",
        "http://example.com\\@127.0.0.1/x",
        "file:///etc/passwd",
        "ftp://example.com/x",
        "gopher://example.com/x",
        "http://",
        "http://[::1",
        "//example.com/x",
    ],
)
def test_references_to_private_places_are_refused_even_where_references_are_allowed(url: str) -> None:
    assert forbidden_reference(url, allowed=True) is not None


def test_references_to_public_places_need_leave() -> None:
    assert forbidden_reference("https://example.com/cat.png", allowed=True) is None
    assert forbidden_reference("https://93.184.216.34/cat.png", allowed=True) is None
    assert forbidden_reference("https://example.com/cat.png", allowed=False) is not None
