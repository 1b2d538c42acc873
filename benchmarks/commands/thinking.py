"""How well a thinking budget holds on a real engine, and whether the next prompt is exact.

    python -m benchmarks thinking --engine embedded [--model NAME] [--turns 20] [--save]
    python -m benchmarks thinking --engine vllm     [--turns 20] [--save]

One conversation over Messages, one budget after another. Each row has the tokens of the thought, as the gateway counted
them, beside the budget, whether the gateway closed the thought, and the verdict on the next prompt. The template
opens a thought in every turn, so that models which never learnt to think have one to close.

Promise: nothing is asserted; the file holds what was seen, with the engine and the model it was seen on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.installers import installer
from benchmarks.measure.results import FOLDER, today
from benchmarks.peers import cache

FILE = FOLDER / "thinking.json"
BUDGETS = (16, 32, 64, 128)
QUESTIONS = ("What is a prefix cache?", "And what breaks it?", "Name one remedy.", "Why does it help?")


class Row(msgspec.Struct):
    """One turn."""

    budget: int
    thought: int
    output: int
    closed: bool
    prefix: str


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=("embedded", "vllm"), required=True)
    parser.add_argument("--model", default="smollm2-135m", help="of the embedded engine")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/thinking.json")
    chosen = parser.parse_args(arguments)
    with _engine(chosen.engine, chosen.model) as (flags, name), _gateway(flags) as url:
        rows = list(_conversation(url, chosen.turns))
    _print(name, rows)
    if chosen.save:
        known = json.loads(FILE.read_text()) if FILE.exists() else {}
        known[chosen.engine] = {"taken": today(), "model": name, "turns": msgspec.to_builtins(rows)}
        FILE.write_text(json.dumps(known, indent=1) + "\n")


def _conversation(url: str, turns: int) -> Iterator[Row]:
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        budget = BUDGETS[number % len(BUDGETS)]
        messages.append({"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]})
        body = {
            "model": "default",
            "max_tokens": budget + 24,
            "temperature": 0.8,
            "seed": number,
            "messages": messages,
            "thinking": {"type": "enabled", "budget_tokens": budget},
            "nvext": {"extra_fields": ["notes"]},
        }
        request = urllib.request.Request(
            f"{url}/v1/messages", json.dumps(body).encode(), {"x-claude-code-session-id": "budget"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            prefix = answer.headers["x-turnwire-prefix"].split(";")[0]
            said = json.loads(answer.read())
        messages.append({"role": "assistant", "content": said["content"] or "(nothing)"})
        usage = said["usage"]
        yield Row(
            budget=budget,
            thought=usage["output_tokens_details"]["thinking_tokens"],
            output=usage["output_tokens"],
            closed="thinking.budget_reached" in said["nvext"]["notes"],
            prefix=prefix,
        )


def _print(name: str, rows: list[Row]) -> None:
    print(f"{name}: {len(rows)} turns")
    print("budget  turns  thought (least, most)  closed here")
    for budget in BUDGETS:
        found = [row for row in rows if row.budget == budget]
        if found:
            thoughts = [row.thought for row in found]
            closed = sum(row.closed for row in found)
            print(f"{budget:6}  {len(found):5}  {min(thoughts):8}, {max(thoughts):4}       {closed:8}")
    held = sum(row.prefix == "held" for row in rows[1:])
    print(f"next prompt exact: {held} of {len(rows) - 1}")


@contextlib.contextmanager
def _engine(kind: str, model: str) -> Iterator[tuple[list[str], str]]:
    if kind == "embedded":
        yield ["--engine", "embedded", "--model", model], f"embedded {model}"
        return
    vllm = installer("engines").VLLMServer
    with tempfile.TemporaryDirectory() as folder, vllm(Path(folder) / "vllm.log") as server:
        flags = ["--engine", f"vllm:{server.url}", "--model", str(server.installation.model)]
        yield flags, "vLLM CPU, tiny Qwen3 with random weights"


@contextlib.contextmanager
def _gateway(flags: list[str]) -> Iterator[str]:
    template = cache.ROOT / "src" / "turnwire" / "prompts" / "data" / "turnwire.jinja"
    command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", *flags]
    command += ["--template", str(template), "--dialect", "qwen3_coder", "--reasoning", "qwen3", "--alias", "default"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r" on (http://\S+) ", line):
                    yield found[1]
                    break
            else:
                log.seek(0)
                raise RuntimeError(log.read()[-2000:])
        finally:
            process.terminate()
            process.wait(30)
