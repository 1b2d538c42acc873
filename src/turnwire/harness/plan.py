"""The values of the harness room: where the gateway is, and what launching a client against it takes.

Promise: a plan is complete and inert. It names every file, variable and argument, so that it can be shown, tested or
run, and nothing outside the plan's own folder is written.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

__all__ = ["KEY_VARIABLE", "Endpoint", "Harness", "LaunchPlan", "document", "shell_script"]

KEY_VARIABLE = "TURNWIRE_API_KEY"
"""Where configs that are written to disk take the key from, so that it is never in a file."""


class Endpoint(msgspec.Struct, frozen=True):
    """A gateway as a client must know it. `url` has no path; `window` and `max_output` are tokens. `roles` are the
    models that stand in for a tier or a kind of request; `searches`: the gateway runs web searches itself."""

    url: str
    model: str
    key: str
    window: int
    max_output: int
    api: str
    roles: Mapping[str, str] = msgspec.field(default_factory=dict)
    searches: bool = False

    def role(self, *names: str) -> str:
        """The model that has one of these roles, the first that is known; else the endpoint's own."""
        return next((self.roles[name] for name in names if name in self.roles), self.model)

    @property
    def v1(self) -> str:
        """The base URL of the two OpenAI APIs."""
        return f"{self.url}/v1"


class LaunchPlan(msgspec.Struct, frozen=True):
    """What to write, what to set and what to run. `files` are relative to the plan's folder; `unset` are variables
    of the caller that would lead the client elsewhere."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()


class Harness(msgspec.Struct, frozen=True):
    """One client: its command, how to get it, the APIs it can speak (the first is its own choice), and its plan.
    `layered` plans the same over the user's own configuration, where the client can be led that way."""

    name: str
    command: str
    install: str
    apis: tuple[str, ...]
    plan: Callable[[Endpoint, Path, Sequence[str]], LaunchPlan]
    layered: Callable[[Endpoint, Path, Sequence[str]], LaunchPlan] | None = None


def shell_script(plan: LaunchPlan, home: Path, key: str) -> str:
    """The plan as a script that a person can read, keep and run; the key itself is not in it."""
    lines = ["#!/bin/sh", f': "${{{KEY_VARIABLE}:?set it to the gateway\'s key (any text if it asks for none)}}"']
    for name, text in plan.files.items():
        path = home / name
        lines += [f"mkdir -p {shlex.quote(str(path.parent))}", f"cat > {shlex.quote(str(path))} <<'TURNWIRE_END'"]
        lines += [text.rstrip("\n"), "TURNWIRE_END"]
    lines += [f"unset {name}" for name in plan.unset]
    for name, value in plan.env.items():
        if name == KEY_VARIABLE:
            lines.append(f"export {name}")
        elif value == key:
            lines.append(f'export {name}="${KEY_VARIABLE}"')
        else:
            lines.append(f"export {name}={shlex.quote(value)}")
    lines.append(f'exec {shlex.join(plan.command)} "$@"')
    return "\n".join(lines) + "\n"


def document(value: object) -> str:
    """A config file's JSON, laid out for reading."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
