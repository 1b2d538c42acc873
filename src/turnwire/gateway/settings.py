"""Every setting of the gateway in one frozen value, and how flags, a config file and the environment combine into it.

Promise: flags override the config file, which overrides `TURNWIRE_*` variables, which override the defaults; an unknown
key or a wrong type is an error that names the key and the close ones.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

__all__ = ["Settings", "SettingsError", "load_settings"]


class SettingsError(ValueError):
    """A setting that cannot be used; the message says which and what to change."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `turnwire serve` runs with. Times are seconds, sizes bytes, unless the name says otherwise."""

    host: str = "127.0.0.1"
    port: int = 8000
    model: str | None = None
    alias: tuple[str, ...] = ()
    engine: str = "embedded"
    engine_key_env: str | None = None
    engine_key_file: str | None = None
    upstream_model: str | None = None
    dialect: str = "auto"
    reasoning: str | None = None
    template: str | None = None
    tokenizer: str | None = None
    profiles: str | None = None
    window: int | None = None
    history_thinking: Literal["keep", "model", "drop"] | None = None
    tool_order: Literal["sent", "canonical"] = "sent"
    hoist_system: bool = True
    seal_key: str | None = None
    seal_key_file: str | None = None
    store: str | None = None
    keys: str | None = None
    allow_anonymous: bool = False
    allowed_hosts: tuple[str, ...] = ()
    record: str | None = None
    turns: int = 1000
    traces: str | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    enable_streaming_tool_dispatch: bool = False
    websocket: bool = True

    keepalive: float = 10.0
    idle_timeout: float = 300.0
    stall_timeout: float = 60.0
    drain_timeout: float = 30.0
    concurrency: int = 256
    queue: int = 1024
    queue_timeout: float = 120.0
    max_body: int = 32 * 1024 * 1024
    max_depth: int = 128
    max_messages: int = 50_000
    max_tools: int = 2_048
    max_schema: int = 1024 * 1024
    max_pattern: int = 4_096
    max_grammar: int = 256 * 1024
    max_choices: int = 16
    max_stops: int = 64
    max_stop_chars: int = 4_096
    max_images: int = 256
    max_image: int = 16 * 1024 * 1024
    template_steps: int = 5_000_000
    allow_urls: bool = False
    max_head: int = 64 * 1024
    max_headers: int = 256
    request_timeout: float = 120.0


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    names = {field.name for field in msgspec.structs.fields(Settings)}
    found: dict[str, Any] = {}
    for key, value in environ.items():
        name = key.removeprefix("TURNWIRE_").lower()
        if key.startswith("TURNWIRE_") and name in names:
            found[name] = value.split(",") if name in ("alias", "allowed_hosts") else value
    return found


def _file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"The config file {path} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The config file {path} is not valid TOML: {error}") from None


def load_settings(flags: Mapping[str, Any], *, config: str | None, environ: Mapping[str, str]) -> Settings:
    """Combine the three sources. `flags` holds only what the command line really said (None means unsaid)."""
    merged: dict[str, Any] = _environment(environ)
    from_file = _file(config) if config else {}
    names = [field.name for field in msgspec.structs.fields(Settings)]
    for key, value in from_file.items():
        name = key.replace("-", "_")
        if name not in names:
            close = difflib.get_close_matches(name, names, n=3)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            raise SettingsError(f"{config}: unknown setting '{key}'.{hint}")
        merged[name] = value
    merged.update({key: value for key, value in flags.items() if value is not None and value != ()})
    try:
        return msgspec.convert(merged, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"A setting has a wrong value: {error}") from None
