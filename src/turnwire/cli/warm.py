"""`turnwire warm`: let workers read what a client's sessions begin with, before the sessions do.

Promise: takes what there is: a capture, or a request (or just its messages and tools) as JSON. Each different scaffold
is sent once, and one line says what each worker did with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import msgspec

from turnwire.capture.format import CaptureError
from turnwire.cli.inspect.operator import gateway_options, warm_workers
from turnwire.engines.captured.files import load_capture

__all__ = ["warm"]

_APIS = ("chat", "messages", "responses")
_SIDE = frozenset({"title", "auxiliary", "background"})
_MOST = 20
"""Scaffolds of a capture, the latest ones."""


class _Asked(msgspec.Struct):
    """A request to warm with, and where it came from."""

    api: str
    body: dict[str, Any]
    words: str


@click.command()
@click.argument("place", metavar="FILE")
@click.option("--every", is_flag=True, help="Warm every idle worker, not only the one that the next session would get.")
@click.option("--api", type=click.Choice(_APIS), help="Whose request FILE is.  [default: told by its fields]")
@click.option("--model", help="The model.  [default: the request's]")
@click.option("--tenant", default="default", help="Whose caches are meant, where keys have their own: the key's name.")
@gateway_options
def warm(place: str, every: bool, api: str | None, model: str | None, tenant: str, url: str, key: str | None) -> None:
    """Let workers read the system prompt and the tools of a client before its sessions start.

    FILE is a capture (a file or a folder) or a request as JSON: one of Chat Completions, Messages or Responses, or only
    its `messages` and `tools`.
    """
    for asked in _scaffolds(place, api):
        body = asked.body | {"model": model or asked.body.get("model") or "default"}
        query = urlencode({"api": asked.api, "workers": "every" if every else "best", "tenant": tenant})
        answer = warm_workers(url, key, query, msgspec.json.encode(body))
        told = [
            f"{one.worker} {one.state}" + (f" {one.tokens:,} in {one.seconds:.2f} s" if one.state == "read" else "")
            for one in answer.workers
        ]
        click.echo(
            f"{asked.words}: {answer.tokens:,} tokens of {answer.model}: {', '.join(told) or 'no worker has room'}"
        )


def _scaffolds(place: str, api: str | None) -> list[_Asked]:
    path = Path(place).expanduser()
    try:
        if path.is_file() and ".capture." not in path.name:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            spoken = api or _api_of(found)
            return [_Asked(spoken, _completed(spoken, found), path.name)]
        turns = load_capture(place).turns
    except OSError as error:
        raise click.ClickException(f"{place} cannot be read: {error.strerror}.") from None
    except msgspec.DecodeError as error:
        raise click.ClickException(f"{place} is not a JSON object: {error}") from None
    except CaptureError as error:
        raise click.ClickException(str(error)) from None
    seen: dict[bytes, _Asked] = {}
    for turn in turns:
        if turn.api in _APIS and turn.turn_class not in _SIDE:
            asked = msgspec.json.decode(turn.request.body, type=dict[str, Any])
            kind = "agent" if turn.agent else "session"
            seen[_identity(asked)] = _Asked(turn.api, _completed(turn.api, asked), f"{turn.client or turn.api} {kind}")
    if not seen:
        raise click.ClickException(f"{place} holds no turn of {', '.join(_APIS)}.")
    return list(seen.values())[-_MOST:]


def _identity(body: dict[str, Any]) -> bytes:
    """What tells scaffolds apart."""
    messages = body.get("messages") or ()
    system = [one for one in messages if isinstance(one, dict) and one.get("role") in ("system", "developer")]
    parts = [body.get("model"), body.get("system"), body.get("instructions"), body.get("tools"), system]
    return msgspec.json.encode(parts)


def _api_of(body: dict[str, Any]) -> str:
    if "input" in body or "instructions" in body:
        return "responses"
    tools = body.get("tools") or ()
    anthropic = "system" in body or any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)
    return "messages" if anthropic else "chat"


def _completed(api: str, body: dict[str, Any]) -> dict[str, Any]:
    """The request with what its API insists on. What goes on from a stored response begins with that, not here."""
    body = {name: value for name, value in body.items() if name != "previous_response_id"}
    if api == "responses":
        return {"input": "."} | body
    said = {"messages": [{"role": "user", "content": "."}]}
    return said | ({"max_tokens": 1} if api == "messages" else {}) | body
