"""Writes docs/settings.md from the settings themselves: name, type, default, and what each one is for.

Promise: `python tools/settings_page.py` brings the page up to date, `--check` only says whether it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from turnwire.gateway.settings import ModelDefaults, ModelSettings, Settings, ToolSettings, described, sizes  # noqa: E402
from turnwire.gateway.setup.sizes import spelled  # noqa: E402

PAGE = ROOT / "docs" / "settings.md"
HEAD = """\
# Settings

<!-- made by tools/settings_page.py -->

Every setting of `turnwire serve`. Each can be given in four ways; the first one that is there wins:

1. a flag, the name with dashes: `--log-format json`
2. an environment variable, `TURNWIRE_` and the name in capitals: `TURNWIRE_LOG_FORMAT=json`
3. the config file, named by `--config FILE` or `TURNWIRE_CONFIG`: `log_format = "json"`
4. the default

`turnwire serve --help` shows the common flags; the others work as well. A switch that is on is turned off by a flag
with `no-`: `--no-websocket`. The flag of a list is given once for each value; in a variable they are separated by
commas. Times are seconds. A size is a number of bytes, or a number with a unit: `kB`, `MB`, `GB`, `TB` (powers of
1,000) or `KiB`, `MiB`, `GiB`, `TiB` (powers of 1,024), in any case: `--memory 2GiB`, `max_body = "64MiB"`. An unknown
name or an impossible value is an error that says where it was set.

```sh
turnwire config init turnwire.toml               # a config file with every setting, commented
turnwire config check turnwire.toml              # names, values, files, keys; nothing is started
turnwire config show --config turnwire.toml      # what is in force, and what set it
```

## The gateway

"""
MODELS = """
## One model: a `[[model]]` table

With `[[model]]` tables a gateway serves several models ([how](gateway.md#several-models)); they replace `model`,
`engine` and the other settings above that describe one model.

"""
TOOLS = """
## A hosted tool: a `[tools.NAME]` table

`NAME` is `web_search`, `web_fetch`, `code_execution`, `bash_code_execution`, `file_search`, or the label of an MCP
server ([how](hosted-tools.md)).

"""
DEFAULTS = """
## `defaults` in a `[[model]]` table

What a request gets that says nothing itself:

"""


def kind(found: inspect.Type) -> str:
    """A type in words."""
    if isinstance(found, inspect.Metadata):
        return kind(found.type)
    if isinstance(found, inspect.UnionType):
        return " or ".join(dict.fromkeys(kind(part) for part in found.types if not isinstance(part, inspect.NoneType)))
    if isinstance(found, inspect.LiteralType):
        return ", ".join(f"`{value}`" for value in found.values)
    if isinstance(found, inspect.IntType | inspect.FloatType):
        word = "whole number" if isinstance(found, inspect.IntType) else "number"
        low = f"{found.ge:,}" if found.ge is not None else f"above {found.gt:,}" if found.gt is not None else ""
        high = f" to {found.le:,}" if found.le is not None else " or more"
        return f"{word}, {low}{high}" if low else word
    if isinstance(found, inspect.VarTupleType):
        return "list" if isinstance(found.item_type, inspect.StrType) else f"list of {kind(found.item_type)}"
    simple = {inspect.BoolType: "true or false", inspect.StrType: "text", inspect.StructType: "table"}
    return next((word for cls, word in simple.items() if isinstance(found, cls)), "list")


def size(found: inspect.Type) -> str:
    """The bounds of a size, as one writes them."""
    bounded = found.type if isinstance(found, inspect.Metadata) else found
    assert isinstance(bounded, inspect.IntType)
    assert bounded.ge is not None
    assert bounded.le is not None
    return f"size, {spelled(bounded.ge)} to {spelled(bounded.le)}"


def default(field: msgspec.structs.FieldInfo) -> str:
    """A default as one writes it."""
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        return "needed" if field.default_factory is msgspec.NODEFAULT else ""
    if value is None or value == () or isinstance(value, msgspec.Struct):
        # A table's own settings have rows of their own.
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}" if value > 9_999 else str(value)
    return f"{value:g}" if isinstance(value, float) else f"`{value}`"


def table(struct: type[msgspec.Struct]) -> str:
    """A row for each setting."""
    words, sized = described(struct), sizes(struct)
    kinds = {field.name: field.type for field in inspect.type_info(struct).fields}  # type: ignore[attr-defined]
    rows = [["setting", "what it is for", "values", "default"], ["---"] * 4]
    for field in msgspec.structs.fields(struct):
        if field.name in ("models", "tools"):
            continue
        said = words[field.name] or "As the request's field of that name."
        if field.name in sized:
            rows.append([f"`{field.name}`", said, size(kinds[field.name]), spelled(field.default)])
        else:
            rows.append([f"`{field.name}`", said, kind(kinds[field.name]), default(field)])
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


def page() -> str:
    """The whole page."""
    parts = (HEAD, table(Settings), MODELS, table(ModelSettings), DEFAULTS, table(ModelDefaults))
    return "".join(parts) + TOOLS + table(ToolSettings)


if __name__ == "__main__":
    if "--check" in sys.argv:
        told = "docs/settings.md is not up to date; run: python tools/settings_page.py"
        sys.exit(told if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page() else 0)
    PAGE.write_text(page(), encoding="utf-8")
