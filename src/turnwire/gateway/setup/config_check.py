"""What can be found wrong with settings before anything is started.

Promise: touches files and variables, no network; each problem is one sentence that names the model and what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from turnwire.engines.spec import SpecError, parse_spec
from turnwire.gateway.door.keys import Keyring, KeysError
from turnwire.gateway.hosted.mcp_server import mcp_missing
from turnwire.gateway.settings import ModelSettings, Settings, ToolSettings
from turnwire.gateway.setup.addresses import one_address
from turnwire.gateway.setup.engine_keys import EngineKeyError, engine_key
from turnwire.parsers import UnknownDialect, dialect_from_flag
from turnwire.profiles import ProfileError, load_book

__all__ = ["problems", "tool_problems"]


def problems(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Everything that `serve` would stop at, as far as it shows without starting."""
    found = []
    if settings.keys:
        try:
            Keyring.load(settings.keys)
        except KeysError as error:
            found.append(str(error))
    try:
        load_book(settings.profiles)
    except ProfileError as error:
        found.append(str(error))
    found += tool_problems(settings.tools)
    for model in settings.served():
        told = f"model {model.name}: " if settings.models else ""
        found += [f"{told}{problem}" for problem in _model(model, environ)]
    return found


def tool_problems(tools: Mapping[str, ToolSettings]) -> list[str]:
    """What is wrong with the tables of tools."""
    missing = mcp_missing() if tools else None
    found = [missing] if missing is not None else []
    for label, tool in tools.items():
        if isinstance(tool.mcp, str) and not tool.mcp.startswith(("http://", "https://")):
            found.append(f"tools.{label}: mcp must be an http address, or a command as a list such as ['my-server']")
        elif not tool.mcp:
            found.append(f"tools.{label}: the command of mcp is empty")
    return found


def _model(model: ModelSettings, environ: Mapping[str, str]) -> Iterator[str]:
    kinds = set()
    for spec in model.specs:
        try:
            kinds.add(parse_spec(one_address(spec)).kind)
        except SpecError as error:
            yield str(error)
    if len(kinds) > 1:
        yield "all engines of one model must be of one kind; write further [[model]] tables, with fallbacks"
    try:
        engine_key(model.key_env, model.key_file, environ)
    except EngineKeyError as error:
        yield str(error)
    if model.dialect != "auto":
        try:
            dialect_from_flag(model.dialect, model.reasoning)
        except UnknownDialect as error:
            yield str(error)
    for what, place in (("template", model.template), ("tokenizer", model.tokenizer)):
        if place is not None and not Path(place).exists():
            yield f"the {what} {place} does not exist"
