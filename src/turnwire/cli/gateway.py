"""Which gateway a command means: the one that was named, the one at the default address, else one that runs here.

Promise: an address that was given is used as it is; another than the default is used only after a sentence on standard
error.
"""

from __future__ import annotations

import click

from turnwire.harness.discovery import DiscoveryError, GatewayRefusal, ListedModel, find_gateway, served_models
from turnwire.harness.running import running_gateways

__all__ = ["DEFAULT_URL", "URL_DEFAULT", "URL_VARIABLE", "gateway_url", "gateway_with_models"]

DEFAULT_URL = "http://127.0.0.1:8390"
URL_VARIABLE = "TURNWIRE_URL"
URL_DEFAULT = f"[default: ${URL_VARIABLE}, else {DEFAULT_URL}, else one that runs here]"


def gateway_with_models(url: str | None, key: str) -> tuple[str, list[ListedModel]]:
    """The gateway and its models, or a DiscoveryError."""
    wanted = (url or DEFAULT_URL).rstrip("/").removesuffix("/v1")
    found, models = find_gateway(wanted, key, running_gateways() if url is None else ())
    _say(found, wanted)
    return found, models


def gateway_url(url: str | None, key: str | None) -> str:
    """The gateway's address; the default one where none answers, so that the command's own request says why."""
    if url is not None:
        return url
    others = [other for other in running_gateways() if other != DEFAULT_URL]
    for place in (DEFAULT_URL, *others) if others else ():
        try:
            served_models(place, key or "local")
        except GatewayRefusal:
            pass  # It runs; a key may open what the command asks for and not the list of models.
        except DiscoveryError:
            continue
        _say(place, DEFAULT_URL)
        return place
    return DEFAULT_URL


def _say(found: str, wanted: str) -> None:
    if found != wanted:
        click.echo(f"No gateway at {wanted}; using the one at {found}.", err=True)
