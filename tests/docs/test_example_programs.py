"""The programs in examples/ run against a gateway and show what they say they show."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.gateway.conftest import Serve, serve

__all__ = ["serve"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def call_text(name: str, **arguments: Any) -> str:
    parts = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parts}</function>\n</tool_call>\n"


async def run(folder: Path, *arguments: str, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=folder,
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_three_apis_give_the_same_parts(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "I look it up.\n</think>\n\nOne moment.\n\n" + call_text("weather", city="Oslo")})
    said = await run(tmp_path, str(EXAMPLES / "three_apis.py"), client.base)
    parts = [block.splitlines()[1:] for block in said.split("== ")[1:]]
    assert len(parts) == 3
    assert parts[0] == parts[1] == parts[2]
    assert parts[0] == ["thought  I look it up.", "text     One moment.", 'call     weather {"city": "Oslo"}']


async def test_a_rollout_keeps_the_exact_ids(serve: Serve, tmp_path: Path) -> None:
    def episode(question: str, tool: str, a: int, b: int, answer: str) -> list[dict[str, Any]]:
        called = "I call.\n</think>\n\n" + call_text(tool, a=a, b=b)
        return [{"text": called, "match": question}, {"text": f"So.\n</think>\n\n{answer}", "match": question}]

    lines = [*episode("17 + 25", "add", 17, 25, "It is 42."), *episode("8 * 9", "multiply", 8, 9, "It is 71.")]
    client = await serve(*lines, {"text": "x"}, capture=str(tmp_path / "captures"))
    await run(tmp_path, str(EXAMPLES / "rollout.py"), client.base, "captures", "samples.jsonl")
    found = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert {sample["session"]: sample["reward"] for sample in found} == {"episode-0": 1.0, "episode-1": 0.0}
    for sample in found:
        assert len(sample["ids"]) == len(sample["loss_mask"])
        # Two turns were sampled, in one unbroken line of ids.
        borders = [one != other for one, other in zip(sample["loss_mask"], sample["loss_mask"][1:], strict=False)]
        assert sum(borders) >= 3


AGENT = [
    {"text": "Search.\n</think>\n\n" + call_text("search_facts", query="chess club")},
    {"text": "Found.\n</think>\n\nOn Thursday at 18:00."},
    {"text": "Count.\n</think>\n\n" + call_text("days_until", weekday="Thursday")},
    {"text": "Counted.\n</think>\n\nIn 1 day."},
    {"text": "Well.\n</think>\n\nyes", "match": "Is every statement of fact"},
]


async def test_the_streaming_agent_runs_as_a_script_and_as_a_notebook(serve: Serve, tmp_path: Path) -> None:
    client = await serve(*AGENT)
    said = await run(tmp_path, str(EXAMPLES / "streaming_agent.py"), client.base)
    assert "On Thursday at 18:00." in said
    assert "In 1 day." in said
    assert "(may search_facts run" in said
    cells = json.loads((EXAMPLES / "streaming_agent.ipynb").read_text())["cells"]
    program = tmp_path / "notebook.py"
    program.write_text("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    again = await run(tmp_path, str(program), TURNWIRE_URL=client.base)
    assert [line for line in again.splitlines() if " s)" not in line] == [
        line for line in said.splitlines() if " s)" not in line
    ]


def test_the_notebook_is_the_script() -> None:
    script = (EXAMPLES / "streaming_agent.py").read_text()
    cells = json.loads((EXAMPLES / "streaming_agent.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [cell for cell in code[:-1] if cell not in script] == []
