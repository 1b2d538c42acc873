"""What the operator's commands ask a running gateway.

Promise: one request per question; a gateway that is not there, or does not let one in, is reported in a sentence
that says what to change.
"""

from __future__ import annotations

import functools
import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

import click
import msgspec

from turnwire.cli.gateway import URL_DEFAULT, URL_VARIABLE, gateway_url
from turnwire.engines.pool.read_ahead import Warmed
from turnwire.gateway.door.usage import UsageRow
from turnwire.gateway.telemetry.journal import TurnSummary
from turnwire.gateway.telemetry.live import LiveTurn
from turnwire.harness import KEY_VARIABLE

__all__ = ["KeyUsage", "WarmedWorkers", "gateway_options", "key_usage", "last_turns", "live_turns", "warm_workers"]

_TIMEOUT_S = 10.0
_WARM_TIMEOUT_S = 300.0


def gateway_options(command: Any) -> Any:
    """The options that say which gateway is meant; the command gets the address of one that runs, if one does."""

    @functools.wraps(command)
    def found(*, url: str | None, key: str | None, **options: Any) -> Any:
        return command(url=gateway_url(url, key), key=key, **options)

    key = click.option("--key", envvar=KEY_VARIABLE, help=f"A key with the admin scope.  [default: ${KEY_VARIABLE}]")
    url = click.option("--url", envvar=URL_VARIABLE, help=f"The gateway.  {URL_DEFAULT}")
    return url(key(found))


def last_turns(
    url: str, key: str | None, *, session: str | None = None, turn: str | None = None, limit: int = 1000
) -> list[TurnSummary]:
    """The last turns, newest first; of one session, or the one with an id."""
    wanted = {"session": session, "turn": turn}
    query = f"?limit={limit}" + "".join(f"&{name}={quote(value)}" for name, value in wanted.items() if value)
    return msgspec.json.decode(_ask(url, key, f"/admin/turns{query}"), type=_Turns).turns


def live_turns(url: str, key: str | None) -> list[LiveTurn]:
    """The turns that run now."""
    return msgspec.json.decode(_ask(url, key, "/admin/live"), type=list[LiveTurn])


class KeyUsage(msgspec.Struct, frozen=True):
    """The body of `/admin/usage`."""

    days: list[UsageRow]
    budgets: dict[str, dict[str, int | None]]


def key_usage(url: str, key: str | None, days: int) -> KeyUsage:
    """What each key used, newest day first."""
    return msgspec.json.decode(_ask(url, key, f"/admin/usage?days={days}"), type=KeyUsage)


class WarmedWorkers(msgspec.Struct, frozen=True):
    """The answer of `/admin/warm`."""

    model: str
    tokens: int
    workers: list[Warmed]


def warm_workers(url: str, key: str | None, query: str, body: bytes) -> WarmedWorkers:
    """Let workers read what a request begins with; ends when they have."""
    answer = _ask(url, key, f"/admin/warm?{query}", body, timeout=_WARM_TIMEOUT_S)
    return msgspec.json.decode(answer, type=WarmedWorkers)


class _Turns(msgspec.Struct):
    turns: list[TurnSummary]


def _ask(url: str, key: str | None, path: str, body: bytes | None = None, *, timeout: float = _TIMEOUT_S) -> bytes:
    if urlsplit(url).scheme not in ("http", "https"):
        raise click.ClickException(f"{url} is not an http address; give something like http://127.0.0.1:8390.")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["content-type"] = "application/json"
    place = url.rstrip("/") + path
    request = urllib.request.Request(place, headers=headers, data=body)  # noqa: S310 - the scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            data: bytes = answer.read()
            return data
    except urllib.error.HTTPError as error:
        hint = " Give a key with the admin scope: --key or TURNWIRE_API_KEY." if error.code in (401, 403) else ""
        said = "" if hint else _sentence(error)
        raise click.ClickException(f"{url}{path} answered {error.code}.{said}{hint}") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise click.ClickException(
                f"The certificate of {url} is not trusted here ({error.reason.verify_message}). Name the authority "
                "that signed it, or the certificate itself: SSL_CERT_FILE=chain.pem"
            ) from None
        raise click.ClickException(f"No gateway answers at {url} ({error}). Start one with `turnwire serve`.") from None
    except (OSError, http.client.HTTPException) as error:
        raise click.ClickException(f"No gateway answers at {url} ({error}). Start one with `turnwire serve`.") from None


def _sentence(error: urllib.error.HTTPError) -> str:
    """What the gateway says of a refusal, if it says anything."""
    try:
        message = msgspec.json.decode(error.read(100_000), type=dict[str, Any])["error"]["message"]
    except (OSError, KeyError, TypeError, msgspec.DecodeError):
        return ""
    return f" {message}"
