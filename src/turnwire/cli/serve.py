"""`turnwire serve`: run the gateway.

Promise: flags, environment and config file give one set of settings; a start that fails says what to change.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import click

from turnwire.cli.loading import Loading
from turnwire.gateway.setup.dynamo import ROWS, row_name
from turnwire.harness.running import announced

__all__ = ["gateway_options", "listen", "serve"]


_OPTIONS = (
    click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
    click.option("--port", type=int, help="Port to listen on; 0 picks a free one.  [default: 8390]"),
    click.option("--workers", type=int, help="Gateway processes that serve the one port.  [default: 1]"),
    click.option("--model", help="Model id to serve, a .gguf file, a folder, or a hub id (MAKER/REPO:QUANT)."),
    click.option("--alias", multiple=True, help="Another id that means the same model; may be given several times."),
    click.option(
        "--engine",
        help="An address (what answers is found out), or embedded, scripted:FILE, KIND:URL; see docs/engines.md.",
    ),
    click.option("--engine-key-env", metavar="NAME", help="Environment variable that holds the engine's API key."),
    click.option("--engine-key-file", type=click.Path(), help="File that holds the engine's API key."),
    click.option(
        "--upstream-model",
        help="The model's name at the engine, where it differs.  [default: --model, else its only one]",
    ),
    click.option("--dialect", help="How the model writes: a name or a FILE.py of your own; `auto` finds out."),
    click.option("--reasoning", help="Another dialect's reasoning markers, combined with --dialect's tool calls."),
    click.option("--template", help="Chat template file (Jinja)."),
    click.option("--tokenizer", help="tokenizer.json, or a folder that holds one."),
    click.option("--gpu-layers", type=int, help="Embedded engine: layers on the GPU; -1 is all.  [default: all]"),
    click.option("--profiles", help="A file of model profiles that extends the built-in ones."),
    click.option("--window", type=int, help="Context window in tokens, where the engine does not report it."),
    click.option(
        "--history-thinking",
        type=click.Choice(["keep", "model", "drop"]),
        help="Which thoughts of earlier user turns the model reads again.",
    ),
    click.option(
        "--tool-order",
        type=click.Choice(["sent", "canonical"]),
        help="Tools in the prompt: as the client sent them, or sorted with their schemas' keys.",
    ),
    click.option("--seal-key", help="Key of the sealed turns (any text); the same on all replicas."),
    click.option("--seal-key-file", help="File that holds the key; made if it does not exist."),
    click.option("--store", help="Where turns and responses are kept: memory, sqlite:FILE, redis://HOST:PORT/0."),
    click.option("--keys", help="TOML file of API keys; when given, nobody gets in without one."),
    click.option(
        "--allow-anonymous", is_flag=True, default=None, help="Listen beyond loopback although no key is set."
    ),
    click.option("--tls-cert", type=click.Path(), help="Certificate chain (PEM): serve HTTPS; with --tls-key."),
    click.option("--tls-key", type=click.Path(), help="The certificate's private key (PEM)."),
    click.option("--usage", type=click.Path(), help="File that keeps what each key used, over restarts."),
    click.option("--capture", help="Folder that gets captures for `turnwire replay`; holds payloads, without secrets."),
    click.option("--record", help="Folder that gets one JSON line per turn, payloads included."),
    click.option(
        "--enable-streaming-tool-dispatch", is_flag=True, default=None, help="tool_call_dispatch for everybody."
    ),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"])),
    click.option("--log-format", type=click.Choice(["text", "json"]), help="One line per turn: text, or JSON."),
    click.option("--traces", help="OTLP address that gets OpenTelemetry spans, such as http://127.0.0.1:4318."),
    click.option("--push-metrics", help="OTLP address that gets OpenTelemetry metrics, beside those at /metrics."),
    click.option("--config", type=click.Path(), help="TOML file with the same names as the flags."),
    # A launch line of NVIDIA Dynamo's frontend means the same here; docs/gateway.md has the table.
    *(
        click.option(row.flag, row_name(row), is_flag=row.switch, default=None, hidden=True)
        for row in ROWS
        if row.flag is not None
    ),
)


def gateway_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say what a gateway is; shared by the commands that make one."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@gateway_options
def serve(config: str | None, **flags: Any) -> None:
    """Run the gateway. Flags override the config file, which overrides TURNWIRE_* variables."""
    loading = Loading()
    from turnwire.gateway.door.keys import KeysError
    from turnwire.gateway.processes.supervisor import ProcessError, run_processes
    from turnwire.gateway.server import StartInterrupted, run
    from turnwire.gateway.settings import Settings, SettingsError
    from turnwire.gateway.setup.assembly import AssemblyError
    from turnwire.gateway.setup.loading import load as load_all
    from turnwire.gateway.setup.loading import load_settings
    from turnwire.gateway.stores.store import StoreError
    from turnwire.gateway.telemetry.journal import start_log
    from turnwire.gateway.telemetry.tracing import TracingError

    file = config or os.environ.get("TURNWIRE_CONFIG")

    def load() -> Settings:
        return load_settings(flags, config=file, environ=os.environ)

    try:
        loaded = load_all(flags, config=file, environ=os.environ)
        settings = loaded.settings
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    if not settings.keys and not settings.allow_anonymous and not _is_loopback(settings.host):
        raise click.ClickException(
            f"No API key is set, so {settings.host} would let anybody in. Set --keys FILE, or say --allow-anonymous."
        )
    if "*" in settings.cors_origins and not settings.keys and not settings.allow_anonymous:
        raise click.ClickException(
            'cors_origins = ["*"] without keys would let every web page use this gateway. '
            "Name the origins, or set --keys."
        )
    _check_tls(settings.tls_cert, settings.tls_key)
    # Turns, responses and records are their owner's: no file that the gateway makes can be read by others.
    os.umask(0o077)
    start_log(settings.log_level, settings.log_format)
    for note in loaded.notes:
        logging.getLogger("turnwire.settings").info("as on Dynamo: %s", note)
    listener, bar = listen(settings.host, settings.port), _LoadBar(loading)
    try:
        with announced(_address(listener, secure=settings.tls_cert is not None)):
            if settings.workers > 1:
                loading.stop()
                run_processes(settings, listener, load)
            else:
                reread = load if file is not None else None
                run(settings, listener, bar, announce=loading.ready, reread=reread)
    except StartInterrupted:
        loading.stop()
        bar.stop()
        click.echo(
            "Stopped before the gateway answered. What was downloaded so far is kept for the next start.", err=True
        )
        sys.exit(130)
    except (AssemblyError, KeysError, ProcessError, SettingsError, StoreError, TracingError) as error:
        raise click.ClickException(str(error)) from None


def _address(listener: socket.socket, *, secure: bool) -> str:
    """Where a client on this machine finds the gateway."""
    host, port = listener.getsockname()[:2]
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{'https' if secure else 'http'}://{local}:{port}"


def _check_tls(cert: str | None, key: str | None) -> None:
    import ssl

    if (cert is None) != (key is None):
        raise click.ClickException("HTTPS needs both --tls-cert and --tls-key.")
    if cert is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
        except OSError as error:
            why = error.strerror or str(error)
            raise click.ClickException(f"{cert} and {key} cannot be used for HTTPS: {why}.") from None


class _LoadBar:
    """A progress bar on standard error that exists only while a model is downloaded."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, label: str, done: int, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._loading.stop()
        if self._bars is None:
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        if label not in self._tasks:
            self._tasks[label] = self._bars.add_task(label, total=total)
        self._bars.update(self._tasks[label], completed=done)
        if done >= total:
            self.stop()
            self._loading.resume("loading the model")

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._tasks.clear()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, or an error that says what to change."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise click.ClickException(
            f"Cannot listen on {host}:{port}: {error.strerror}. Is another server running there? Try --port 0."
        ) from None
    listener.listen(2048)
    return listener
