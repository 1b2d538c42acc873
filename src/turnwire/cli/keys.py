"""`turnwire keys`: make API keys."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

__all__ = ["keys"]


@click.group()
def keys() -> None:
    """Make and list API keys."""


@keys.command()
@click.argument("name")
@click.option("--file", "path", default="keys.toml", show_default=True, help="The keys file; made if missing.")
@click.option("--tenant", help="Keys of one tenant share turns and prefix cache.  [default: the key's name]")
@click.option("--admin", is_flag=True, help="The key may also read metrics and turn records.")
@click.option("--concurrency", type=int, help="How many requests it may run at a time.")
@click.option("--per-minute", type=int, help="How many requests it may make a minute.")
@click.option("--priority", type=int, default=0, help="Waiting turns of a higher one are served earlier.")
def new(
    name: str,
    path: str,
    tenant: str | None,
    admin: bool,
    concurrency: int | None,
    per_minute: int | None,
    priority: int,
) -> None:
    """Add a key called NAME and print it, once."""
    from turnwire.gateway.door.keys import Keyring, KeysError, hash_key, new_key

    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise click.ClickException("A key's name has 1 to 64 letters, digits, dots, dashes or underscores.")
    secret = new_key()
    lines = ["[[key]]", f'name = "{name}"', f'hash = "{hash_key(secret)}"']
    if tenant:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", tenant):
            raise click.ClickException("A tenant's name has the same letters as a key's.")
        lines.append(f'tenant = "{tenant}"')
    if admin:
        lines.append('scopes = ["inference", "admin"]')
    if concurrency:
        lines.append(f"concurrency = {concurrency}")
    if per_minute:
        lines.append(f"requests_per_minute = {per_minute}")
    if priority:
        lines.append(f"priority = {priority}")
    file = Path(path)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(before + ("\n" if before else "") + "\n".join(lines) + "\n")
    try:
        Keyring.load(path)
    except KeysError as error:
        file.write_text(before, encoding="utf-8")
        raise click.ClickException(str(error)) from None
    click.echo(secret)
    click.echo(f"Kept in {path} as a hash. Serve with: turnwire serve --keys {path}", err=True)
