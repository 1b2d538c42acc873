"""Runs the steps of deploy/Dockerfile by hand, in a folder of its own: for machines without a container daemon.

Promise: the pip steps, the variables, the command and the health check are read from the Dockerfile, not repeated here;
what a container adds (users, layers, the base image) is not tried. It needs a package index.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile, one instruction each."""
    text = re.sub(r"\\\n", " ", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def build(folder: Path, steps: list[tuple[str, str]], prefix: Path) -> None:
    """The first stage: copies and RUN lines, with /opt/turnwire moved to `prefix`."""
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            *sources, target = shlex.split(rest)
            for source in sources:
                place = folder / target / Path(source).name if len(sources) > 1 else folder / target
                place.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, place)
        elif word == "RUN" and "/opt/turnwire" in rest:
            command = rest.replace("/opt/turnwire", str(prefix)).replace("python -m", f"{sys.executable} -m")
            started = time.monotonic()
            subprocess.run(command, shell=True, cwd=folder, check=True)  # noqa: S602
            print(f"{time.monotonic() - started:6.1f} s  {rest}", flush=True)


def serve(folder: Path, steps: list[tuple[str, str]], prefix: Path, port: int) -> int:
    """The second stage: the variables, the entry point and the health check, on a scripted model."""
    words = dict(steps)
    state = folder / "state"
    state.mkdir()
    variables = dict(part.split("=", 1) for part in shlex.split(words["ENV"].replace("/var/lib/turnwire", str(state))))
    variables["PATH"] = f"{prefix}/bin:{os.environ['PATH']}"
    (folder / "script.jsonl").write_text('{"text": "Hello."}\n')
    extra = {"TURNWIRE_PORT": str(port), "TURNWIRE_ENGINE": f"scripted:{folder}/script.jsonl"}
    environment = os.environ | variables | extra | {"TURNWIRE_ALLOW_ANONYMOUS": "true", "TURNWIRE_HOST": "127.0.0.1"}
    entry = [*json.loads(words["ENTRYPOINT"]), *json.loads(words["CMD"])]
    server = subprocess.Popen([prefix / "bin" / entry[0], *entry[1:]], cwd=state, env=environment)  # noqa: S603
    health = [prefix / "bin" / "python", *json.loads(words["HEALTHCHECK"].partition("CMD")[2])[1:]]
    health[-1] = str(health[-1]).replace("8390", str(port))
    try:
        for _ in range(60):
            if subprocess.run(health, env=environment, capture_output=True).returncode == 0:  # noqa: S603
                print(f"healthy; the state folder holds {sorted(path.name for path in state.iterdir())}", flush=True)
                return 0
            time.sleep(0.5)
        print("the health check never passed", flush=True)
        return 1
    finally:
        server.terminate()
        print(f"SIGTERM: exit code {server.wait(60)}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="turnwire-image-") as name:
        work, found = Path(name), instructions()
        last = max(at for at, (word, _) in enumerate(found) if word == "FROM")
        build(work, found[:last], work / "opt")
        sys.exit(serve(work, found[last:], work / "opt", int(sys.argv[1]) if sys.argv[1:] else 8390))
