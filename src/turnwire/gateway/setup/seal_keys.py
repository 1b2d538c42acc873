"""The keys that seal turns: given, read from a file, or made once and kept for the user.

Promise: a restart opens the seals of the run before it; a key file is its owner's only; of several keys in a file
the first one seals and all of them open.
"""

from __future__ import annotations

import base64
import os
import secrets
import time
from pathlib import Path

from turnwire.gateway.settings import Settings

__all__ = ["SealKeyError", "default_key_file", "seal_keys"]

# How often a file that is still empty is read again, and after how many seconds.
_LOOKS, _LOOK_S = 10, 0.05


class SealKeyError(ValueError):
    """A seal key that cannot be used; the message says what to change."""


def default_key_file() -> Path:
    """Where the key of a user's own gateway is kept."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "turnwire" / "seal.key"


def seal_keys(settings: Settings) -> list[bytes]:
    """The keys in force: `--seal-key`, else `--seal-key-file`, else the user's own file."""
    if settings.seal_key is not None:
        return [_long_enough(settings.seal_key, "--seal-key")]
    path = Path(settings.seal_key_file).expanduser() if settings.seal_key_file else default_key_file()
    try:
        return _read(path) if path.exists() else [_made(path)]
    except OSError as error:
        if settings.seal_key_file is None:
            # A home that cannot be written costs only the replay of turns across restarts.
            return [secrets.token_bytes(32)]
        raise SealKeyError(f"The seal key file {path} cannot be used: {error.strerror}.") from None


def _read(path: Path) -> list[bytes]:
    text = path.read_text(encoding="utf-8")
    for _ in range(_LOOKS):
        if text.strip():
            break
        # Another process that starts just now has made the file and is about to write it.
        time.sleep(_LOOK_S)
        text = path.read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    keys = [_long_enough(line, str(path)) for line in lines if line and not line.startswith("#")]
    if not keys:
        raise SealKeyError(f"The seal key file {path} is empty; delete it to have one made.")
    return keys


def _made(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        # Another process was faster; its key is the key.
        return _read(path)[0]
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    return text.encode()


def _long_enough(text: str, place: str) -> bytes:
    if len(text.encode()) < 16:
        raise SealKeyError(f"{place}: a seal key needs at least 16 bytes; make one with: openssl rand -base64 32")
    return text.encode()
