"""The flags that say what a gateway is, made from its settings.

Promise: every setting that is one value or a list is a flag, with the setting's own description and default. Help shows
those of `_SHOWN`; the others work as well, and docs/settings.md lists them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec
from msgspec import inspect

from turnwire.gateway.settings import Settings, described, sizes
from turnwire.gateway.setup.dynamo import ROWS, row_name
from turnwire.gateway.setup.sizes import spelled

__all__ = ["gateway_flags"]

_SHOWN = (
    *("host", "port", "workers", "model", "alias", "engine", "engine_key_env", "engine_key_file", "upstream_model"),
    *("dialect", "reasoning", "template", "tokenizer", "gpu_layers", "profiles", "window", "history_thinking"),
    *("tool_order", "seal_key", "seal_key_file", "store", "memory", "keys", "allow_anonymous", "tls_cert", "tls_key"),
    *("usage", "capture", "record", "enable_streaming_tool_dispatch", "log_level", "log_format", "traces"),
    "push_metrics",
)
_TABLES = ("models", "tools")
_SIZES = sizes(Settings)
_PATHS = frozenset({"engine_key_file", "template", "profiles", "seal_key_file", "keys", "tls_cert", "tls_key", "usage"})


def gateway_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags of a gateway; each one's value is None (a list's: empty) where it was not said."""
    for option in reversed(_options()):
        command = option(command)
    return command


def _options() -> list[Callable[..., Any]]:
    words = described(Settings)
    fields = {field.name: field for field in inspect.type_info(Settings).fields}  # type: ignore[attr-defined]
    names = [*_SHOWN, *(name for name in fields if name not in (*_SHOWN, *_TABLES))]
    return [
        *(_option(fields[name], words[name], shown=name in _SHOWN) for name in names),
        click.option("--config", type=click.Path(), help="TOML file with the same names as the flags."),
        # A launch line of NVIDIA Dynamo's frontend means the same here; docs/gateway.md has the table.
        *(
            click.option(row.flag, row_name(row), is_flag=row.switch, default=None, hidden=True)
            for row in ROWS
            if row.flag is not None
        ),
    ]


def _option(field: inspect.Field, words: str, *, shown: bool) -> Callable[..., Any]:
    flag, kind = f"--{field.name.replace('_', '-')}", _type(field.type)
    if isinstance(kind, inspect.BoolType):
        both = f"{flag}/--no-{flag[2:]}" if field.default else flag
        return click.option(both, field.name, is_flag=True, default=None, help=words, hidden=not shown)
    several = isinstance(kind, inspect.VarTupleType)
    default = spelled(field.default) if field.name in _SIZES else field.default
    said = f"{words}  [default: {default}]" if default not in (None, (), msgspec.NODEFAULT) else words
    return click.option(
        flag,
        type=_click_type(field.name, kind),
        metavar="SIZE" if field.name in _SIZES else None,
        multiple=several,
        help=f"{words} May be given several times." if several else said,
        hidden=not shown,
    )


def _type(found: inspect.Type) -> inspect.Type:
    """A setting's type, without its bounds and without None."""
    if isinstance(found, inspect.Metadata):
        return _type(found.type)
    if isinstance(found, inspect.UnionType):
        return next(_type(part) for part in found.types if not isinstance(part, inspect.NoneType))
    return found


def _click_type(name: str, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.LiteralType):
        return click.Choice([str(value) for value in kind.values])
    if isinstance(kind, inspect.IntType) and name not in _SIZES:
        return int
    if isinstance(kind, inspect.FloatType):
        return float
    return click.Path() if name in _PATHS else str
