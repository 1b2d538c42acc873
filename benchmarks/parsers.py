"""CPU per token of the parser, one token per delta, for arguments of 1 to 80 KB; beside vLLM's and SGLang's parsers.

    python -m benchmarks parsers                          # our parser, and the peers found in the cache
    python -m benchmarks parsers --vllm PYTHON            # an interpreter in whose environment vLLM is installed
    python -m benchmarks parsers --sglang PYTHON --budget 20
    python -m benchmarks parsers --save                   # the result file that the README's line is made from

A peer runs in its own interpreter, without a server and without a model, on the same pieces of the same text. Process
time is measured, never the clock. A run that exceeds the budget is stopped and counted by the tokens it got through."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure.results import FOLDER, machine, today
from turnwire.parsers import Parser, Start, resolve
from turnwire.turns import Tool, ToolCallClosed

SIZES = (1, 5, 20, 80)
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "overwrite": {"type": "boolean"}},
    "required": ["path", "content"],
}
SOURCE = (
    'def handler(request, retries=3):\n    """Answer one request; `retries` <= 3."""\n    total = 0\n'
    "    for index, item in enumerate(request.items):\n        if item.price > 0 and not item.hidden:\n"
    "            total += item.price * item.amount  # cents\n    return {'total': total, 'items': len(items)}\n\n\n"
)
# What a byte-pair tokenizer makes of source text, near enough: words with their space, digits, runs of signs.
TOKEN = re.compile(r" ?[A-Za-z_]{1,12}|[0-9]|\s+|[^\sA-Za-z0-9_]{1,3}")
SPECIAL = re.compile(r"<\|[a-z_]+\|>|</?tool_call>|</?think>|｜DSML｜")


def output_of(family: str, size: int) -> str:
    """A turn that writes a file of `size` KB, as the family's model writes it."""
    content = (SOURCE * (size * 1024 // len(SOURCE) + 1))[: size * 1024]
    arguments = json.dumps({"path": "src/handler.py", "content": content, "overwrite": True})
    if family == "hermes":
        return f'I write it.\n<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>'
    if family == "harmony":
        return (
            "<|channel|>analysis<|message|>I write it.<|end|><|start|>assistant<|channel|>commentary to=functions."
            f"write <|constrain|>json<|message|>{arguments}<|call|>"
        )
    if family == "deepseek_v3_2":
        tag = "｜DSML｜"
        return (
            f'I write it.\n\n<{tag}function_calls>\n<{tag}invoke name="write">\n<{tag}parameter name="path" '
            f'string="true">src/handler.py</{tag}parameter>\n<{tag}parameter name="content" string="true">{content}'
            f'</{tag}parameter>\n<{tag}parameter name="overwrite" string="false">true</{tag}parameter>\n'
            f"</{tag}invoke>\n</{tag}function_calls>"
        )
    return (
        "I write it.\n\n<tool_call>\n<function=write>\n<parameter=path>\nsrc/handler.py\n</parameter>\n"
        f"<parameter=content>\n{content}\n</parameter>\n<parameter=overwrite>\ntrue\n</parameter>\n</function>\n"
        "</tool_call>"
    )


FAMILIES = ("qwen3_coder", "hermes", "deepseek_v3_2", "harmony")


def pieces_of(text: str) -> list[str]:
    """The text cut into tokens; a special token is one."""
    pieces: list[str] = []
    at = 0
    for found in SPECIAL.finditer(text):
        pieces += TOKEN.findall(text[at : found.start()])
        pieces.append(found.group())
        at = found.end()
    pieces += TOKEN.findall(text[at:])
    assert "".join(pieces) == text
    return pieces


def ours(family: str, pieces: list[str]) -> float:
    """µs of CPU per token, the best of some runs."""
    dialect = resolve(family)
    tools = [Tool(name="write", schema=SCHEMA)]
    start = Start("header") if dialect.router is not None else Start()
    best = float("inf")
    spent = 0.0
    while spent < 0.5:
        parser = Parser(dialect, tools, start)
        feed = parser.feed
        begin = time.process_time()
        for piece in pieces:
            feed(piece)
        events = parser.finish()
        took = time.process_time() - begin
        best = min(best, took)
        spent += took + 0.001
    whole = Parser(dialect, tools, start)
    closed = [e for e in whole.feed("".join(pieces)) + whole.finish() if isinstance(e, ToolCallClosed)]
    assert [c.malformed for c in closed] == [False], (family, events)
    return best / len(pieces) * 1e6


def peer(interpreter: Path, engine: str, budget: float) -> dict[str, dict[str, Any]]:
    """The peer's figures: family, then size."""
    jobs = [
        {"family": family, "size": size, "pieces": pieces_of(output_of(family, size))}
        for family in FAMILIES
        for size in SIZES
    ]
    script = Path(__file__).with_name("parser_peers.py")
    asked = json.dumps({"engine": engine, "jobs": jobs, "schema": SCHEMA, "budget": budget})
    done = subprocess.run(
        [str(interpreter), str(script)], input=asked, capture_output=True, text=True, timeout=3600, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(f"{engine}: no figures ({done.stderr.strip().splitlines()[-1:]})", file=sys.stderr)
        return {}
    figures: dict[str, dict[str, Any]] = json.loads(lines[-1])
    return figures


def found(pattern: str) -> Path | None:
    """An interpreter that an earlier installation left in the cache."""
    return next(iter(sorted((Path.home() / ".cache/turnwire/engines").glob(f"{pattern}/bin/python"))), None)


def version(interpreter: Path, engine: str) -> str:
    """The version of an engine in its own environment."""
    found = f"version(packages_distributions()[{engine!r}][0])"
    asked = [str(interpreter), "-c", f"from importlib.metadata import *; print({found})"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--vllm", type=Path, default=found("vllm-*"), help="python with vLLM installed")
    reader.add_argument("--sglang", type=Path, default=found("sglang-*"), help="python with SGLang installed")
    reader.add_argument("--budget", type=float, default=10, help="CPU seconds a peer may spend on one text")
    reader.add_argument("--save", action="store_true", help="write results/parsers.json")
    given = reader.parse_args(arguments)
    table: dict[str, dict[str, dict[str, Any]]] = {"turnwire": {}}
    for family in FAMILIES:
        table["turnwire"][family] = {}
        for size in SIZES:
            pieces = pieces_of(output_of(family, size))
            table["turnwire"][family][str(size)] = {"us": round(ours(family, pieces), 3), "tokens": len(pieces)}
    for engine, interpreter in (("vllm", given.vllm), ("sglang", given.sglang)):
        if interpreter is not None and interpreter.exists():
            figures = peer(interpreter, engine, given.budget)
            if figures:
                table[engine] = figures
    show(table)
    if given.save:
        versions = {
            engine: version(interpreter, engine)
            for engine, interpreter in (("vllm", given.vllm), ("sglang", given.sglang))
            if engine in table
        }
        result = {"command": "parsers", "taken": today(), "machine": machine(), "versions": versions, "table": table}
        (FOLDER / "parsers.json").write_text(json.dumps(result, indent=1) + "\n")


def show(table: dict[str, dict[str, dict[str, Any]]]) -> None:
    """µs of CPU per token; behind a peer's figure, how many times ours it is."""
    print(f"{'µs per token':24}" + "".join(f"{f'{size} KB':>20}" for size in SIZES))
    for family in FAMILIES:
        for engine, figures in table.items():
            line = f"{family + ' ' + engine:24}"
            for size in SIZES:
                cell = figures.get(family, {}).get(str(size), {})
                text = cell.get("error", "-") if "us" not in cell else f"{cell['us']:.2f}"
                if "us" in cell and engine != "turnwire":
                    ratio = cell["us"] / table["turnwire"][family][str(size)]["us"]
                    text += f" ({ratio:.0f}x{'' if cell.get('right') else ', wrong'}{'+' if cell.get('cut') else ''})"
                line += f"{text:>20}"
            print(line)
