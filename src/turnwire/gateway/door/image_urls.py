"""References to images that an engine would fetch on a client's behalf.

Promise: nothing in this process ever fetches what a client names. Where an engine would, a reference is refused unless
the operator allows them, and then still unless it is plain http(s) to a name or address that is not of a private net.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

__all__ = ["forbidden_reference"]

_MAX_URL = 8192
_LOCAL_NAMES = ("localhost", ".localhost", ".local", ".internal", ".lan", ".home.arpa", ".intranet", ".corp")


def forbidden_reference(url: str, *, allowed: bool) -> str | None:
    """Why a reference may not go to an engine; None where it may."""
    if not allowed:
        return "references to images are not fetched here; send the image itself as base64 (allow_urls)"
    if len(url) > _MAX_URL:
        return f"a reference of more than {_MAX_URL} characters"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "a reference that is not a valid URL"
    if parts.scheme not in ("http", "https"):
        return "a reference must be http or https"
    if parts.username is not None or parts.password is not None:
        return "a reference may hold no credentials"
    if not host or "\\" in url or any(ord(character) <= 32 for character in url):
        return "a reference that is not a valid URL"
    if _is_private(host.rstrip(".").lower()):
        return "a reference to a private address"
    return None


def _is_private(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
        return not address.is_global or (mapped is not None and not mapped.is_global)
    # What is not a plain address must be a name with a public-looking ending: 2130706433, 0x7f.1 and 127.1 are
    # addresses to some resolvers.
    last = host.rpartition(".")[2]
    if "." not in host or not last.isascii() or not last.replace("-", "").isalnum() or last[0].isdigit():
        return True
    return host == "localhost" or host.endswith(_LOCAL_NAMES)
