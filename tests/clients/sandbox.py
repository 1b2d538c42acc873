"""A place for one client to run in: its own home, its own workspace, a hard time limit and no way out but loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Finished", "Sandbox"]

DRIVERS = Path(__file__).parent / "drivers"


@dataclass(frozen=True)
class Finished:
    """How a client ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def rows(self) -> list[Any]:
        """The lines of stdout that are JSON objects."""
        found = []
        for row in self.stdout.splitlines():
            if row.startswith("{"):
                try:
                    found.append(json.loads(row))
                except ValueError:
                    continue
        return found

    def __str__(self) -> str:
        return f"exit {self.code} after {self.seconds:.1f} s\n{self.stdout[-4000:]}\n{self.stderr[-3000:]}"


class Sandbox:
    """One test's folder. `bundle` paths come from the installer."""

    def __init__(self, folder: Path, bundles: Mapping[str, Any]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self._bundles = bundles
        for path in (self.home, self.workspace, folder / "tmp"):
            path.mkdir(parents=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Nothing of the caller's but a path; every proxy leads nowhere, so that outside traffic fails at once."""
        commands = [str(b.executable.parent) for b in self._bundles.values() if b.name == b.command]
        nowhere = "http://127.0.0.1:9"
        return {
            "PATH": os.pathsep.join([*commands, "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(self.home),
            "TMPDIR": str(self.folder / "tmp"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "http_proxy": nowhere,
            "https_proxy": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **more,
        }

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        stdin: str | None = None,
        cwd: Path | None = None,
    ) -> Finished:
        """Run to the end; whatever is left of it after `timeout` seconds is killed with its children, and the test
        fails with what it had said."""
        started = time.monotonic()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(env) if env is not None else self.environment(),
            cwd=cwd or self.workspace,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            out, err = process.communicate(timeout=10)
            raise AssertionError(f"{command[0]} ran longer than {timeout} s\n{out[-4000:]}\n{err[-3000:]}") from None
        finally:
            _kill(process)
        return Finished(process.returncode, out, err, time.monotonic() - started)

    def executable(self, bundle: str) -> str:
        """The command of a bundle that is not on the path: an older version."""
        return str(self._bundles[bundle].executable)

    def python(self, bundle: str, driver: str, *arguments: str, timeout: float = 60, **env: str) -> Finished:
        """Run a driver with the Python of a bundle."""
        command = [str(self._bundles[bundle].executable), str(DRIVERS / driver), *arguments]
        return self.run(command, env=self.environment(**env), timeout=timeout)

    def node(self, driver: str, *arguments: str, timeout: float = 60, **env: str) -> Finished:
        """Run a JavaScript driver next to the pinned npm packages."""
        place = self.folder / "js"
        if not place.exists():
            place.mkdir()
            (place / "node_modules").symlink_to(self._bundles["js-sdks"].folder / "node_modules")
        shutil.copy(DRIVERS / driver, place / driver)
        return self.run(["node", driver, *arguments], env=self.environment(**env), timeout=timeout, cwd=place)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
