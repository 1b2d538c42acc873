"""What can be found wrong with settings before anything is started.

Promise: touches files and variables, no network; each problem is one sentence that names the model and what to change,
with the line where it is written, as far as that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from turnwire.engines.embedded.downloads import is_model, no_model
from turnwire.engines.spec import SpecError, parse_spec
from turnwire.gateway.door.keys import Keyring, KeysError
from turnwire.gateway.hosted.mcp_server import mcp_missing
from turnwire.gateway.settings import ModelSettings, Settings, ToolSettings
from turnwire.gateway.setup.addresses import one_address
from turnwire.gateway.setup.engine_keys import EngineKeyError, engine_key
from turnwire.gateway.setup.starting import embedded_model
from turnwire.parsers import UnknownDialect, dialect_from_flag
from turnwire.profiles import ProfileError, load_book

__all__ = ["problems", "tool_problems"]

_UNKNOWN: Mapping[str, str] = MappingProxyType({})
_ONE_MODEL = {"name": "model", "key_env": "engine_key_env", "key_file": "engine_key_file"}
"""What settings of a model are called where there is only one, if that is another name."""


def problems(settings: Settings, environ: Mapping[str, str], origins: Mapping[str, str] = _UNKNOWN) -> list[str]:
    """Everything that `serve` would stop at, as far as it shows without starting. `origins` says where each setting was
    written."""
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
    for number, model in enumerate(settings.served()):
        told = f"model {model.name}: " if settings.models else ""
        for name, problem in _model(model, environ, table=bool(settings.models)):
            at = origins.get(f"models[{number}].{name}" if settings.models else _ONE_MODEL.get(name, name))
            found.append(f"{at}: {told}{problem}" if at else f"{told}{problem}")
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


def _model(model: ModelSettings, environ: Mapping[str, str], *, table: bool) -> Iterator[tuple[str, str]]:
    """Each problem after the name of the setting that has it."""
    kinds = set()
    where = "engines" if model.engines else "engine"
    for text in model.specs:
        try:
            spec = parse_spec(one_address(text))
        except SpecError as error:
            yield where, str(error)
            continue
        kinds.add(spec.kind)
        if spec.kind in ("scripted", "capture") and not Path(spec.target).expanduser().exists():
            yield where, f"the file {spec.target} of the {spec.kind} engine does not exist"
        if spec.kind == "embedded":
            meant = embedded_model(model, spec, table=table)
            if meant is not None and not is_model(meant):
                yield where if spec.target else "source" if model.source else "name", no_model(meant)
    if len(kinds) > 1:
        yield where, "all engines of one model must be of one kind; write further [[model]] tables, with fallbacks"
    try:
        engine_key(model.key_env, model.key_file, environ)
    except EngineKeyError as error:
        yield "key_env" if model.key_env else "key_file", str(error)
    if model.dialect != "auto":
        try:
            dialect_from_flag(model.dialect, model.reasoning)
        except UnknownDialect as error:
            yield "dialect", str(error)
    for what, place in (("template", model.template), ("tokenizer", model.tokenizer)):
        if place is not None and not Path(place).exists():
            yield what, f"the {what} {place} does not exist"
