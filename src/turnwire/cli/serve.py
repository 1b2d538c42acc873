"""`turnwire serve`: run the gateway.

Promise: flags, environment and config file give one set of settings; a start that fails says what to change.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
from typing import Any

import click

from turnwire.cli.gateway_flags import gateway_flags
from turnwire.cli.loading import DownloadProgress, Loading
from turnwire.harness.running import announced

__all__ = ["listen", "serve"]


@click.command()
@gateway_flags
def serve(config: str | None, **flags: Any) -> None:
    """Run the gateway.

    Flags override TURNWIRE_* variables, which override the config file. Every setting is a flag: the ones that are
    seldom needed are in docs/settings.md only.
    """
    loading = click.get_current_context().with_resource(Loading())
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
    if settings.log_format == "json":
        loading.say = logging.getLogger("turnwire.start").info
    for note in loaded.notes:
        logging.getLogger("turnwire.settings").info("as on Dynamo: %s", note)
    listener, bar = listen(settings.host, settings.port), DownloadProgress(loading, after="loading the model")
    try:
        with announced(_address(listener, secure=settings.tls_cert is not None)):
            if settings.workers > 1:
                run_processes(settings, listener, load, loading.ready)
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
