"""Gateways that run on this machine, as they announced themselves: one small file each in the user's state folder.

Promise: a file is there while its gateway runs and holds no secret; one whose process is gone is ignored and removed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["announced", "running_gateways"]


def _folder(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "turnwire" / "gateways"


@contextlib.contextmanager
def announced(url: str, environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Announce the gateway of this process while it runs. Where nothing can be written nobody finds it, that is all."""
    path = _folder(environ) / f"{os.getpid()}.json"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(json.dumps({"url": url}), encoding="utf-8")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def running_gateways(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The addresses of those that run, the newest first."""
    found: list[tuple[float, str]] = []
    folder = _folder(environ)
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if _lives(int(path.stem)):
                found.append((path.stat().st_mtime, str(json.loads(path.read_text(encoding="utf-8"))["url"])))
            else:
                path.unlink()
    return [url for _, url in sorted(found, reverse=True)]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
