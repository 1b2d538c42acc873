"""Capture files: compressed, rotating, bounded, written beside the event loop.

Promise: no file grows beyond its size and the folder not beyond its own; the oldest files leave first. A turn is on
disk as soon as it was written, also if the process dies. What cannot be written in time is dropped, counted and said.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from turnwire.capture.format import MASKED, CapturedTurn, CaptureHead, encode_line

__all__ = ["SUFFIX", "CaptureFiles", "CaptureWriter"]

log = logging.getLogger("turnwire.capture")

SUFFIX = ".capture.jsonl.zst"
# Turns of one session repeat each other: a long window makes the repetition free.
_WINDOW_LOG = 24


class CaptureFiles:
    """The files of one process in a folder: the newest is written to. `spell` gives the text of a model's token."""

    def __init__(
        self, folder: str, head: CaptureHead, spell: Callable[[str, int], str], *, file_bytes: int, folder_bytes: int
    ) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._head = head
        self._spell = spell
        self._spelled: set[tuple[str, int]] = set()
        self._file_bytes = file_bytes
        self._folder_bytes = folder_bytes
        self._number = 0
        self._file: Any = None
        self._stream: Any = None

    def write(self, turn: CapturedTurn) -> None:
        """Append a turn and flush it."""
        if self._stream is None:
            self._begin()
        self._put(encode_line(self._with_new_words(turn)))
        if self._file.tell() >= self._file_bytes:
            self.close()

    def close(self) -> None:
        """End the current file; the next turn begins another."""
        if self._stream is not None:
            self._stream.flush(zstandard.FLUSH_FRAME)
            self._file.close()
            self._stream = self._file = None

    def _with_new_words(self, turn: CapturedTurn) -> CapturedTurn:
        """The turn with the text of every id that this file has not spelled yet."""
        new = {(turn.model, token) for token in {*turn.prompt.ids, *turn.output_ids} if token != MASKED} - self._spelled
        self._spelled |= new
        return msgspec.structs.replace(turn, spelled={token: self._spell(model, token) for model, token in sorted(new)})

    def _begin(self) -> None:
        self._spelled.clear()
        self._number += 1
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = self._folder / f"{stamp}-{os.getpid()}-{self._number:03d}{SUFFIX}"
        # Only its owner may read what clients said.
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        shape = zstandard.ZstdCompressionParameters.from_level(3, window_log=_WINDOW_LOG, enable_ldm=True)
        self._stream = zstandard.ZstdCompressor(compression_params=shape).stream_writer(self._file, closefd=False)
        self._put(encode_line(self._head))
        self._make_room(path)

    def _put(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush(zstandard.FLUSH_BLOCK)
        self._file.flush()

    def _make_room(self, current: Path) -> None:
        """Remove the oldest files until one more file fits."""
        files = sorted(self._folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
        sizes = {path: path.stat().st_size for path in files}
        left = sum(sizes.values())
        for path in files:
            if left + self._file_bytes <= self._folder_bytes or path == current:
                return
            path.unlink(missing_ok=True)
            left -= sizes[path]


class CaptureWriter:
    """A thread that makes and writes what it is given. `made` turns what was collected of a turn into its line."""

    def __init__(
        self, files: CaptureFiles, *, pending_bytes: int = 64 << 20, counted: Callable[[str], None] = lambda _: None
    ) -> None:
        self._files = files
        self._pending_bytes = pending_bytes
        self._counted = counted
        self._pending = 0
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Callable[[], CapturedTurn], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def put(self, make: Callable[[], CapturedTurn], size: int) -> None:
        """Write what `make` returns; `size` is about how many bytes wait for it. Never blocks."""
        with self._lock:
            full = self._pending + size > self._pending_bytes
            if not full:
                self._pending += size
        if full:
            self._counted("dropped")
            log.warning("a turn was not captured: more than %d bytes wait to be written", self._pending_bytes)
            return
        self._queue.put((make, size))

    def close(self) -> None:
        """Write what waits, then end."""
        self._queue.put(None)
        self._thread.join(30)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            make, size = item
            try:
                self._files.write(make())
                self._counted("written")
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                self._counted("failed")
                log.error("a turn was not captured: %s", error)
            finally:
                with self._lock:
                    self._pending -= size
        self._files.close()
