"""Asks a running gateway which model it serves and how much that model can hold.

Promise: one GET of /v1/models within a few seconds, or a DiscoveryError that says what to start or to change.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec

__all__ = ["DiscoveryError", "GatewayRefusal", "ListedModel", "choose", "find_gateway", "served_models"]

_TIMEOUT_S = 5.0
# A gateway that does not say is taken to have a small window: a client that compacts early beats one that overflows.
_DEFAULT_WINDOW = 32_768
_DEFAULT_OUTPUT = 8_192


class DiscoveryError(RuntimeError):
    """No usable gateway at the address; the message says why."""


class GatewayRefusal(DiscoveryError):
    """A server answers at the address, and wants another key."""


class ListedModel(msgspec.Struct, frozen=True):
    """One row of /v1/models, in tokens; `roles` are what the model stands in for, `hosted` the tools that the gateway
    runs itself."""

    id: str
    window: int
    max_output: int
    roles: tuple[str, ...] = ()
    hosted: tuple[str, ...] = ()


def served_models(url: str, key: str) -> list[ListedModel]:
    """The models of the gateway at `url`, in its own order."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise DiscoveryError(f"{url} is not an http address; give something like http://127.0.0.1:8390.")
    request = urllib.request.Request(  # noqa: S310 - the scheme was just checked
        f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            body = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        said = f"{url}/v1/models answered {error.code}."
        if error.code in (401, 403):
            raise GatewayRefusal(f"{said} Give its key with --key or TURNWIRE_API_KEY.") from None
        raise DiscoveryError(said) from None
    except (OSError, http.client.HTTPException) as error:
        raise DiscoveryError(f"No gateway answers at {url} ({error}). Start one with `turnwire serve`.") from None
    except ValueError:
        raise DiscoveryError(f"{url}/v1/models is not JSON; is this a gateway?") from None
    rows = body.get("data") if isinstance(body, dict) else None
    if not isinstance(rows, list) or not rows:
        raise DiscoveryError(f"{url} lists no model.")
    named = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
    owners = {str(row.get("owned_by")) for row in named}
    if "turnwire" not in owners:
        raise DiscoveryError(
            f"{url} is not a Turnwire gateway: its models are owned by {', '.join(sorted(owners))}. Start a gateway in "
            f"front of it with `turnwire serve --engine {url}`, or give its address with --url."
        )
    return [_model(row) for row in named]


def find_gateway(url: str, key: str, others: Iterable[str] = ()) -> tuple[str, list[ListedModel]]:
    """The gateway at `url`, or else the first of the `others` that answers, with its models. Where none does, the error
    is that of a gateway that wants another key, if there is one: it is the one that was meant."""
    errors: list[DiscoveryError] = []
    for place in dict.fromkeys((url, *others)):
        try:
            return place, served_models(place, key)
        except DiscoveryError as error:
            errors.append(error)
    raise next((error for error in errors if isinstance(error, GatewayRefusal)), errors[0]) from None


def choose(models: Iterable[ListedModel], wanted: str | None) -> ListedModel:
    """The wanted model, or the gateway's default: the one with that role, else the first."""
    listed = list(models)
    if wanted is None:
        return next((model for model in listed if "default" in model.roles), listed[0])
    for model in listed:
        if model.id == wanted:
            return model
    raise DiscoveryError(f"The gateway does not serve '{wanted}'. It serves: {', '.join(m.id for m in listed)}.")


def _model(row: dict[str, Any]) -> ListedModel:
    window = _tokens(row, ("max_model_len", "context_window", "max_input_tokens"), _DEFAULT_WINDOW)
    output = _tokens(row, ("max_output_tokens", "max_tokens"), _DEFAULT_OUTPUT)
    return ListedModel(row["id"], window, min(output, window), _names(row, "roles"), _names(row, "hosted_tools"))


def _names(row: dict[str, Any], field: str) -> tuple[str, ...]:
    value = row.get(field)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _tokens(row: dict[str, Any], names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = row.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return default
