"""Engines under one name: `dns+http://NAME:PORT` means a worker at every address that the name resolves to.

Promise: addresses come in a stable order; a name that does not resolve is an error that says which; any other spec
stays as it is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

from turnwire.engines.spec import SpecError

__all__ = ["each_address", "one_address"]

_MARK = "dns+"


def one_address(text: str) -> str:
    """The spec without the mark: what each of its workers is, but for the address."""
    return text.replace(_MARK, "", 1)


async def each_address(texts: Sequence[str]) -> tuple[str, ...]:
    """The specs, each name with the mark replaced by its addresses."""
    found: list[str] = []
    for text in texts:
        found += await _addresses(text) if _MARK in text else [text]
    return tuple(dict.fromkeys(found))


async def _addresses(text: str) -> list[str]:
    kind, _, address = text.rpartition(_MARK)
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.hostname:
        raise SpecError(f"{text}: write {_MARK}http://NAME:PORT; a certificate is for a name, not for its addresses")
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SpecError(f"{text}: {parts.hostname} does not resolve ({error.strerror or error})") from None
    hosts = sorted({str(row[4][0]) for row in rows})
    port = f":{parts.port}" if parts.port else ""
    return [kind + urlunsplit(parts._replace(netloc=(f"[{host}]" if ":" in host else host) + port)) for host in hosts]
