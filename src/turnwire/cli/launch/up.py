"""`turnwire up`: a gateway and a client in one go.

Promise: a gateway that runs is used, else one is started with a model that is there or can be fetched; what was started
here is stopped with the client, whatever becomes of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from turnwire.cli.gateway import DEFAULT_URL
from turnwire.cli.launch.command import client_options, endpoint_of, run_client
from turnwire.cli.loading import Loading
from turnwire.harness import HARNESSES, DiscoveryError, find_gateway, running_gateways, served_models

__all__ = ["last_said", "up"]

_READY = re.compile(r"turnwire: .* on (https?://\S+) ")
_START_S = 600.0
"""A model may have to be fetched first."""

AGENT_MODEL = "qwen2.5-coder-1.5b"
"""The smallest of the models that can be fetched whose window holds an agent's instructions."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--engine", help="Serve this engine, as `turnwire serve --engine`.  [default: a gateway that runs]")
@click.option("--model", help=f"Model id or file.  [default: what the gateway serves, else {AGENT_MODEL}]")
@click.option("--config", type=click.Path(dir_okay=False), help="Config file of the gateway that is started.")
@client_options
@click.argument("client", type=click.Choice(sorted(HARNESSES)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def up(
    engine: str | None,
    model: str | None,
    config: str | None,
    key: str | None,
    api: str | None,
    home: Path | None,
    fresh: bool,
    client: str,
    arguments: tuple[str, ...],
) -> None:
    """Start a gateway if none runs, run CLIENT against it, and stop it afterwards. ARGUMENTS go to the client."""
    harness, secret = HARNESSES[client], key or "local"
    with contextlib.ExitStack() as stack:
        if engine is None and config is None:
            with contextlib.suppress(DiscoveryError):
                url, models = find_gateway(DEFAULT_URL, secret, running_gateways())
                click.echo(f"Using the gateway at {url}.", err=True)
                endpoint = endpoint_of(harness, url, secret, models, model, api)
                raise SystemExit(run_client(harness, endpoint, arguments, home, fresh=fresh))
        url = stack.enter_context(_started(engine, model, config))
        try:
            models = served_models(url, secret)
        except DiscoveryError as error:
            raise click.ClickException(str(error)) from None
        endpoint = endpoint_of(harness, url, secret, models, None, api)
        raise SystemExit(run_client(harness, endpoint, arguments, home, fresh=fresh))


@contextlib.contextmanager
def _started(engine: str | None, model: str | None, config: str | None) -> Iterator[str]:
    """A gateway on a free port, for as long as this lasts; its log is a file, named where it does not start."""
    command = [sys.executable, "-m", "turnwire", "serve", "--port", "0"]
    if config is not None:
        command += ["--config", config]
    if engine is not None:
        command += ["--engine", engine]
    if model is not None or (engine is None and config is None):
        command += ["--model", model or AGENT_MODEL]
    click.echo(f"Starting a gateway: {' '.join(command[2:])}", err=True)
    with tempfile.NamedTemporaryFile("w+", prefix="turnwire-gateway-", suffix=".log", delete=False) as log:
        # A session of its own: Ctrl-C belongs to the client.
        process = subprocess.Popen(  # noqa: S603 - our own command line
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, env=os.environ
        )
        try:
            with Loading(lambda: last_said(Path(log.name))):
                address = _address(process, log.name)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    Path(log.name).unlink(missing_ok=True)


def last_said(log: Path) -> str:
    """The last thing that the gateway said, without what its own waiting adds."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = re.sub(r"^\s*(?:\.\.\. )?|(?: \(\d+ s\))?$", "", lines[-1]) if lines else ""
    return said or "starting the gateway"


def _address(process: subprocess.Popen[str], log: str) -> str:
    """Where the gateway is, once it answers."""
    assert process.stdout is not None
    deadline = time.monotonic() + _START_S
    for line in process.stdout:
        if found := _READY.search(line):
            return found[1]
        if time.monotonic() > deadline:
            break
    process.wait(5)
    said = Path(log).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise click.ClickException(f"The gateway did not start: {said[-1] if said else 'it said nothing'} (log: {log})")
