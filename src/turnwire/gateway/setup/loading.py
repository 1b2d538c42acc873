"""How flags, the environment and a config file combine into the settings, and where each value came from.

Promise: flags override `TURNWIRE_*` variables, which override the config file, which overrides the defaults. An unknown
name, a wrong type or an impossible value is a SettingsError that names the place: the flag, the variable, or the file
with its line.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from turnwire.gateway.settings import ONE_MODEL, ModelSettings, Settings, SettingsError, ToolSettings, sizes
from turnwire.gateway.setup.dynamo import FLAG_NAMES, Carried, flags_carried_over, variables_carried_over
from turnwire.gateway.setup.sizes import bytes_of, spelled

__all__ = ["Loaded", "load", "load_settings"]

# Variables that belong to clients, to tests, or name the file itself.
_OTHER_VARIABLES = frozenset({"CONFIG", "URL", "API_KEY", "END", "SHARED", "EXAMPLES"})
_TABLES = ("models", "tools")
_LISTS = frozenset(
    name for name, hint in get_type_hints(Settings).items() if get_origin(hint) is tuple and name not in _TABLES
)
_NAMES = tuple(field.name for field in msgspec.structs.fields(Settings) if field.name not in _TABLES)
_MODEL_NAMES = tuple(field.name for field in msgspec.structs.fields(ModelSettings))
_SIZES, _TOOL_SIZES = sizes(Settings), sizes(ToolSettings)
_PLACE = re.compile(r" - at `\$(.*)`$")


class Loaded(msgspec.Struct, frozen=True):
    """The settings, where each one that is not a default was set, and notes on what means nothing here. Places in the
    `[[model]]` tables are called `models[0]` (the table) and `models[0].engine`."""

    settings: Settings
    origins: dict[str, str]
    notes: tuple[str, ...] = ()


class _File:
    """A config file: its values, and the line each was written on."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._text = Path(path).read_text(encoding="utf-8")
            self.values: dict[str, Any] = tomllib.loads(self._text)
        except FileNotFoundError:
            raise SettingsError(f"The config file {path} does not exist; make one with: turnwire config init") from None
        except OSError as error:
            raise SettingsError(f"The config file {path} cannot be read: {error.strerror}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"The config file {path} is not valid TOML: {error}") from None

    def place(self, name: str, table: int | None = None) -> str:
        """`FILE:LINE` of a setting; `table` counts the `[[model]]` tables. TOML's reader keeps no lines, so the line is
        the first one of the right table that begins with the name."""
        spelled = re.compile(rf"""\s*["']?{re.escape(name).replace("_", "[-_]")}["']?\s*[=.]""")
        header = re.compile(rf"\s*\[\[?\s*(?:model\s*\.\s*)?{re.escape(name)}\s*\]")
        at, inside = -1, False
        for number, line in enumerate(self._text.splitlines(), 1):
            if re.match(r"\s*\[\[\s*model\s*\]\]", line):
                at, inside = at + 1, True
                if name == "model" and table in (None, at):
                    return f"{self.path}:{number}"
            elif line.lstrip().startswith("[") and not header.match(line):
                inside = inside and re.match(r"\s*\[\s*model\s*\.", line) is not None
            if (at == table if table is not None else not inside) and (spelled.match(line) or header.match(line)):
                return f"{self.path}:{number}"
        return self.path


def load_settings(flags: Mapping[str, Any], *, config: str | None, environ: Mapping[str, str]) -> Settings:
    """The settings alone; see `load`."""
    return load(flags, config=config, environ=environ).settings


def load(flags: Mapping[str, Any], *, config: str | None, environ: Mapping[str, str]) -> Loaded:
    """Combine the three sources. `flags` holds only what the command line really said (None means unsaid)."""
    file = _File(config) if config else None
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    notes: list[str] = []
    _take_dynamo(variables_carried_over(environ), values, origins, notes)
    if file is not None:
        _take_file(file, values, origins)
    named = {model.get("key_env") for model in values.get("models", ()) if isinstance(model, dict)}
    for variable, name, value in _variables(environ, {str(each) for each in (named | {values.get("engine_key_env")})}):
        values[name], origins[name] = value, variable
    _take_dynamo(flags_carried_over(flags), values, origins, notes)
    for name, value in flags.items():
        if value is not None and value != () and name not in FLAG_NAMES:
            values[name], origins[name] = value, f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
    if values.get("models"):
        _refuse_both(origins)
    for name in _SIZES & values.keys():
        values[name] = _size(values[name], name, origins[name])
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(_wrong(str(error), origins, file)) from None
    _check_models(settings, file)
    return Loaded(settings, origins, tuple(notes))


def _take_dynamo(found: Iterable[Carried], values: dict[str, Any], origins: dict[str, str], notes: list[str]) -> None:
    for one in found:
        notes.append(f"{one.place}: {one.about}")
        if one.setting is not None:
            values[one.setting], origins[one.setting] = one.value, one.place


def _take_file(file: _File, values: dict[str, Any], origins: dict[str, str]) -> None:
    for key, value in file.values.items():
        name = key.replace("-", "_")
        if name == "model" and isinstance(value, list):
            values["models"] = [_table(file, number, table) for number, table in enumerate(value)]
            origins["models"] = file.place("model")
            for number, table in enumerate(values["models"]):
                origins[f"models[{number}]"] = file.place("model", number)
                origins |= {f"models[{number}].{each}": file.place(each, number) for each in table}
            continue
        if name == "tools" and isinstance(value, dict):
            values["tools"] = {label: _tool(file, label, table) for label, table in value.items()}
            origins["tools"] = file.place("tools")
            continue
        if name not in _NAMES:
            raise SettingsError(f"{file.place(key)}: unknown setting '{key}'.{_hint(name, _NAMES)}")
        if value == "":
            # As `turnwire config init` shows a setting that has no value.
            continue
        values[name], origins[name] = value, file.place(name)


def _tool(file: _File, label: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict) or "mcp" not in table:
        raise SettingsError(f"{file.path}: write [tools.{label}] with `mcp`: an address, or a command as a list.")
    known = {key.replace("-", "_"): value for key, value in table.items()}
    names = [field.name for field in msgspec.structs.fields(ToolSettings)]
    for name in known:
        if name not in names:
            raise SettingsError(f"{file.place(name)}: unknown setting '{name}' of [tools.{label}].{_hint(name, names)}")
    return known | {name: _size(known[name], name, file.place(name)) for name in _TOOL_SIZES & known.keys()}


def _size(value: Any, name: str, place: str) -> Any:
    """A size that was written as text, in bytes; any other value as it is, for the check of its type."""
    try:
        return bytes_of(value) if isinstance(value, str) else value
    except ValueError as error:
        raise SettingsError(f"{place}: '{name}' has a wrong value: {error}") from None


def _table(file: _File, number: int, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise SettingsError(f"{file.path}: write models as [[model]] tables.")
    known: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in _MODEL_NAMES:
            hint = _hint(name, _MODEL_NAMES)
            raise SettingsError(f"{file.place(key, number)}: unknown setting '{key}' of a model.{hint}")
        known[name] = value
    if "name" not in known:
        raise SettingsError(f"{file.place('model', number)}: every [[model]] needs a name.")
    return known


def _variables(environ: Mapping[str, str], others: set[str]) -> Iterable[tuple[str, str, Any]]:
    """The variables that are settings and not empty. One with a name that is not a setting is an error: a typing error
    would go unnoticed."""
    for variable, value in environ.items():
        if not variable.startswith("TURNWIRE_") or variable in others:
            continue
        name = variable.removeprefix("TURNWIRE_").lower()
        if name in _NAMES and not value:
            continue
        if name in _NAMES:
            yield variable, name, value.split(",") if name in _LISTS else value
        elif name.upper() not in _OTHER_VARIABLES:
            close = difflib.get_close_matches(name, _NAMES, 3)
            hint = f" Did you mean {' or '.join(f'TURNWIRE_{each.upper()}' for each in close)}?" if close else ""
            raise SettingsError(f"The environment variable {variable} is not a setting.{hint}")


def _refuse_both(origins: Mapping[str, str]) -> None:
    for name in ONE_MODEL:
        if name in origins:
            raise SettingsError(
                f"{origins[name]} describes the one model of a gateway, but {origins['models']} has [[model]] tables: "
                "write it into the table of its model."
            )


def _wrong(message: str, origins: Mapping[str, str], file: _File | None) -> str:
    """msgspec's words with the place where the value was set."""
    found = _PLACE.search(message)
    path = found.group(1) if found else ""
    words = _PLACE.sub("", message).replace("`", "'")
    in_model = re.match(r"\.models\[(\d+|\.\.\.)\]\.?(\w*)(.*)", path)
    if in_model and file is not None:
        words = _choices_named(words, ModelSettings, in_model.group(2))
        return _wrong_model(words, in_model.group(2), in_model.group(3), file)
    name = re.match(r"\.(\w+)", path)
    if name is None:
        return f"A setting has a wrong value: {words}"
    words = _choices_named(words, Settings, name.group(1))
    bound = re.fullmatch(r"Expected 'int' ([<>]=) ([0-9]+)", words) if name.group(1) in _SIZES else None
    words = f"it must be {bound[1]} {spelled(int(bound[2]))}" if bound else words
    return f"{origins.get(name.group(1), 'a setting')}: '{name.group(1)}' has a wrong value: {words}"


def _choices_named(words: str, kind: type[msgspec.Struct], name: str) -> str:
    """Words on a value that is not among a setting's choices, with the choices; other words as they are."""
    said = re.fullmatch(r"Invalid enum value '(.*)'", words, re.DOTALL)
    choices = _choices(get_type_hints(kind).get(name)) if said else []
    return f"'{said[1]}' is none of {', '.join(choices)}.{_hint(said[1], choices)}" if said and choices else words


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [choice for part in get_args(hint) for choice in _choices(part)]


def _wrong_model(words: str, name: str, rest: str, file: _File) -> str:
    """msgspec does not number the tables: the wrong one is the first that does not convert by itself."""
    for number, table in enumerate(file.values["model"]):
        try:
            msgspec.convert({key.replace("-", "_"): value for key, value in table.items()}, ModelSettings, strict=False)
        except msgspec.ValidationError:
            inner = re.match(r"\.(\w+)", rest)
            place = file.place(inner.group(1) if inner else name, number)
            return f"{place}: '{name}{rest}' of a model has a wrong value: {words}"
    return f"{file.path}: a model has a wrong value: {words}"


def _check_models(settings: Settings, file: _File | None) -> None:
    """What is wrong between the tables: a name twice, a fallback that is not there, two engines' words."""
    seen: dict[str, int] = {}
    roles: dict[str, int] = {}
    names = {model.name for model in settings.models}
    for number, model in enumerate(settings.models):
        assert file is not None
        for name in (model.name, *model.aliases):
            if seen.setdefault(name, number) != number:
                raise SettingsError(f"{file.place('name', number)}: two models are called '{name}'.")
        for role in model.roles:
            if roles.setdefault(role, number) != number:
                raise SettingsError(f"{file.place('roles', number)}: two models have the role '{role}'.")
        for name in model.fallbacks:
            if name not in names or name == model.name:
                place = file.place("fallbacks", number)
                raise SettingsError(f"{place}: the fallback '{name}' is not another model.{_hint(name, names)}")
        if model.engine and model.engines:
            raise SettingsError(f"{file.place('engines', number)}: give 'engine' or 'engines', not both.")
        if model.key_env and model.key_file:
            raise SettingsError(f"{file.place('key_file', number)}: give 'key_env' or 'key_file', not both.")


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3)
    return f" Did you mean {' or '.join(close)}?" if close else ""
