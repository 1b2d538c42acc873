"""The browser of the console's tests and pictures: found where one is installed, else installed as Debian packages it.

    python tools/browser.py install

Promise: prints where the browser is and ends with 0, or says in a sentence what to install and ends with 1. Nothing is
installed where a browser is found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fonts-liberation")
MISSING = (
    "No Chromium is installed, and it cannot be installed from here ({why}). Install one that is on the PATH as "
    f"{', '.join(NAMES[:-1])} or {NAMES[-1]}, such as Debian's package chromium."
)


def chromium() -> str | None:
    """The installed Chromium or Chrome."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> int:
    """Install one with apt-get where that is possible and none is there."""
    if chromium() is None and (why := _installed()):
        print(MISSING.format(why=why), file=sys.stderr)
        return 1
    print(f"browser: {chromium()}")
    return 0


def _installed() -> str:
    """Why there is still none; nothing where there is one now."""
    apt = shutil.which("apt-get")
    if apt is None:
        return "there is no apt-get"
    if os.geteuid() != 0:
        return "apt-get needs root"
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for line in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *PACKAGES]):
        print(f"apt-get {' '.join(line)}", flush=True)
        ran = subprocess.run([apt, *line], env=quiet, capture_output=True, text=True)  # noqa: S603 - our own words
        if ran.returncode:
            return f"apt-get {line[0]} failed: {(ran.stderr.strip() or ran.stdout.strip()).splitlines()[-1]}"
    return "" if chromium() else "the package brought no browser"


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python tools/browser.py install")
    sys.exit(install())
