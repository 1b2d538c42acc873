#!/usr/bin/env python3
"""Installs the pinned real clients that `make test-clients` drives, each in a cache folder outside the clone.

Promise: safe to run twice, and from several processes at once; the second run only looks at stamps. A folder's name
holds a digest of its pins, so a changed pin installs beside the old one and nothing half-installed is ever used.

    tools/clients.py install                 install everything
    tools/clients.py install claude codex    install these (and what they need)
    tools/clients.py list                    what is pinned, where it lies, whether it is there
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["BUNDLES", "Bundle", "InstallError", "install", "root"]

STAMP = ".installed"
TIMEOUT_S = 600


class InstallError(RuntimeError):
    """A bundle could not be installed; the message holds the installer's last lines."""


@dataclass(frozen=True)
class Bundle:
    """One folder of the cache: what goes in, by which installer, and the command it is there for."""

    name: str
    kind: Literal["npm", "python"]
    pins: tuple[str, ...]
    command: str = ""

    @property
    def folder(self) -> Path:
        digest = hashlib.sha256("\n".join((self.kind, sys.version[:4], *self.pins)).encode()).hexdigest()[:10]
        return root() / f"{self.name}-{digest}"

    @property
    def executable(self) -> Path:
        """The command, or the bundle's Python."""
        if self.kind == "npm":
            return self.folder / "node_modules" / ".bin" / self.command
        return self.folder / "bin" / "python"

    @property
    def installed(self) -> bool:
        return (self.folder / STAMP).is_file()


def _table(*bundles: Bundle) -> dict[str, Bundle]:
    return {bundle.name: bundle for bundle in bundles}


# Node 24 comes first: the other npm bundles are installed and run with it, whatever Node the machine has.
BUNDLES: dict[str, Bundle] = _table(
    Bundle("node", "npm", ("node@24.21.0",), "node"),
    Bundle("claude", "npm", ("@anthropic-ai/claude-code@2.1.325",), "claude"),
    Bundle("codex", "npm", ("@openai/codex@0.166.0",), "codex"),
    # Codex changes its requests often; these stand for the generations that are still in use.
    Bundle("codex-0.160", "npm", ("@openai/codex@0.160.0",), "codex"),
    Bundle("codex-0.150", "npm", ("@openai/codex@0.150.0",), "codex"),
    Bundle("codex-0.142", "npm", ("@openai/codex@0.142.3",), "codex"),
    Bundle("codex-0.100", "npm", ("@openai/codex@0.100.0",), "codex"),
    Bundle("opencode", "npm", ("opencode-ai@1.18.33",), "opencode"),
    Bundle("pi", "npm", ("@earendil-works/pi-coding-agent@0.87.1",), "pi"),
    Bundle("qwen", "npm", ("@qwen-code/qwen-code@0.24.4",), "qwen"),
    Bundle("openclaw", "npm", ("openclaw@2026.9.6",), "openclaw"),
    Bundle(
        "js-sdks",
        "npm",
        (
            "openai@7.53.0",
            "@anthropic-ai/sdk@1.8.0",
            "ai@7.0.169",
            "@ai-sdk/openai@4.0.114",
            "@ai-sdk/anthropic@4.0.102",
            "@ai-sdk/openai-compatible@3.0.90",
            "@ai-sdk/open-responses@2.0.36",
            "zod@4.6.7",
        ),
    ),
    Bundle(
        "py-sdks",
        "python",
        (
            "anthropic==2.8.0",
            "openai==3.49.0",
            "openai-agents==0.24.0",
            "pydantic-ai-slim[openai,anthropic]==2.62.0",
            "langchain-openai==1.7.3",
            "langchain-anthropic==1.7.7",
            "openresponses-types==2.4.0",
        ),
    ),
    # litellm wants openai 2.x, and needs mcp by hand before it can take a tool call.
    Bundle("py-litellm", "python", ("litellm==1.106.2", "mcp==2.3.0")),
    Bundle("py-anthropic-1.17", "python", ("anthropic==1.17.0",)),
    Bundle("py-anthropic-0.75", "python", ("anthropic==0.75.0",)),
)


def root() -> Path:
    """The cache folder: TURNWIRE_CLIENTS, else a folder under the user's cache."""
    if chosen := os.environ.get("TURNWIRE_CLIENTS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "turnwire" / "clients"


def install(names: Iterable[str] = (), *, say: bool = False) -> dict[str, Bundle]:
    """Make sure the named bundles (all, if none is named) are there, and Node with them."""
    wanted = list(names) or list(BUNDLES)
    unknown = [name for name in wanted if name not in BUNDLES]
    if unknown:
        raise InstallError(f"unknown client {', '.join(unknown)}; known are {', '.join(BUNDLES)}")
    chosen = {name: BUNDLES[name] for name in wanted}
    if any(bundle.kind == "npm" for bundle in chosen.values()):
        chosen.setdefault("node", BUNDLES["node"])
        _ensure(BUNDLES["node"], say)
    with ThreadPoolExecutor(max_workers=2) as pool:
        for done in [pool.submit(_ensure, bundle, say) for bundle in chosen.values()]:
            done.result()
    return chosen


def _ensure(bundle: Bundle, say: bool) -> None:
    if bundle.installed:
        return
    root().mkdir(parents=True, exist_ok=True)
    with (root() / f"{bundle.folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if bundle.installed:  # another process was faster
            return
        started = time.monotonic()
        shutil.rmtree(bundle.folder, ignore_errors=True)
        bundle.folder.mkdir(parents=True)
        (_npm if bundle.kind == "npm" else _pip)(bundle)
        if not bundle.executable.exists() and (bundle.command or bundle.kind == "python"):
            raise InstallError(f"{bundle.name}: installed, but {bundle.executable} is missing")
        (bundle.folder / STAMP).write_text("\n".join(bundle.pins) + "\n")
        if say:
            print(f"{bundle.name}: {time.monotonic() - started:.0f} s, {_megabytes(bundle.folder)} MB", flush=True)


def _npm(bundle: Bundle) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("npm is not on the PATH; install Node.js with npm (any version) first")
    env = dict(os.environ)
    if bundle.name != "node":
        env["PATH"] = f"{BUNDLES['node'].executable.parent}{os.pathsep}{env.get('PATH', '')}"
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--omit=dev", "--loglevel=error"]
    _run(bundle, [npm, "install", "--prefix", ".", *quiet, *bundle.pins], env)


def _pip(bundle: Bundle) -> None:
    venv.create(bundle.folder, with_pip=False, symlinks=True)
    python = str(bundle.executable)
    _run(bundle, [sys.executable, "-m", "pip", "--python", python, "install", "-q", *bundle.pins], dict(os.environ))


def _run(bundle: Bundle, command: list[str], env: dict[str, str]) -> None:
    for attempt in (1, 2, 3):
        try:
            done = subprocess.run(  # noqa: S603 - the command line is built from the table above
                command, cwd=bundle.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired as late:
            raise InstallError(f"{bundle.name}: not installed after {TIMEOUT_S} s") from late
        if done.returncode == 0:
            return
        if attempt < 3:  # registries drop a connection now and then
            time.sleep(2 * attempt)
    tail = b"\n".join((done.stdout + done.stderr).splitlines()[-15:]).decode(errors="replace")
    raise InstallError(f"{bundle.name}: the installer failed ({done.returncode}):\n{tail}")


def _megabytes(folder: Path) -> int:
    sizes = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            sizes[status.st_ino] = status.st_size  # hard links count once
    return sum(sizes.values()) >> 20


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the pinned real clients for `make test-clients`.")
    parser.add_argument("action", choices=["install", "list"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BUNDLES)}")
    options = parser.parse_args()
    if options.action == "list":
        for bundle in BUNDLES.values():
            print(f"{'+' if bundle.installed else '-'} {bundle.name:18} {bundle.folder}  {' '.join(bundle.pins)}")
        return 0
    try:
        install(options.names, say=True)
    except InstallError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
