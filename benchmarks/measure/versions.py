"""Which source was measured: the commit of a clone, or the git tree of a source that is no commit's.

Promise: a stamp is made from the source itself, never typed in. Where there is no history, or the source differs from
it, that is `tree` and the name that git gives to the folder `src/turnwire`; `named` finds the commit that has this
folder. What a run writes beside the source, such as its results, changes no stamp.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

__all__ = ["commit", "named", "tree_of"]

PACKAGE = "src/turnwire"
_SHOWN = 12
_MOST_COMMITS = 500


def commit(source: Path) -> str:
    """The version of a checkout."""
    head = _git(source, "rev-parse", "--short=7", "HEAD")
    if head and not _git(source, "status", "--porcelain", "--", PACKAGE):
        return head
    return f"tree {tree_of(source / PACKAGE).hex()[:_SHOWN]}"


def named(stamp: str, clone: Path) -> str:
    """The newest commit whose source a stamp names; the stamp itself where it names none, or is a commit already."""
    kind, _, wanted = stamp.partition(" ")
    if kind != "tree" or not wanted:
        return stamp
    for found in _git(clone, "log", f"-{_MOST_COMMITS}", "--format=%h").split():
        if _git(clone, "rev-parse", f"{found}:{PACKAGE}").startswith(wanted):
            return found
    return stamp


def tree_of(folder: Path) -> bytes:
    """The name of a folder as git would store it. What Python leaves behind is not part of it."""
    entries: list[tuple[str, bytes]] = []
    for path in folder.iterdir():
        if path.name == "__pycache__" or path.suffix == ".pyc":
            continue
        if path.is_dir():
            # Git sorts a folder as if its name ended with a slash.
            entries.append((path.name + "/", b"40000 " + path.name.encode() + b"\0" + tree_of(path)))
        else:
            mode = b"100755 " if path.stat().st_mode & 0o100 else b"100644 "
            entries.append((path.name, mode + path.name.encode() + b"\0" + _object(b"blob", path.read_bytes())))
    return _object(b"tree", b"".join(entry for _, entry in sorted(entries)))


def _object(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(b"%b %d\0%b" % (kind, len(content), content), usedforsecurity=False).digest()


def _git(folder: Path, *arguments: str) -> str:
    """What git says; nothing where there is no git or no clone."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
