"""A result names the source that was measured, with and without its history."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.measure.versions import commit, named  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def test_a_copy_is_named_by_its_tree_and_its_commit_is_found(tmp_path: Path) -> None:
    clone, copy = tmp_path / "clone", tmp_path / "copy"
    package = clone / "src" / "turnwire"
    (package / "b").mkdir(parents=True)
    for name in ("b.py", "b/inner.py", "a-b.py"):
        (package / name).write_text(f"# {name}\n")
    (package / "run").write_text("#!/bin/sh\n")
    (package / "run").chmod(0o755)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    first = git("rev-parse", "--short=7", "HEAD")
    shutil.copytree(clone / "src", copy / "src")
    (copy / "src" / "turnwire" / "__pycache__").mkdir()
    (package / "b.py").write_text("# other\n")
    git("commit", "-qam", "second")

    assert commit(clone) == git("rev-parse", "--short=7", "HEAD")
    (clone / "results").mkdir()
    (clone / "results" / "stream.json").write_text("{}")
    assert commit(clone) == git("rev-parse", "--short=7", "HEAD"), "what a run writes is not the source"
    (package / "b.py").write_text("# b.py\n")
    assert named(commit(clone), clone) == first, "a source that another commit has is that commit's"
    (package / "b.py").write_text("# not committed\n")
    assert named(commit(clone), clone) == commit(clone) != first
    stamp = commit(copy)
    assert stamp.startswith("tree ")
    assert named(stamp, clone) == first
    assert named("tree 000000000000", clone) == "tree 000000000000"
    assert named("abc1234", clone) == "abc1234"
