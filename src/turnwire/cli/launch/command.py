"""`turnwire launch`: run a real client against the gateway, over the user's own configuration or apart from it.

Promise: a client that is not installed or a gateway that does not answer is reported in one sentence; no file of the
user's own is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from turnwire.cli.gateway import URL_DEFAULT, URL_VARIABLE, gateway_with_models
from turnwire.harness import (
    HARNESSES,
    KEY_VARIABLE,
    DiscoveryError,
    Endpoint,
    Harness,
    HarnessMissing,
    LaunchPlan,
    choose,
    run_plan,
    shell_script,
)

__all__ = ["client_options", "endpoint_of", "launch", "run_client"]

SMALL_WINDOW = 24_000
"""Agents of the size of Claude Code need about this much for their own tools and instructions."""

_OPTIONS = (
    click.option("--key", envvar=KEY_VARIABLE, help=f"The gateway's key.  [default: ${KEY_VARIABLE}]"),
    click.option(
        "--api", type=click.Choice(["messages", "responses", "chat"]), help="API, where the client has a choice."
    ),
    click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        help="Keep config and sessions in this folder, apart from your own.",
    ),
    click.option("--fresh", is_flag=True, help="Leave your own configuration out; nothing is kept."),
)

_BEFORE_CLIENT = ("--url", "--key", "--home", "--fresh")
"""What no client takes as its first argument, so that it was meant for this command."""


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that runs a client."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--url", envvar=URL_VARIABLE, help=f"The gateway.  {URL_DEFAULT}")
@click.option("--model", help="Model id.  [default: the gateway's default model]")
@client_options
@click.option("--print", "show", is_flag=True, help="Print a shell script that does the same, and run nothing.")
@click.argument("client", type=click.Choice(sorted(HARNESSES)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    url: str | None,
    key: str | None,
    model: str | None,
    api: str | None,
    home: Path | None,
    fresh: bool,
    show: bool,
    client: str,
    arguments: tuple[str, ...],
) -> None:
    """Run CLIENT against the gateway. ARGUMENTS go to the client as they are.

    Where the client can be led that way, your own configuration of it stays in force: MCP servers, hooks, history and
    sessions. --fresh and --home keep a run apart.
    """
    misplaced = arguments[0].partition("=")[0] if arguments else ""
    if misplaced in _BEFORE_CLIENT:
        told = f"{misplaced} is an option of launch: put it before {client}, or -- before what {client} is to get."
        raise click.UsageError(told)
    harness = HARNESSES[client]
    try:
        found, models = gateway_with_models(url, key or "local")
    except DiscoveryError as error:
        raise click.ClickException(str(error)) from None
    endpoint = endpoint_of(harness, found, key or "local", models, model, api)
    if show:
        folder = (home or Path(tempfile.gettempdir()) / f"turnwire-{client}").absolute()
        plan = _planned(harness, endpoint, folder, arguments, own=home is None and not fresh)
        click.echo(shell_script(plan, folder, endpoint.key), nl=False)
        return
    raise SystemExit(run_client(harness, endpoint, arguments, home, fresh=fresh))


def endpoint_of(
    harness: Harness, url: str, key: str, models: list[Any], model: str | None, api: str | None
) -> Endpoint:
    """The gateway as the client must know it."""
    if api is not None and api not in harness.apis:
        raise click.ClickException(f"{harness.name} speaks only: {', '.join(harness.apis)}.")
    try:
        served = choose(models, model)
    except DiscoveryError as error:
        raise click.ClickException(str(error)) from None
    if served.window < SMALL_WINDOW:
        roomy = [other.id for other in models if other.window >= SMALL_WINDOW]
        advice = f"take --model {roomy[0]}" if roomy else "serve a model with a larger window"
        told = f"{served.id} has a window of {served.window} tokens; an agent's own instructions may not fit"
        click.echo(f"{told}: {advice}.", err=True)
    return Endpoint(
        url=url,
        model=served.id,
        key=key,
        window=served.window,
        max_output=served.max_output,
        api=api or harness.apis[0],
        roles={role: other.id for other in models for role in other.roles},
        searches="web_search" in served.hosted,
    )


def run_client(
    harness: Harness, endpoint: Endpoint, arguments: tuple[str, ...], home: Path | None, *, fresh: bool
) -> int:
    """Run the client to its end; its exit code."""
    try:
        if home is not None:
            home.mkdir(parents=True, exist_ok=True)
            folder = home.absolute()
            return run_plan(harness, _planned(harness, endpoint, folder, arguments, own=False), folder)
        with tempfile.TemporaryDirectory(prefix=f"turnwire-{harness.name}-", ignore_cleanup_errors=True) as passing:
            folder = Path(passing)
            return run_plan(harness, _planned(harness, endpoint, folder, arguments, own=not fresh), folder)
    except HarnessMissing as error:
        raise click.ClickException(str(error)) from None


def _planned(
    harness: Harness, endpoint: Endpoint, folder: Path, arguments: tuple[str, ...], *, own: bool
) -> LaunchPlan:
    """What is done; with `own` over the user's own configuration, where the client can be led that way."""
    arguments = arguments[1:] if arguments[:1] == ("--",) else arguments
    plan = harness.layered if own and harness.layered is not None else harness.plan
    return plan(endpoint, folder, arguments)
