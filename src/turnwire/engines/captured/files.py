"""Finds and reads the files of a capture.

Promise: a file, or a folder with every capture file in it; what cannot be read is an EngineError that says what to
change.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from turnwire.capture.format import CaptureError
from turnwire.capture.reading import Capture, read_capture

__all__ = ["capture_files", "load_capture"]


def capture_files(place: str) -> list[Path]:
    """The files of a capture, oldest first, or CaptureError."""
    path = Path(place).expanduser()
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.capture.jsonl*"))
    if not files:
        raise CaptureError(f"The folder {place} holds no capture (*.capture.jsonl.zst).")
    return files


def load_capture(place: str) -> Capture:
    """Everything that was captured there, or CaptureError."""
    with ExitStack() as stack:
        try:
            streams = [stack.enter_context(path.open("rb")) for path in capture_files(place)]
            return read_capture(*streams)
        except OSError as error:
            raise CaptureError(f"The capture {place} cannot be read: {error.strerror}.") from None
