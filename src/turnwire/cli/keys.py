"""`turnwire keys`: make, list and revoke API keys.

Promise: a key is shown once, when it is made; the file holds only its hash.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from turnwire.gateway.door.keys import Key, Keyring

from turnwire.cli.inspect.operator import gateway_options

__all__ = ["keys"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FILE = click.option("--file", "path", default="keys.toml", show_default=True, help="The keys file.")


@click.group()
def keys() -> None:
    """Make, list and revoke API keys. A running gateway sees the change within a second."""


@keys.command()
@click.argument("name")
@_FILE
@click.option("--tenant", help="Keys of one tenant share turns and prefix cache.  [default: the key's name]")
@click.option("--admin", is_flag=True, help="The key may also read metrics and turn records.")
@click.option("--concurrency", type=click.IntRange(1), help="How many requests it may run at a time.")
@click.option(
    "--per-minute",
    "--requests-per-minute",
    "per_minute",
    type=click.IntRange(1),
    help="How many requests it may make a minute.",
)
@click.option("--tokens-per-day", type=click.IntRange(1), help="Its budget a day (UTC); cached prompt tokens are free.")
@click.option("--tokens-per-month", type=click.IntRange(1), help="Its budget a calendar month (UTC).")
@click.option("--priority", type=int, default=0, help="Waiting turns of a higher one are served earlier.")
@click.option("--days", type=click.FloatRange(0, 36_500, min_open=True), help="After how many days it opens nothing.")
def new(
    name: str,
    path: str,
    tenant: str | None,
    admin: bool,
    concurrency: int | None,
    per_minute: int | None,
    tokens_per_day: int | None,
    tokens_per_month: int | None,
    priority: int,
    days: float | None,
) -> None:
    """Add a key called NAME and print it, once."""
    from turnwire.gateway.door.keys import Key, hash_key, new_key

    if not _NAME.fullmatch(name):
        raise click.ClickException("A key's name has 1 to 64 letters, digits, dots, dashes or underscores.")
    if tenant and not _NAME.fullmatch(tenant):
        raise click.ClickException("A tenant's name has the same letters as a key's.")
    secret = new_key()
    key = Key(
        name=name,
        hash=hash_key(secret),
        tenant=tenant or "",
        scopes=("inference", "admin") if admin else ("inference",),
        concurrency=concurrency,
        requests_per_minute=per_minute,
        tokens_per_day=tokens_per_day,
        tokens_per_month=tokens_per_month,
        priority=priority,
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days is not None else None,
    )
    before = Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
    if before and any(known.name == name for known in _ring(path).keys):
        raise click.ClickException(f"There is already a key called {name}. Revoke it first, or choose another name.")
    _write(path, before + ("\n" if before else "") + _table(key))
    click.echo(secret)
    click.echo(f"Kept in {path} as a hash. Serve with: turnwire serve --keys {path}", err=True)


@keys.command("list")
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_keys(path: str, as_json: bool) -> None:
    """List the keys; the keys themselves are not kept."""
    import msgspec

    found = _ring(path).keys
    now = datetime.now(UTC)
    if as_json:
        rows = [{**msgspec.to_builtins(key), "expired": key.expired(now)} for key in found]
        click.echo(
            msgspec.json.format(msgspec.json.encode([{**row, "hash": row["hash"][:15]} for row in rows])).decode()
        )
        return
    for key in found:
        words = [key.name, f"tenant {key.owner}", "+".join(key.scopes)]
        words += [f"{key.concurrency} at a time"] if key.concurrency else []
        words += [f"{key.requests_per_minute} a minute"] if key.requests_per_minute else []
        words += [f"{key.tokens_per_day:,} tokens a day"] if key.tokens_per_day else []
        words += [f"{key.tokens_per_month:,} tokens a month"] if key.tokens_per_month else []
        words += [f"priority {key.priority}"] if key.priority else []
        if key.ends is not None:
            words.append(f"{'expired' if key.expired(now) else 'expires'} {key.ends:%Y-%m-%d %H:%M} UTC")
        click.echo("  ".join(words))
    if not found:
        click.echo("There are no keys; make one with: turnwire keys new NAME")


@keys.command()
@click.argument("name")
@_FILE
def revoke(name: str, path: str) -> None:
    """Remove the key called NAME: it opens nothing any more."""
    found = _ring(path).keys
    if not any(key.name == name for key in found):
        raise click.ClickException(f"There is no key called {name!r}. There are: {', '.join(k.name for k in found)}.")
    before = Path(path).read_text(encoding="utf-8")
    pieces = re.split(r"(?m)^(?=\s*\[\[\s*key\s*\]\])", before)
    mark = re.compile(rf"""(?m)^\s*name\s*=\s*["']{re.escape(name)}["']\s*(#.*)?$""")
    after = "".join(piece for piece in pieces if not mark.search(piece))
    _write(path, after)
    if any(key.name == name for key in _ring(path).keys):
        _write(path, before)
        raise click.ClickException(f"{path} is written in a way that cannot be changed here; remove the table by hand.")
    left = len(found) - 1
    click.echo(f"Revoked {name}. {left} {'key is' if left == 1 else 'keys are'} left in {path}.")


@keys.command()
@gateway_options
@click.option("--days", type=click.IntRange(1, 400), default=7, show_default=True, help="How many days back.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def usage(url: str, key: str | None, days: int, as_json: bool) -> None:
    """What each key used, asked of a running gateway."""
    from turnwire.cli.inspect.operator import key_usage

    found = key_usage(url, key, days)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    click.echo(f"{'day':10}  {'key':20} {'turns':>7} {'prompt':>12} {'cached':>12} {'output':>10}")
    for row in found.days:
        click.echo(f"{row.day}  {row.key:20} {row.turns:>7,} {row.prompt:>12,} {row.cached:>12,} {row.output:>10,}")


def _ring(path: str) -> Keyring:
    from turnwire.gateway.door.keys import Keyring, KeysError

    try:
        return Keyring.load(path)
    except KeysError as error:
        raise click.ClickException(str(error)) from None


def _table(key: Key) -> str:
    lines = ["[[key]]", f'name = "{key.name}"', f'hash = "{key.hash}"']
    lines += [f'tenant = "{key.tenant}"'] if key.tenant else []
    lines += ['scopes = ["inference", "admin"]'] if "admin" in key.scopes else []
    lines += [f"concurrency = {key.concurrency}"] if key.concurrency else []
    lines += [f"requests_per_minute = {key.requests_per_minute}"] if key.requests_per_minute else []
    lines += [f"tokens_per_day = {key.tokens_per_day}"] if key.tokens_per_day else []
    lines += [f"tokens_per_month = {key.tokens_per_month}"] if key.tokens_per_month else []
    lines += [f"priority = {key.priority}"] if key.priority else []
    lines += [f"expires = {key.expires:%Y-%m-%dT%H:%M:%S}Z"] if key.expires else []
    return "\n".join(lines) + "\n"


def _write(path: str, text: str) -> None:
    """Replace the file in one step, readable by its owner only."""
    target = Path(path)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from None
