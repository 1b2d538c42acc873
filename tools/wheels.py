"""Installs the wheel in clean environments and tries it there: bare and with each extra, on every Python that is found.

    make release && python tools/wheels.py [PYTHON...] > table.md

Promise: each cell is a virtual environment of its own with nothing but the wheel and that extra. In each: `turnwire
--help` (or the sentence that says what to install), a library example, and a turn where the extra can have one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Those after "server" add to a server: each is tried with it. Ray is tried by `make test-ray`.
EXTRAS = ["", "tokenizers", "agent", "chat", "server"]
MORE = ("embedded", "fast", "redis", "otel", "mcp", "parquet", "kv-events")
EXTRAS += [f"server,{extra}" for extra in MORE]
PARSER = """
from turnwire.parsers import Parser, resolve, start_state
from turnwire.turns import Tool
dialect = resolve("qwen3_coder")
parser = Parser(dialect, [Tool(name="ls", schema={"type": "object"})], start_state("<think>\\n", dialect))
said = "Look.\\n</think>\\n\\n<tool_call>\\n<function=ls>\\n</function>\\n</tool_call>"
assert len([*parser.feed(said), *parser.finish("stop")]) > 3
"""
TOKENIZER = "from turnwire.prompts.tokenizers.load import load_tokenizer as l; t = l(None); assert t.encode('Hi there')"
AGENT_TURN = """
import sys
from turnwire.agent import ChatSession
with ChatSession(sys.argv[1]) as session:
    assert "Four." in session.chat("2+2?").text
"""
SERVER_TURN = """
import json, sys, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}).encode()
ask = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", body, {"content-type": "application/json"})
assert "Four." in json.load(urllib.request.urlopen(ask))["choices"][0]["message"]["content"]
"""


def run(python: Path, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    """A program of the environment, far from the source."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(path), "LANG": "C.UTF-8"}
    return subprocess.run([python, *arguments], cwd=path, env=environment, capture_output=True, text=True)  # noqa: S603


def served(python: Path, folder: Path, port: int) -> subprocess.Popen[str]:
    """A gateway on a script, by the turnwire of an environment."""
    (folder / "script.jsonl").write_text('{"text": "So.\\n</think>\\n\\nFour."}\n')
    command = [python, "-m", "turnwire", "serve", "--port", str(port), "--engine", "scripted:script.jsonl"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    server = subprocess.Popen(  # noqa: S603
        [*command, "--model", "m"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    server.stdout.readline()
    return server


def _found(version: str) -> str | None:
    """The interpreter of a version: one that pyenv keeps, or on the PATH."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(kept[-1]) if kept else shutil.which(f"python{version}")


def cell(interpreter: str, extra: str, wheel: Path, url: str, port: int) -> tuple[str, str]:
    """One environment: how long it took to install, and what worked in it."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        python = folder / "venv" / "bin" / "python"
        started = time.monotonic()
        uv = [sys.executable, "-m", "uv", "--quiet"]
        subprocess.run([*uv, "venv", "--python", interpreter, str(folder / "venv")], check=True)  # noqa: S603
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        done = subprocess.run(  # noqa: S603
            [*uv, "pip", "install", "--python", str(python), what], capture_output=True, text=True
        )
        if done.returncode:
            return "", f"install failed: {done.stderr.strip().splitlines()[-1][:90]}"
        seconds = f"{time.monotonic() - started:.0f} s"
        results = []
        shown = run(python, "-m", "turnwire", "--help", path=folder)
        has_help = "turnwire [OPTIONS] COMMAND" in shown.stdout
        told = "pip install 'turnwire[server]'" in shown.stdout + shown.stderr
        results.append("help" if has_help else "says what to install" if told else "NO HELP")
        results.append("parser" if run(python, "-c", PARSER, path=folder).returncode == 0 else "NO PARSER")
        if extra == "tokenizers" or "server" in extra:
            results.append("tokenizer" if run(python, "-c", TOKENIZER, path=folder).returncode == 0 else "NO TOKENIZER")
        if extra in ("agent", "chat"):
            results.append("turn" if run(python, "-c", AGENT_TURN, url, path=folder).returncode == 0 else "NO TURN")
        if extra == "chat":
            asked = run(python, "-m", "turnwire", "chat", "--url", url, "2+2?", path=folder)
            results.append("chat" if "Four." in asked.stdout else "NO CHAT")
        if "server" in extra:
            server = served(python, folder, port)
            own = f"http://127.0.0.1:{port}"
            results.append("turn" if run(python, "-c", SERVER_TURN, own, path=folder).returncode == 0 else "NO TURN")
            server.terminate()
            server.wait(30)
        return seconds, ", ".join(results)


def main(versions: list[str]) -> int:
    """The whole table."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as name:
        gateway = served(Path(sys.executable), Path(name), 8760)
        try:
            print(f"{wheel.name}\n\n| Python | extra | installed in | what worked |\n|---|---|---|---|", flush=True)
            bad = 0
            for version in versions:
                interpreter = _found(version)
                if interpreter is None:
                    print(f"| {version} | | | not tried: no such Python on this machine |", flush=True)
                    continue
                for extra in EXTRAS:
                    seconds, worked = cell(interpreter, extra, wheel, "http://127.0.0.1:8760", 8761)
                    bad += "NO " in worked or not seconds
                    print(f"| {version} | {extra or 'bare'} | {seconds} | {worked} |", flush=True)
        finally:
            gateway.terminate()
            gateway.wait(30)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["3.11", "3.12", "3.13", "3.14"]))
