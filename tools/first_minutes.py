"""The first five minutes on a bare machine, as a transcript: each command, each second of silence.

    python tools/first_minutes.py [PORT] > transcript.txt

Promise: an empty HOME and empty caches, a fresh clone, the README's commands. Every line is shown with the time since
its command began; a silence of more than 5 seconds is marked, and is the exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 5.0
CURLS = {
    "/v1/messages": '{"model": "default", "max_tokens": 60, "stream": true, '
    '"messages": [{"role": "user", "content": "What is two plus two?"}]}',
    "/v1/chat/completions": '{"model": "default", "max_tokens": 60, '
    '"messages": [{"role": "user", "content": "What is two plus two?"}]}',
    "/v1/responses": '{"model": "default", "max_output_tokens": 60, "input": "What is two plus two?"}',
}


class Watched:
    """A command whose every sign of life is timed. Terminals get bars, so it runs on a pseudo-terminal."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.command = " ".join(command)
        self.silences: list[float] = []
        self._lines: list[str] = []
        self._ready = threading.Event()
        ours, theirs = os.openpty()
        self.started = time.monotonic()
        print(f"\n$ {self.command}", flush=True)
        self.process = subprocess.Popen(  # noqa: S603
            command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._terminal = ours
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        last, text = self.started, ""
        while True:
            try:
                data = os.read(self._terminal, 4096)
            except OSError:
                break
            if not data:
                break
            now = time.monotonic()
            # A gateway that nobody asks has nothing to say.
            waited = 0.0 if self._ready.is_set() else now - last
            self.silences.append(waited)
            if waited > LONGEST:
                print(f"          !! {now - last:.1f} s of silence", flush=True)
            last = now
            text += data.decode("utf-8", "replace")
            *lines, text = text.replace("\r\n", "\n").split("\n")
            for line in lines:
                shown = line.rpartition("\r")[2]
                print(f"{now - self.started:8.1f}  {shown[:150]}", flush=True)
                if "turnwire: " in shown and " on http" in shown:
                    self._ready.set()
        self._ready.set()

    def ready(self, seconds: float) -> None:
        """Wait for the gateway's ready line."""
        self._ready.wait(seconds)

    def end(self, seconds: float) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        longest = max(self.silences, default=0.0)
        print(
            f"          exit code {code} after {time.monotonic() - self.started:.1f} s; longest silence {longest:.1f} s"
        )
        return code


def main(port: str) -> int:
    """Clone, serve, ask three times, stop."""
    with tempfile.TemporaryDirectory(prefix="bare-") as name:
        home = Path(name)
        keep = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        bare = keep | {"HOME": name, "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        bare |= {"PIP_CACHE_DIR": f"{name}/pip-cache", "XDG_CACHE_HOME": f"{name}/.cache"}
        watched = [Watched(["git", "clone", "--quiet", str(ROOT), "turnwire"], home, bare)]
        watched[0].end(120)
        serve = Watched(["make", "serve", f"ARGS=--port {port}"], home / "turnwire", bare)
        watched.append(serve)
        serve.ready(900)
        for path, body in CURLS.items():
            command = [
                "curl",
                "-sN",
                f"http://127.0.0.1:{port}{path}",
                "-H",
                "content-type: application/json",
                "-d",
                body,
            ]
            asked = Watched(command, home, bare)
            asked.end(300)
            watched.append(asked)
        for arguments in (["--version"], ["models"], ["doctor"], ["chat", "--url", f"http://127.0.0.1:{port}", "Hi."]):
            asked = Watched([str(home / "turnwire/.venv/bin/turnwire"), *arguments], home, bare)
            asked.end(300)
            watched.append(asked)
        print("\nCtrl-C", flush=True)
        os.killpg(serve.process.pid, signal.SIGINT)
        serve.end(60)
    print("\ncommand | longest silence, s")
    for each in watched:
        print(f"{each.command[:70]} | {max(each.silences, default=0.0):.1f}")
    return int(any(max(each.silences, default=0.0) > LONGEST for each in watched))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "8390"))
