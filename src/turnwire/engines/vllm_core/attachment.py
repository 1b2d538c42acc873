"""What the engine cores at an address reported when they were ready, kept for the next process that binds it.

Promise: a frontend that is started again finds what it needs to go on with running cores, which say it only once; a
file that is missing, foreign or damaged means that nothing is known, never an error.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import msgspec

from turnwire.engines.vllm_core.layouts import Ready
from turnwire.unreadable import UNREADABLE

__all__ = ["Attachment", "recall", "remember", "state_file"]


class Attachment(msgspec.Struct):
    """What the cores reported, by rank, and the sizes of their vocabularies, which only a probe shows."""

    cores: dict[int, Ready]
    vocabularies: dict[int, int]


def state_file(address: str) -> Path:
    """Where the state of an address is kept: the user's state folder."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "turnwire" / f"vllm-core-{re.sub(r'[^A-Za-z0-9.]+', '-', address)}.json"


def recall(file: Path) -> Attachment | None:
    """What was kept, if it can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Attachment)
    except (*UNREADABLE, OSError):
        return None


def remember(file: Path, attachment: Attachment) -> None:
    """Replace what was kept. OSError where the folder cannot be written, TypeError or ValueError where what a core
    reported is nothing that JSON holds."""
    data = msgspec.json.encode(attachment)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as scratch:
            scratch.write(data)
        os.replace(name, file)
    except OSError:
        os.unlink(name)
        raise
