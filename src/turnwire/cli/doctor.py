"""`turnwire doctor`: look before you serve.

Promise: nothing is served; each finding that is wrong comes with what to change.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click
import msgspec

from turnwire.cli.gateway_flags import gateway_flags
from turnwire.cli.loading import Loading

__all__ = ["doctor"]

_MARKS = {"fine": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


@click.command()
@gateway_flags
@click.option("--try", "trial", is_flag=True, help="Hold a short conversation with a tool call with each model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(config: str | None, as_json: bool, trial: bool, **flags: Any) -> None:
    """Say what a gateway with these flags would be, and what is wrong with it.

    Exits with 1 where something is an error: serve would not start, or would not work.
    """
    looking = click.get_current_context().with_resource(Loading("looking"))
    from turnwire.gateway.settings import SettingsError
    from turnwire.gateway.setup.diagnosis import diagnose
    from turnwire.gateway.setup.loading import load_settings

    try:
        settings = load_settings(flags, config=config or os.environ.get("TURNWIRE_CONFIG"), environ=os.environ)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    findings = asyncio.run(diagnose(settings, trial=trial))
    looking.stop()
    if as_json:
        click.echo(msgspec.json.encode(findings))
    else:
        for finding in findings:
            mark, colour = _MARKS[finding.state]
            model = f"{finding.model}: " if finding.model else ""
            click.echo(f"{click.style(mark, fg=colour)} {finding.topic:10} {model}{finding.text}")
            if finding.fix:
                click.echo(f"  {'':10} → {finding.fix}")
    sys.exit(1 if any(finding.state == "error" for finding in findings) else 0)
