"""The API key that an engine wants: from an environment variable or from a file, never from the command line.

Promise: a key that is named but missing is an error that says where it was looked for; the key itself is in no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["EngineKeyError", "engine_key"]

_LONGEST = 16 * 1024


class EngineKeyError(ValueError):
    """A key that cannot be read; the message says where it was looked for."""


def engine_key(variable: str | None, file: str | None, environ: Mapping[str, str]) -> str | None:
    """The key, or None where none is named."""
    if variable and file:
        raise EngineKeyError("An engine's key comes from a variable or from a file: give one of the two.")
    if variable:
        return _usable(environ.get(variable, ""), f"the environment variable {variable}")
    if file:
        path = Path(file).expanduser()
        try:
            with path.open("rb") as opened:
                text = opened.read(_LONGEST).decode("utf-8")
        except OSError as error:
            raise EngineKeyError(f"The engine's key file {path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise EngineKeyError(f"The engine's key file {path} is not text.") from None
        return _usable(text, f"the file {path}")
    return None


def _usable(text: str, place: str) -> str:
    key = text.strip()
    if not key:
        raise EngineKeyError(f"The engine's key should come from {place}, which is empty or not set.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise EngineKeyError(f"The engine's key in {place} is not a key: it is more than one word, or not plain ASCII.")
    return key
