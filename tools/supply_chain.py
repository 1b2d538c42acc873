"""What a Turnwire installation is made of: a bill of materials, and which packages bring native code.

Promise: `sbom` writes CycloneDX JSON from the lock file alone; `native` looks at the packages that are installed.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from lock import lock_file, locked

_NATIVE = (".so", ".pyd", ".dylib", ".dll")


def bill(name: str, version: str) -> dict[str, Any]:
    """The packages of a lock file in CycloneDX 1.6."""
    text = lock_file(name).read_text(encoding="utf-8")
    components = []
    for package, number in sorted(locked(name).items()):
        block = re.search(rf"(?ims)^{re.escape(package).replace('-', '[-_.]')}==.*?(?=^\S|\Z)", text)
        hashes = re.findall(r"sha256:([0-9a-f]{64})", block[0]) if block else []
        components.append(
            {
                "type": "library",
                "name": package,
                "version": number,
                "purl": f"pkg:pypi/{package}@{number}",
                "hashes": [{"alg": "SHA-256", "content": value} for value in hashes],
            }
        )
    product = {"type": "application", "name": "turnwire", "version": version, "purl": f"pkg:pypi/turnwire@{version}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
    }


def native_files(found: Distribution) -> list[str]:
    """The compiled files of an installed package."""
    return [str(file) for file in found.files or () if file.suffix in _NATIVE or ".so." in file.name]


def native_table(name: str) -> str:
    """Installed packages of a lock file that bring native code, with how many compiled files."""
    wanted = locked(name)
    rows = []
    for found in distributions():
        package = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
        if package in wanted and (files := native_files(found)):
            rows.append((package, len(files)))
    return "\n".join(["| package | compiled files |", "|---|---|", *(f"| {p} | {n} |" for p, n in sorted(rows))])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    import turnwire

    if sys.argv[1:] == ["sbom"]:
        print(json.dumps(bill("server", turnwire.__version__), indent=1))
    elif sys.argv[1:] == ["native"]:
        print(native_table("server"))
    else:
        sys.exit("say sbom or native")
