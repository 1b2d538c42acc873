"""The rules of real clients, judged by small programs that behave as a client does, and as one does not."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.listening import Listening, listening_gateway
from turnwire.conformance.page import markdown
from turnwire.conformance.runner import run
from turnwire.conformance.words import Cell, Word

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Asks, "runs" the call, brings back what it printed, and says the answer.
LOOP = """
import json, os, sys, urllib.request
schema = {"type": "object", "properties": {"command": {"type": "string"}}}
def ask(messages):
    body = {"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 4000, "messages": messages}
    body["tools"] = [{"name": "Bash", "input_schema": schema}]
    body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(),
                                     {"content-type": "application/json", "anthropic-version": "2023-06-01"})
    return json.load(urllib.request.urlopen(request))["content"]
asked = [{"role": "user", "content": sys.argv[2]}]
said = ask(asked)
call = [block for block in said if block["type"] == "tool_use"][0]
result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": PRINTED}]}
print([b["text"] for b in ask([*asked, {"role": "assistant", "content": said}, result]) if b["type"] == "text"])
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, Listening]]:
    async with listening_gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


async def judged(gateway: tuple[str, Listening], program: str | None, folder: Path, patch: pytest.MonkeyPatch) -> Cell:
    """The cell of Claude Code with `program` in its place; None for a machine without it."""
    patch.setenv("PATH", str(folder))
    if program is not None:
        file = folder / "claude"
        file.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
        file.chmod(0o755)
    url, stand_in = gateway
    report = await run(url, apis=["messages"], stand_in=stand_in, only=["clients"], clients=True)
    assert "clients.claude" in markdown([report])
    return report.cells[0]


@pytest.mark.parametrize(
    ("program", "word", "reason"),
    [
        (LOOP.replace("PRINTED", "'turnwire-ran'"), "preserved", "Claude Code runs the call and shows the answer"),
        (LOOP.replace("PRINTED", "'nothing'"), "broken", "Claude Code did not get a call that it could run"),
        (LOOP.replace("PRINTED", "'turnwire-ran'").replace("print(", "repr("), "broken", "does not show"),
        (LOOP.replace('"max_tokens": 4000', '"max_tokens": -5'), "unsupported", "Claude Code is refused"),
        ("raise SystemExit(3)", "unknown", "Claude Code asked for nothing"),
        (None, "unknown", "claude is not on the path"),
    ],
    ids=["whole", "no result", "no answer", "refused", "asks nothing", "absent"],
)
async def test_a_client_is_judged_by_what_it_did(
    program: str | None,
    word: Word,
    reason: str,
    gateway: tuple[str, Listening],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = await judged(gateway, program, tmp_path, monkeypatch)
    assert (cell.word, cell.rule) == (word, "clients.claude"), (cell.reason, cell.evidence)
    assert reason in cell.reason
    if word == "preserved":
        assert cell.evidence[0] == "2 turns, 1 calls, 0 refused"
        assert cell.evidence[-1].startswith("the prompt after the call begins with all")
