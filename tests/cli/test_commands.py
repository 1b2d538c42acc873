"""The command line as a person meets it: what it prints, and how it refuses."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import turnwire
from turnwire.cli.main import main
from turnwire.gateway.door.keys import Keyring


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def script(folder: Path, text: str = "Sum.\n</think>\n\nFour.") -> str:
    path = folder / "script.jsonl"
    path.write_text(json.dumps({"text": text}) + "\n")
    return f"scripted:{path}"


def test_version() -> None:
    assert run("version").output.strip() == turnwire.__version__


def test_every_command_has_help() -> None:
    for name, command in main.commands.items():
        assert command.help, name
        assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--engine", "scriptd:x"], "did you mean scripted"),
        (["--engine", "scripted:/does/not/exist"], "cannot read the script"),
        (["--engine", "vllm:ftp://x"], "not an http(s) address"),
        (["--config", "/does/not/exist.toml"], "does not exist"),
        (["--host", "0.0.0.0"], "--allow-anonymous"),
        (["--host", "0.0.0.0", "--keys", "/does/not/exist"], "turnwire keys new"),
        (["--engine", "vllm:http://127.0.0.1:9"], "cannot be used"),
        (["--seal-key", "short"], "at least 16 bytes"),
    ],
)
def test_serve_refuses_with_what_to_change(tmp_path: Path, flags: list[str], message: str) -> None:
    base = [] if "--engine" in flags else ["--engine", script(tmp_path)]
    result = run("serve", "--port", "0", *base, *flags)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output


def test_an_unknown_dialect_names_the_close_ones(tmp_path: Path) -> None:
    result = run("serve", "--port", "0", "--engine", script(tmp_path), "--dialect", "qwen3-codr")
    assert "did you mean qwen3_coder" in result.output


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("serve", "--engine", script(tmp_path), "--port", str(taken.getsockname()[1]))
    assert "Is another server running there?" in result.output


def test_serve_prints_where_it_listens_and_stops_when_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", script(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert re.match(r"turnwire: turnwire on http://127\.0\.0\.1:\d+ \(dialect qwen3_coder\)", server.stdout.readline())
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0


def test_doctor_says_what_it_finds(tmp_path: Path) -> None:
    result = run("doctor", "--engine", script(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    findings = json.loads(result.stdout)
    assert {finding["topic"] for finding in findings} >= {"keys", "engine", "model", "dialect", "tokenizer", "template"}
    broken = run("doctor", "--engine", "scripted:/does/not/exist")
    assert broken.exit_code == 1
    assert "✗" in broken.output


def test_keys_are_shown_once_and_kept_as_hashes(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    secrets = [
        run("keys", "new", name, "--file", str(path), "--concurrency", "2").output.splitlines()[0]
        for name in ("alice", "bob")
    ]
    assert all(secret not in path.read_text() for secret in secrets)
    ring = Keyring.load(str(path))
    assert [ring.find(secret).name for secret in secrets] == ["alice", "bob"]  # type: ignore[union-attr]
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    before = path.read_text()
    assert run("keys", "new", "alice", "--file", str(path)).exit_code != 0
    assert run("keys", "new", 'a"b', "--file", str(path)).exit_code != 0
    assert path.read_text() == before


CALL = "<tool_call>\n<function=ls>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>\n"
RAW = f"Look.\n</think>\n\nHere:\n{CALL}"


@pytest.mark.parametrize("cut", ["all", "1", "7", "random:5"])
def test_parse_gives_ordered_blocks_however_it_is_cut(tmp_path: Path, cut: str) -> None:
    tools = tmp_path / "tools.json"
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "ls", "parameters": schema}}]))
    flags = ["--dialect", "qwen3_coder", "--prompt-tail", "<think>\n", "--tools", str(tools), "--cut", cut, "--json"]
    shown = json.loads(run("parse", *flags, given=RAW).output)
    assert [(b["type"], b.get("text") or b.get("name")) for b in shown["blocks"]] == [
        ("reasoning", "Look."),
        ("text", "Here:"),
        ("tool_call", "ls"),
    ]
    assert json.loads(shown["blocks"][2]["arguments"]) == {"n": 3}
    assert "".join(block["raw"] for block in shown["blocks"]) == RAW
    assert shown["notes"] == []


def test_parse_many_lines_by_our_names_and_by_those_of_vectors(tmp_path: Path) -> None:
    lines = tmp_path / "cases.jsonl"
    cases = [
        {"id": "a", "dialect": "qwen3_coder", "text": RAW, "start": "reasoning", "cut": 3},
        {"id": "b", "family": "qwen3_coder", "parser_reasoning": None, "parser_tool": "x", "text": RAW, "init": {}},
        {"id": "c", "dialect": "qwen3-coder", "reasoning": "none", "text": "<think>x</think>"},
    ]
    lines.write_text("".join(json.dumps(case) + "\n" for case in cases))
    shown = [json.loads(line) for line in run("parse", "--jsonl", str(lines)).output.splitlines()]
    assert [entry["id"] for entry in shown] == ["a", "b", "c"]
    assert [block["type"] for block in shown[0]["blocks"]] == ["reasoning", "text", "tool_call"]
    assert [block["type"] for block in shown[1]["blocks"]] == ["text", "tool_call"]
    assert shown[2]["blocks"] == [{"type": "text", "text": "<think>x</think>", "raw": "<think>x</think>"}]


def test_parse_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    assert "did you mean hermes" in run("parse", "--dialect", "hermez", given="x").output
    assert "--dialect NAME" in run("parse", given="x").output
    assert "cut is a number" in run("parse", "--dialect", "hermes", "--cut", "0", given="x").output


def test_a_person_sees_the_blocks_and_the_notes() -> None:
    shown = run("parse", "--dialect", "qwen3_coder", "--start", "reasoning", given=RAW)
    assert "tool_call ls" in shown.output
    assert "call.unknown_tool" in shown.stderr


def test_dialects_lists_every_name() -> None:
    shown = run("dialects").output
    assert re.search(r"^qwen3_coder .*qwen3_xml", shown, re.MULTILINE)
    rows = json.loads(run("dialects", "--json").output)
    assert len(rows) == len(shown.splitlines())


def test_a_config_file_is_written_shown_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "turnwire.toml"
    assert run("config", "init", str(file)).exit_code == 0
    assert "exists already" in run("config", "init", str(file)).output
    assert run("config", "check", str(file)).output.startswith(f"{file}: fine")
    file.write_text(f'port = 1234\nseal_key = "0123456789abcdef0123"\nengine = "{script(tmp_path)}"\n')
    monkeypatch.setenv("TURNWIRE_QUEUE", "7")
    shown = run("config", "show", "--config", str(file), "--host", "::1").output.splitlines()
    assert f"port = 1234  ({file}:1)" in shown
    assert "queue = 7  (TURNWIRE_QUEUE)" in shown
    assert 'host = "::1"  (--host)' in shown
    assert "0123456789abcdef" not in "".join(shown)
    values = json.loads(run("config", "show", "--config", str(file), "--json").output)
    assert values["port"] == {"value": 1234, "origin": f"{file}:1"}
    assert values["keepalive"]["origin"] == "default"
    file.write_text('[[model]]\nname = "a"\nengine = "vlm:x"\nkey_env = "NOT_SET"\ntemplate = "/none.jinja"\n')
    result = run("config", "check", str(file))
    assert result.exit_code == 1
    for line, words in ((3, "did you mean vllm"), (4, "NOT_SET"), (5, "/none.jinja does not exist")):
        assert re.search(rf"{file}:{line}: model a: .*{words}", result.output)


def test_a_file_that_cannot_start_is_not_fine_and_a_free_name_is_the_default_model(tmp_path: Path) -> None:
    file = tmp_path / "turnwire.toml"
    file.write_text('port = 1\nengine = "scripted:nope.jsonl"\n')
    result = run("config", "check", str(file))
    assert (result.exit_code, result.output) == (
        1,
        f"{file}:2: the file nope.jsonl of the scripted engine does not exist\n",
    )
    small = '[[model]]\nname = "small"\nengine = "embedded"\n'
    file.write_text(small)
    assert run("config", "check", str(file)).output.startswith(f"{file}: fine")
    for wrong, line in (('name = "b"\nsource = "nothing"', 7), ('name = "./none.gguf"', 6), ('name = "b"', 7)):
        engine = "embedded:none.gguf" if line == 7 and "source" not in wrong else "embedded"
        file.write_text(f'{small}\n[[model]]\n{wrong}\nengine = "{engine}"\n')
        result = run("config", "check", str(file))
        assert result.exit_code == 1
        assert re.search(rf"^{file}:{line}: model \S+: \S+ is neither a file, a folder", result.output)
    shown = run("config", "show", "--config", str(file)).output
    assert f"({file}:1)" in shown.splitlines()[0]
    assert f"({file}:5)" in shown.splitlines()[1]


def test_an_impossible_port_is_said() -> None:
    result = run("serve", "--port", "99999")
    assert result.exit_code == 1
    assert "--port: 'port' has a wrong value" in result.output


def test_the_version_and_the_module() -> None:
    assert run("--version").output.strip() == turnwire.__version__
    command = [sys.executable, "-m", "turnwire", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == turnwire.__version__


def test_without_its_extras_the_command_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "class NoClick:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise ModuleNotFoundError('No module named click', name='click')\n"
        "sys.meta_path.insert(0, NoClick())\n"
        "from turnwire.__main__ import main\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'turnwire[server]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_installer_shows_life_and_keeps_pips_exit_code() -> None:
    tool = str(Path(__file__).parents[2] / "tools" / "install.py")
    fine = subprocess.run([sys.executable, tool, "--dry-run", "pip"], capture_output=True, text=True, check=False)
    assert (fine.returncode, "done in" in fine.stdout) == (0, True), fine.stderr
    command = [sys.executable, tool, "--no-index", "no-such-package-at-all"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "no-such-package-at-all" in failed.stderr


def test_what_a_gateway_writes_is_its_owners(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--engine", script(tmp_path)]
    server = subprocess.Popen([*command, "--store", f"sqlite:{store}"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert "on http" in server.stdout.readline()
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=30)
    made = [path for path in tmp_path.iterdir() if path.name.startswith("store.db")]
    assert made
    assert all(path.stat().st_mode & 0o077 == 0 for path in made)
