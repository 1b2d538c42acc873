"""Runs a client program to its end, or to the end of its time.

Promise: nothing of it is left running afterwards, its children included.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["execute"]


async def execute(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float, kept: int = 2000
) -> tuple[int | None, str]:
    """Run a program in a process group of its own; its status, None where its time was over, and the last `kept` bytes
    of what it said."""
    with tempfile.TemporaryFile() as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise ValueError(f"the client cannot be started: {error}") from None
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            pass
        status = process.returncode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - kept))
        return status, output.read().decode("utf-8", "replace")
