"""Builds a release: wheel and sdist, checked, with notes from the changelog and a bill of materials.

Promise: nothing is uploaded. What is in dist/ afterwards was built from the files that git knows, is complete by the
checks below, and belongs to the version that the source and the changelog name.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
sys.path.insert(0, str(Path(__file__).parent))

from supply_chain import bill  # noqa: E402


def version() -> str:
    """The version that the source names."""
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/turnwire/__init__.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def notes(number: str) -> str:
    """The changelog's section for a version."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^## {re.escape(number)}[^\n]*\n(.*?)(?=^## |\Z)", text)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section for {number}; rename `Unreleased` to `{number} - DATE`.")
    return f"# Turnwire {number}\n\n{found[1].strip()}\n"


def wheel_problems(wheel: Path) -> list[str]:
    """What is missing from a wheel, or too much in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    package = ROOT / "src" / "turnwire"
    listed = [shutil.which("git") or "git", "ls-files", "src/turnwire"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    wanted = {line.removeprefix("src/") for line in tracked.stdout.splitlines() if (ROOT / line).exists()}
    problems = [f"the wheel lacks {name}" for name in sorted(wanted - names)]
    problems += [f"the wheel has {name}, which git does not know" for name in sorted(_ours(names) - wanted)]
    problems += [f"the wheel says nothing of {word}" for word in ("Requires-Python: >=3.11",) if word not in metadata]
    if not (package / "py.typed").exists() or "turnwire/py.typed" not in names:
        problems.append("the wheel is not marked as typed")
    if not any(name.endswith("entry_points.txt") for name in names):
        problems.append("the wheel has no `turnwire` command")
    return problems


def _ours(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("turnwire/")}


def sdist_problems(sdist: Path) -> list[str]:
    """What a source archive should have, and has not."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/turnwire/__init__.py", "tests/conftest.py")
    return [f"the sdist lacks {name}" for name in wanted if name not in names]


def main() -> None:
    """Build, check, write."""
    number = version()
    said = notes(number)
    shutil.rmtree(DIST, ignore_errors=True)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    subprocess.run(check, cwd=ROOT, check=True)  # noqa: S603
    problems = [*wheel_problems(wheel), *sdist_problems(sdist)]
    if f"-{number}-" not in wheel.name:
        problems.append(f"{wheel.name} is not version {number}")
    if problems:
        sys.exit("\n".join(problems))
    (DIST / f"NOTES-{number}.md").write_text(said, encoding="utf-8")
    (DIST / "turnwire.cdx.json").write_text(json.dumps(bill("server", number), indent=1) + "\n", encoding="utf-8")
    for file in sorted(DIST.iterdir()):
        print(f"{file.stat().st_size:>10,}  dist/{file.name}")


if __name__ == "__main__":
    main()
