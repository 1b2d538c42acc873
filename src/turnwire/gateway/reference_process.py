"""A process that reads the reference of a tokenizer, says what a faster library is held against, and ends.

Promise: its memory ends with it. Where it cannot be started, fails or takes too long, None is told, and whoever asked
reads the reference itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from turnwire.prompts.tokenizers.evidence import Evidence
from turnwire.prompts.tokenizers.load import evidence_in

__all__ = ["ask_reference", "main"]

_SECONDS = 60.0


def ask_reference(path: Path) -> Callable[[], Evidence | None]:
    """Start it for a `tokenizer.json`; what is returned waits for its answer."""
    command = [sys.executable, "-m", "turnwire.gateway.reference_process", str(path)]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return lambda: None
    return partial(_told, process)


def _told(process: subprocess.Popen[bytes]) -> Evidence | None:
    with process:
        try:
            said, _ = process.communicate(timeout=_SECONDS)
            return msgspec.msgpack.decode(said, type=Evidence)
        except (subprocess.TimeoutExpired, msgspec.MsgspecError):
            process.kill()
            return None


def main() -> None:
    sys.stdout.buffer.write(msgspec.msgpack.encode(evidence_in(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
