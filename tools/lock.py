"""Writes the lock files: every package that an installation brings, with its version and the hashes of its files.

Promise: `python tools/lock.py` resolves anew (it needs `uv` and a package index); `--check` needs neither and says
whether the lock files name everything that pyproject.toml asks for.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {
    "server": ("server", "embedded", "redis", "otel", "fast", "kv-events"),
    "dev": ("server", "embedded", "dev", "docs"),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def lock_file(name: str) -> Path:
    """Where a lock file lies."""
    return ROOT / "requirements" / f"{name}.lock"


def write(name: str) -> None:
    """Resolve the extras of a lock file for every supported Python."""
    extras = [word for extra in LOCKS[name] for word in ("--extra", extra)]
    options = ["--universal", "--python-version", "3.11", "--generate-hashes"]
    quiet = ["--quiet", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header"]
    command = [sys.executable, "-m", "uv", "pip", "compile", *options, *quiet, *extras, "pyproject.toml"]
    subprocess.run([*command, "--output-file", str(lock_file(name))], cwd=ROOT, check=True)  # noqa: S603


def locked(name: str) -> dict[str, str]:
    """The packages of a lock file with their versions."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock_file(name).read_text(encoding="utf-8"), re.MULTILINE)
    return {_plain(package): version for package, version in found}


def asked(name: str) -> set[str]:
    """The packages that pyproject.toml names for a lock file, ours left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in LOCKS[name]:
        lines += project["optional-dependencies"][extra]
    names = {_plain(found[0]) for line in lines if (found := _NAME.match(line))}
    if "turnwire" in names:
        inner = {extra for line in lines if line.startswith("turnwire[") for extra in line[9:-1].split(",")}
        for extra in inner | {"agent"}:
            names |= {
                _plain(found[0]) for line in project["optional-dependencies"][extra] if (found := _NAME.match(line))
            }
    return names - {"turnwire"}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    if "--check" in sys.argv:
        missing = {name: sorted(asked(name) - set(locked(name))) for name in LOCKS}
        told = [
            f"requirements/{name}.lock lacks {', '.join(packages)}" for name, packages in missing.items() if packages
        ]
        sys.exit("; ".join([*told, "run: python tools/lock.py"]) if told else 0)
    for name in LOCKS:
        write(name)
