"""What an operator sets around the APIs: HTTPS, other origins, budgets and usage by key, the model list."""

from __future__ import annotations

import json
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from tests.gateway.conftest import Client, Serve
from turnwire.cli.main import main
from turnwire.gateway.door.keys import Key, hash_key
from turnwire.gateway.door.usage import UsageLedger
from turnwire.protocols.wire import TurnFailure

SAID = {"text": "Hm.\n</think>\n\nFour."}
PAGE = "https://chat.example.com"


def keys_file(tmp_path: Path, **fields: int) -> str:
    limits = "".join(f"{name} = {value}\n" for name, value in fields.items())
    path = tmp_path / "keys.toml"
    path.write_text(
        f'[[key]]\nname = "alice"\nhash = "{hash_key("a")}"\n{limits}'
        f'[[key]]\nname = "root"\nhash = "{hash_key("r")}"\nscopes = ["inference", "admin"]\n'
    )
    return str(path)


async def ask(client: Client, key: str | None = None, **headers: str) -> aiohttp.ClientResponse:
    body = {"model": "test-model", "messages": [{"role": "user", "content": "2+2?"}], "stream": True}
    bearer = {"authorization": f"Bearer {key}"} if key else {}
    async with client.session.post(
        client.base + "/v1/chat/completions", json=body, headers={**bearer, **headers}
    ) as reply:
        await reply.read()
        return reply


async def admin(client: Client, path: str) -> Any:
    async with client.session.get(client.base + path, headers={"x-api-key": "r"}) as reply:
        assert reply.status == 200, await reply.text()
        return json.loads(await reply.read()) if reply.content_type == "application/json" else await reply.text()


# ------------------------------------------------------------------------------------------------------------- HTTPS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *names, "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )
    return cert, key


async def test_a_turn_streams_over_https(serve: Serve, certificate: tuple[str, str]) -> None:
    client = await serve(SAID, tls_cert=certificate[0], tls_key=certificate[1])
    trust = ssl.create_default_context(cafile=certificate[0])
    body = {"model": "test-model", "messages": [{"role": "user", "content": "2+2?"}], "stream": True}
    url = client.base.replace("http:", "https:") + "/v1/chat/completions"
    async with client.session.post(url, json=body, ssl=trust) as reply:
        assert reply.status == 200
        assert (await reply.text()).rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tls-cert", "CERT"], "both --tls-cert and --tls-key"),
        (["--tls-cert", "CERT", "--tls-key", "/nowhere/key.pem"], "cannot be used for HTTPS: No such file"),
        (["--tls-cert", "CERT", "--tls-key", "CERT"], "cannot be used for HTTPS"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_told(certificate: tuple[str, str], flags: list[str], words: str) -> None:
    flags = [certificate[0] if flag == "CERT" else flag for flag in flags]
    ran = CliRunner().invoke(main, ["serve", "--engine", "scripted:x", *flags])
    assert ran.exit_code == 1
    assert words in ran.output
    assert "Traceback" not in ran.output


# ------------------------------------------------------------------------------------------------------ other origins


async def test_a_listed_origin_may_ask_and_read(serve: Serve, tmp_path: Path) -> None:
    client = await serve(SAID, keys=keys_file(tmp_path), cors_origins=(PAGE,))
    asks = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
        "access-control-request-private-network": "true",
    }
    async with client.session.options(client.base + "/v1/chat/completions", headers=asks) as reply:
        assert reply.status == 204
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert reply.headers["access-control-allow-headers"] == "authorization,content-type"
        assert reply.headers["access-control-allow-private-network"] == "true"
    reply = await ask(client, "a", origin=PAGE)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "x-turnwire-prefix" in reply.headers["access-control-expose-headers"]
    refused = await ask(client, None, origin=PAGE)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, PAGE)


async def test_other_origins_get_nothing(serve: Serve, tmp_path: Path) -> None:
    client = await serve(SAID, keys=keys_file(tmp_path), cors_origins=(PAGE,))
    for origin in ("https://evil.example", "null", PAGE + ".evil.example"):
        headers = {"origin": origin, "access-control-request-method": "POST"}
        async with client.session.options(client.base + "/v1/chat/completions", headers=headers) as reply:
            assert reply.status in (401, 405)
            assert "access-control-allow-origin" not in reply.headers
        assert "access-control-allow-origin" not in (await ask(client, "a", origin=origin)).headers


async def test_a_gateway_without_keys_hears_the_listed_origin_only(serve: Serve) -> None:
    client = await serve(SAID, cors_origins=(PAGE,))
    assert (await ask(client, origin=PAGE)).status == 200
    assert (await ask(client, origin="https://evil.example")).status == 403


def test_every_origin_needs_keys(tmp_path: Path) -> None:
    config = tmp_path / "turnwire.toml"
    config.write_text('cors_origins = ["*"]\nengine = "scripted:x"\n')
    ran = CliRunner().invoke(main, ["serve", "--config", str(config)])
    assert ran.exit_code == 1
    assert "every web page" in ran.output


# ---------------------------------------------------------------------------------------------------- usage, budgets


async def test_usage_is_counted_by_key_and_outlives_the_gateway(serve: Serve, tmp_path: Path) -> None:
    fields = {"keys": keys_file(tmp_path), "usage": str(tmp_path / "usage.db")}
    client = await serve(SAID, **fields)
    assert (await ask(client, "a")).status == 200
    first = await admin(client, "/admin/usage")
    assert [(row["key"], row["turns"]) for row in first["days"]] == [("alice", 1)]
    assert first["days"][0]["output"] > 0
    assert 'turnwire_key_turns_total{key="alice"} 1.0' in await admin(client, "/metrics")
    (turn,) = (await admin(client, "/admin/turns"))["turns"]
    assert turn["key"] == "alice"
    await client.gateway.usage.close()
    again = await serve(SAID, **fields)
    assert (await ask(again, "a")).status == 200
    (row,) = (await admin(again, "/admin/usage?days=1"))["days"]
    assert (row["turns"], row["prompt"]) == (2, 2 * first["days"][0]["prompt"])
    shown = await _run(["keys", "usage", "--url", again.base, "--key", "r"])
    assert "alice" in shown
    assert shown.split()[:6] == ["day", "key", "turns", "prompt", "cached", "output"]


async def _run(arguments: list[str]) -> str:
    import asyncio

    ran = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert ran.exit_code == 0, ran.output
    return ran.output


async def test_a_key_over_its_budget_waits_for_the_next_day(serve: Serve, tmp_path: Path) -> None:
    client = await serve(SAID, keys=keys_file(tmp_path, tokens_per_day=5))
    assert (await ask(client, "a")).status == 200
    refused = await ask(client, "a")
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) <= 86_400
    assert (await ask(client, "r")).status == 200


def test_budgets_end_with_their_day_and_month() -> None:
    now = [datetime(2026, 12, 31, 23, 0, tzinfo=UTC)]
    ledger = UsageLedger(clock=lambda: now[0].timestamp())
    daily = Key(name="a", hash="", tokens_per_day=100)
    monthly = Key(name="a", hash="", tokens_per_month=150)
    ledger.count("a", prompt=1_000, cached=950, output=49)
    ledger.check(daily)
    ledger.count("a", prompt=1, cached=0, output=0)
    with pytest.raises(TurnFailure, match=r"100 tokens a day.*2027-01-01 00:00") as told:
        ledger.check(daily)
    assert told.value.retry_after == 3600
    ledger.check(monthly)
    ledger.count("b", prompt=1_000, cached=0, output=0)
    ledger.check(monthly)
    ledger.count("a", prompt=60, cached=0, output=0)
    with pytest.raises(TurnFailure, match="150 tokens a month"):
        ledger.check(monthly)
    now[0] = datetime(2027, 1, 1, tzinfo=UTC)
    ledger.check(daily)
    ledger.check(monthly)


async def test_a_changed_limit_holds_at_once(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwire.gateway.door.keys._LOOK_SECONDS", 0.0)
    client = await serve(SAID, keys=keys_file(tmp_path))
    assert (await ask(client, "a")).status == 200
    keys_file(tmp_path, tokens_per_day=1)
    assert (await ask(client, "a")).status == 429


# -------------------------------------------------------------------------------------------------------- model list


async def test_a_model_is_listed_once_and_its_aliases_apart(serve: Serve) -> None:
    client = await serve(SAID, alias=("house/large",))
    async with client.session.get(client.base + "/v1/models") as reply:
        (row,) = (await reply.json())["data"]
    assert row["id"] == "test-model"
    assert row["aliases"] == ["house/large", "anthropic/test-model", "claude-test-model"]
    async with client.session.get(client.base + "/v1/models", headers={"anthropic-version": "2023-06-01"}) as reply:
        ids = [row["id"] for row in (await reply.json())["data"]]
    assert ids == ["test-model", "house/large", "anthropic/test-model", "claude-test-model"]
