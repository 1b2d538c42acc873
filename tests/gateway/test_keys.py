"""Keys: hashed, compared in full, denied by default, friendly when the file is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import MutableMapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from turnwire.cli.main import main
from turnwire.gateway.apis.refusals import refusal
from turnwire.gateway.door import keys
from turnwire.gateway.door.guard import Guard, KeyUse
from turnwire.gateway.door.keys import ANONYMOUS, Key, Keyring, KeysError, hash_key, new_key, presented, ranked
from turnwire.protocols.context import PRIORITY_BOUND
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Conversation, TurnContext


def test_without_keys_everybody_is_anonymous() -> None:
    assert not Keyring()
    assert Keyring().find(None) is ANONYMOUS
    assert Keyring().find("anything") is ANONYMOUS


def test_with_keys_only_their_owners_are_known() -> None:
    secret = new_key()
    ring = Keyring([Key(name="a", hash=hash_key(secret)), Key(name="b", hash=hash_key("other"), tenant="team")])
    assert ring.find(secret).owner == "a"  # type: ignore[union-attr]
    assert ring.find("other").owner == "team"  # type: ignore[union-attr]
    for wrong in (None, "", secret[:-1], secret + "x", hash_key(secret)):
        assert ring.find(wrong) is None


def test_every_hash_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = keys.hmac.compare_digest
    monkeypatch.setattr(keys.hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    Keyring([Key(name=str(i), hash=hash_key(str(i))) for i in range(5)]).find("0")
    assert len(compared) == 5


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"authorization": "Bearer k"}, "k"),
        ({"authorization": "bearer  k "}, "k"),
        ({"x-api-key": "k"}, "k"),
        ({"authorization": "Basic k"}, None),
        ({"authorization": "Bearer "}, None),
        ({}, None),
    ],
)
def test_both_headers_are_read(headers: dict[str, str], expected: str | None) -> None:
    assert presented(headers) == expected


def test_a_keys_file_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    table = f'[[key]]\nname = "ci"\nhash = "{hash_key("s")}"\nscopes = ["inference", "admin"]\nconcurrency = 4\n'
    path.write_text(table)
    key = Keyring.load(str(path)).find("s")
    assert key is not None
    assert (key.scopes, key.concurrency) == (("inference", "admin"), 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "turnwire keys new"),
        ("[[key", "cannot be read"),
        ('[[key]]\nname = "a"\nhash = "plain"', "no usable hash"),
        ('[[key]]\nname = "a"\nsecret = "x"', "cannot be read"),
        ("".join(f'[[key]]\nname = "a"\nhash = "{hash_key(c)}"\n' for c in "xy"), "same name"),
    ],
)
def test_unusable_files_are_explained(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "keys.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KeysError, match=message):
        Keyring.load(str(path))


def test_a_keys_priority_stands_above_its_requests_own() -> None:
    def asked(wish: int, rank: int) -> int:
        conversation = Conversation(model="m", messages=(), context=TurnContext(priority=wish))
        return ranked(conversation, Key(name="k", hash="", priority=rank)).context.priority

    assert asked(PRIORITY_BOUND, 0) == PRIORITY_BOUND
    assert asked(-PRIORITY_BOUND, 1) > asked(PRIORITY_BOUND - 1, 0)
    assert asked(PRIORITY_BOUND - 1, -1) < asked(-PRIORITY_BOUND + 1, 0)
    assert asked(5, 1) > asked(4, 1)


def test_the_command_writes_what_the_gateway_reads(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.toml")
    limits = ["--tenant", "team", "--admin", "--concurrency", "2", "--per-minute", "60", "--priority", "3"]
    result = CliRunner().invoke(main, ["keys", "new", "ci", "--file", path, *limits])
    assert result.exit_code == 0
    found = Keyring.load(path).find(result.output.splitlines()[0])
    assert found is not None
    assert (found.owner, found.scopes, found.concurrency) == ("team", ("inference", "admin"), 2)
    assert (found.requests_per_minute, found.priority) == (60, 3)
    assert Path(path).stat().st_mode & 0o077 == 0


def test_who_waits_as_long_as_told_is_let_in() -> None:
    now = [0.0]
    use = KeyUse(Key(name="a", hash=hash_key("x"), requests_per_minute=30), clock=lambda: now[0])
    for _ in range(30):
        use.ask()
    for _ in range(50):
        now[0] += 0.013
        with pytest.raises(TurnFailure) as refused:
            use.ask()
        told = re.search(r"try again in ([\d.]+)s", refused.value.message)
        assert told is not None
        now[0] += float(told[1])
        use.ask()


def test_a_keys_time_ends_in_any_zone() -> None:
    now = datetime.now(UTC)
    ring = Keyring(
        [
            Key(name="old", hash=hash_key("old"), expires=now - timedelta(seconds=1)),
            Key(name="new", hash=hash_key("new"), expires=now + timedelta(days=1)),
            Key(name="naive", hash=hash_key("naive"), expires=(now - timedelta(seconds=1)).replace(tzinfo=None)),
        ]
    )
    assert [ring.find(secret) for secret in ("old", "new", "naive")] == [*ring.keys]
    assert [key.expired(now) for key in ring.keys] == [True, False, True]
    zoned = datetime(2026, 11, 16, 5, 36, tzinfo=timezone(timedelta(hours=2)))
    assert f"{Key(name='zoned', hash='', expires=zoned).ends:%Y-%m-%d %H:%M}" == "2026-11-16 03:36"


async def test_a_refused_key_is_told_why_and_leaves_a_line_without_the_key(caplog: pytest.LogCaptureFixture) -> None:
    ended = datetime(2025, 11, 16, 3, 36, tzinfo=UTC)
    ring = Keyring([Key(name="old", hash=hash_key("tw-secret-old"), expires=ended)])
    sent: list[MutableMapping[str, Any]] = []

    async def unused(*_: Any) -> Any:
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    guard = Guard(unused, keys=ring, refuse=refusal)
    caplog.set_level("INFO", "turnwire.gateway")
    for secret, path in (("tw-secret-old", "/v1/messages"), ("tw-secret-other", "/v1/messages\nforged " + "x" * 999)):
        headers = [(b"x-api-key", secret.encode())]
        await guard({"type": "http", "path": path, "headers": headers}, unused, send)
    error = {"type": "authentication_error", "message": "This API key expired on 2025-11-16 03:36 UTC."}
    assert sent[0]["status"] == 401
    assert json.loads(sent[1]["body"])["error"] == error
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "refused /v1/messages authentication: This API key expired on 2025-11-16 03:36 UTC."
    assert lines[1].startswith("refused /v1/messages\\nforged xxx")
    assert lines[1].endswith("xxx authentication: This API key is not known here.")
    assert len(lines) == 2
    assert len(lines[1]) < 200
    assert not any("secret" in line for line in lines)


def test_a_changed_file_is_read_again_and_an_empty_one_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_LOOK_SECONDS", 0.0)
    path = tmp_path / "keys.toml"
    first, second = (f'[[key]]\nname = "{name}"\nhash = "{hash_key(name)}"\n' for name in ("one", "two"))
    path.write_text(first)
    ring = Keyring.load(str(path))
    assert (ring.find("one") is not None, ring.find("two")) == (True, None)
    path.write_text(first + second)
    assert ring.find("two") is not None
    path.write_text("broken [")
    assert ring.find("two") is not None, "an unreadable file changes nothing"
    path.write_text("# no keys\n")
    assert (ring.find("one"), ring.find("two"), ring.find(None)) == (None, None, None)
    path.unlink()
    assert ring.find("one") is None
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    assert bool(Keyring.load(str(empty)))
    assert Keyring.load(str(empty)).find(None) is None


def test_keys_are_listed_and_revoked(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    file = ["--file", str(path)]
    run = CliRunner().invoke
    secret = run(main, ["keys", "new", "alice", *file, "--days", "30", "--per-minute", "9"]).output.splitlines()[0]
    run(main, ["keys", "new", "bob", *file, "--admin"])
    again = run(main, ["keys", "new", "bob", *file])
    assert again.exit_code == 1
    assert "There is already a key called bob. Revoke it first, or choose another name." in again.output
    assert path.stat().st_mode & 0o777 == 0o600
    shown = run(main, ["keys", "list", *file]).output
    assert re.search(r"alice  tenant alice  inference  9 a minute  expires \d{4}-", shown)
    assert "bob  tenant bob  inference+admin" in shown
    assert secret not in shown
    assert "Revoked alice. 1 key is left" in run(main, ["keys", "revoke", "alice", *file]).output
    ring = Keyring.load(str(path))
    assert ([key.name for key in ring.keys], ring.find(secret)) == (["bob"], None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "There are: bob" in run(main, ["keys", "revoke", "alice", *file]).output
