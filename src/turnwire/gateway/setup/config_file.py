"""The config file as `turnwire config init` writes it: every setting with its meaning and default, as comments.

Promise: the text is made from the settings themselves, so it names all of them and no others; read back unchanged it
gives the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.gateway.settings import ModelSettings, Settings, ToolSettings, described, sizes
from turnwire.gateway.setup.sizes import spelled

__all__ = ["GROUPS", "commented_file"]

GROUPS: Mapping[str, str] = {
    "host": "Where it listens",
    "model": "The model, where there is only one (several: see the end of this file)",
    "history_thinking": "How prompts are written and answers sent",
    "seal_key": "What outlives a restart",
    "keys": "Who may use it",
    "log_format": "What it writes down",
    "keepalive": "Times (seconds) and load",
    "max_body": "Limits (sizes with a unit, such as 64KiB, or in bytes)",
}
"""The heading above each first setting of a group, in the order of the settings."""

_EXAMPLE: Mapping[str, Any] = {
    "name": "coder",
    "aliases": ["qwen3-coder"],
    "engine": "http://127.0.0.1:8000",
    "upstream_model": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    "key_env": "CODER_KEY",
    "roles": ["default", "opus", "sonnet"],
    "fallbacks": ["small"],
}


def commented_file() -> str:
    """The text of a config file in which everything is commented out."""
    lines = [
        "# Settings of `turnwire serve`. Every line shows a default; remove the leading # to change it.",
        "# Flags override TURNWIRE_* variables, which override this file. Check it with: turnwire config check FILE",
    ]
    texts = described(Settings)
    for field in msgspec.structs.fields(Settings):
        if field.name in ("models", "tools"):
            continue
        if field.name in GROUPS:
            lines += ["", f"# --- {GROUPS[field.name]} ---", ""]
        lines += [f"# {texts[field.name]}", f"#{field.name} = {_default(Settings, field)}"]
    lines += ["", "# --- Several models: one table each, instead of the settings of the one model above ---", ""]
    lines.append("#[[model]]")
    texts = described(ModelSettings)
    for field in msgspec.structs.fields(ModelSettings):
        if field.name == "defaults":
            continue
        value = _EXAMPLE.get(field.name, field.default)
        lines.append(f"#{field.name} = {_toml(value)}".ljust(44) + f" # {texts[field.name]}")
    lines.append("#defaults = { max_tokens = 4096, temperature = 0.7 }".ljust(44) + f" # {texts['defaults']}")
    lines += ["", "# --- Tools that the gateway runs: the vendors' own, or the label of an MCP server ---", ""]
    lines.append("#[tools.web_search]")
    texts = described(ToolSettings)
    for field in msgspec.structs.fields(ToolSettings):
        value = _toml("https://search.example/mcp") if field.name == "mcp" else _default(ToolSettings, field)
        lines.append(f"#{field.name} = {value}".ljust(44) + f" # {texts[field.name]}")
    return "\n".join(lines) + "\n"


def _default(kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> str:
    return _toml(spelled(field.default) if field.name in sizes(kind) else field.default)


def _toml(value: Any) -> str:
    """A value as TOML writes it; a setting without a value is shown as an empty string."""
    if value is None or value is msgspec.NODEFAULT:
        return '""'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return msgspec.json.encode(value).decode()
