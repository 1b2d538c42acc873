"""Makes the virtual environment (`--venv FOLDER`) and runs pip for the Makefile, and shows that it is at work: one
short line per step, and at least one every few seconds.

Promise: the exit code is that of what was run; where it fails, everything it said is shown.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

_STEP = re.compile(
    r"\s*(Collecting|Downloading|Building|Installing|Preparing|Successfully)\b(?: collected packages)?:? ?(\S*)"
)
_QUIET_SECONDS = 3.0


def main(arguments: list[str]) -> int:
    if arguments[0] == "--venv":
        command, first = [sys.executable, "-m", "venv", *arguments[1:]], f"making {arguments[1]}"
    else:
        pip_install = ["-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
        command, first = [sys.executable, *pip_install, *arguments], f"installing {' '.join(arguments)}"
    print(first, flush=True)
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603
    assert pip.stdout is not None
    said: list[str] = []
    started = spoken = time.monotonic()
    step = "at work"
    done = threading.Event()

    def alive() -> None:
        nonlocal spoken
        while not done.wait(0.5):
            if time.monotonic() - spoken >= _QUIET_SECONDS:
                spoken = time.monotonic()
                print(f"  ... {step} ({spoken - started:.0f} s)", flush=True)

    watcher = threading.Thread(target=alive, daemon=True)
    watcher.start()
    for line in pip.stdout:
        said.append(line)
        found = _STEP.match(line)
        if line.startswith("Installing collected packages"):
            step = f"unpacking {line.count(',') + 1} packages"
        elif found:
            step = f"{found.group(1).lower()} {found.group(2).rstrip(',')}".strip()
            # One line a second is enough to follow it.
            if time.monotonic() - spoken >= 1.0:
                spoken = time.monotonic()
                print(f"  {step}", flush=True)
    code = pip.wait()
    done.set()
    watcher.join()
    if code:
        print("".join(said), file=sys.stderr)
    else:
        print(f"  done in {time.monotonic() - started:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
