"""`turnwire launch`: run a real client against the gateway, with a throw-away config.

Promise: a client that is not installed or a gateway that does not answer is told in one sentence; nothing outside the
plan's folder is written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from turnwire.harness import (
    HARNESSES,
    KEY_VARIABLE,
    DiscoveryError,
    Endpoint,
    Harness,
    HarnessMissing,
    choose,
    run_plan,
    served_models,
    shell_script,
)

__all__ = ["launch"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--url", default="http://127.0.0.1:8390", envvar="TURNWIRE_URL", show_default=True, help="The gateway.")
@click.option("--key", envvar=KEY_VARIABLE, help=f"The gateway's key.  [default: ${KEY_VARIABLE}]")
@click.option("--model", help="Model id.  [default: the gateway's first]")
@click.option("--api", type=click.Choice(["messages", "responses", "chat"]), help="API, where the client has a choice.")
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the client's config and sessions in this folder.  [default: a folder that is removed afterwards]",
)
@click.option("--print", "show", is_flag=True, help="Print a shell script that does the same, and run nothing.")
@click.argument("client", type=click.Choice(sorted(HARNESSES)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    url: str,
    key: str | None,
    model: str | None,
    api: str | None,
    home: Path | None,
    show: bool,
    client: str,
    arguments: tuple[str, ...],
) -> None:
    """Run CLIENT against the gateway. ARGUMENTS go to the client as they are."""
    harness = HARNESSES[client]
    endpoint = _endpoint(harness, url.rstrip("/").removesuffix("/v1"), key or "local", model, api)
    arguments = arguments[1:] if arguments[:1] == ("--",) else arguments
    if show:
        folder = (home or Path(tempfile.gettempdir()) / f"turnwire-{client}").absolute()
        click.echo(shell_script(harness.plan(endpoint, folder, arguments), folder, endpoint.key), nl=False)
        return
    try:
        if home is not None:
            home.mkdir(parents=True, exist_ok=True)
            code = _run(harness, endpoint, home.absolute(), arguments)
        else:
            with tempfile.TemporaryDirectory(prefix=f"turnwire-{client}-", ignore_cleanup_errors=True) as passing:
                code = _run(harness, endpoint, Path(passing), arguments)
    except HarnessMissing as error:
        raise click.ClickException(str(error)) from None
    raise SystemExit(code)


def _endpoint(harness: Harness, url: str, key: str, model: str | None, api: str | None) -> Endpoint:
    if api is not None and api not in harness.apis:
        raise click.ClickException(f"{harness.name} speaks only: {', '.join(harness.apis)}.")
    try:
        served = choose(served_models(url, key), model)
    except DiscoveryError as error:
        raise click.ClickException(str(error)) from None
    return Endpoint(
        url=url,
        model=served.id,
        key=key,
        window=served.window,
        max_output=served.max_output,
        api=api or harness.apis[0],
    )


def _run(harness: Harness, endpoint: Endpoint, home: Path, arguments: tuple[str, ...]) -> int:
    return run_plan(harness, harness.plan(endpoint, home, arguments), home)
