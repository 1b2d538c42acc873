"""Which host names and origins an open gateway answers to.

Promise: while no key is set, only requests that name this machine are answered, so that no web page in a browser here
can use the gateway (DNS rebinding, cross-site posts, cross-site WebSockets). It lets nobody in: keys decide that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["is_from_here"]


def is_from_here(headers: Mapping[str, str], allowed: frozenset[str]) -> bool:
    """Whether Host, and Origin where a browser sends one, are of this machine or among the names the operator gave."""
    host, origin = headers.get("host"), headers.get("origin")
    if host is not None and not _is_known(host, allowed):
        return False
    if origin is None:
        return True
    scheme, separator, rest = origin.partition("://")
    if not separator:
        # `null`: a page from nowhere, such as a sandboxed frame.
        return False
    return scheme not in ("http", "https") or _is_known(rest, allowed)


def _name(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].rstrip(".").lower()


# Clients name a gateway in few ways; they may send any name, of which few are kept.
@lru_cache(maxsize=16)
def _is_known(authority: str, allowed: frozenset[str]) -> bool:
    name = _name(authority)
    if name == "localhost" or name.endswith(".localhost") or name in allowed:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
