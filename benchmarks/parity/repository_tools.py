"""Three tools for `turnwire chat --tools`: what a small model needs to mend one file.

Promise: nothing outside the working folder is read or written.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def read_file(path: str) -> str:
    """Read a file of the repository.

    Args:
        path: For example clamp.py.
    """
    return _inside(path).read_text(encoding="utf-8")


def write_file(path: str, content: str) -> str:
    """Replace a file of the repository.

    Args:
        path: For example clamp.py.
        content: The whole new text of the file.
    """
    _inside(path).write_text(content, encoding="utf-8")
    return "written"


def run_check() -> str:
    """Run check.py; it says nothing when all is well."""
    done = subprocess.run([sys.executable, "check.py"], capture_output=True, text=True, timeout=20, check=False)
    return (done.stdout + done.stderr)[-600:] or "all is well"


def _inside(path: str) -> Path:
    home = Path.cwd().resolve()
    wanted = (home / path).resolve()
    if not wanted.is_relative_to(home):
        raise ValueError(f"{path} is outside the repository")
    return wanted
