"""Every example in README and docs runs: Python blocks as they stand, shell blocks against a gateway on a script.

A shell block that cannot run in a test is marked in the page itself, `<!-- not run: reason -->` on the line before it,
so that a reader sees it too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^(?P<before>[^\n]*)\n```(?P<kind>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT = [
    {"text": "Two and two.\n</think>\n\nFour."},
    {"text": "Done.\n</think>\n\nAll good."},
]


def examples(*kinds: str) -> list[object]:
    return list(_found(*kinds))


def _found(*kinds: str) -> Iterator[object]:
    for page in PAGES:
        for number, found in enumerate(FENCE.finditer(page.read_text(encoding="utf-8")), start=1):
            if found["kind"] in kinds and "not run:" not in found["before"]:
                yield pytest.param(found["code"], id=f"{page.stem}-{number}")


@pytest.mark.parametrize("code", examples("python"))
def test_python_examples_run(code: str, tmp_path: Path, gateway: str) -> None:
    environment = os.environ | {"TURNWIRE_URL": gateway}
    program = tmp_path / "example.py"
    program.write_text(code.replace("http://127.0.0.1:8390", gateway), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("code", examples("sh", "bash"))
def test_shell_examples_run(code: str, tmp_path: Path, gateway: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (tmp_path / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in SCRIPT))
    (tmp_path / "output.txt").write_text("plan\n</think>\n\nHello.\n")
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code.replace("http://127.0.0.1:8390", gateway)],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout


@pytest.mark.parametrize("code", examples("json"))
def test_json_examples_are_json(code: str) -> None:
    for line in code.splitlines() if code.count("\n") > 1 and code.startswith("{") and "}\n{" in code else [code]:
        json.loads(line)


@pytest.mark.parametrize("code", examples("toml"))
def test_toml_examples_are_toml(code: str) -> None:
    tomllib.loads(code)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`turnwire serve` on a script, as a process of its own."""
    folder = tmp_path_factory.mktemp("gateway")
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in SCRIPT))
    command = [sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", f"scripted:{script}"]
    server = subprocess.Popen(
        [*command, "--model", "demo", "--seal-key", "a key for the docs' tests"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"http://[\d.]+:\d+", line)
        assert found is not None, line
        yield found[0]
    finally:
        server.terminate()
        server.wait(20)


def test_the_site_has_every_page_once() -> None:
    from tools.docs_hooks import on_config

    found = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    nav = on_config({"nav": found["nav"], "docs_dir": str(ROOT / "docs")})["nav"]
    named = re.findall(r"[\w/-]+\.md", str(nav))
    folder = ROOT / "docs"
    assert sorted(named) == sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))


@pytest.mark.parametrize("page", ["index", "quickstart", "clients", "connect-engines", "troubleshooting", "agent"])
def test_the_readme_leads_to_where_one_begins(page: str) -> None:
    assert f"(docs/{page}.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", ["settings_page.py", "structure.py"])
def test_pages_made_by_a_tool_are_up_to_date(tool: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pages_name_notes_that_exist() -> None:
    """On the page of notes is every code that the source sends; a test beside them holds it to that."""
    word = re.compile(r"`((?:replay|rescue|stability|upstream|engine|model)\.[a-z_.]+)`")
    known = set(word.findall((ROOT / "docs" / "notes.md").read_text(encoding="utf-8")))
    # The rules of conformance have names of the same form.
    pages = [page for page in PAGES if page.name != "conformance.md"]
    assert {(page.name, code) for page in pages for code in word.findall(page.read_text(encoding="utf-8"))} <= {
        (page.name, code) for page in pages for code in known
    }
