"""Claude Code's WebSearch and Codex's web_search, answered by a real MCP server that the gateway runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .conftest import Serve
from .outputs import call, line, thought, write_script
from .sandbox import Sandbox
from .serving import MODEL, ServedGateway, prefix_held
from .test_claude_code import ClaudeCode
from .test_claude_code import succeeded as claude_succeeded
from .test_codex import Codex, input_items
from .test_codex import succeeded as codex_succeeded

SERVER = Path(__file__).parents[1] / "gateway" / "hosted" / "search_server.py"
CONFIG = """\
[[model]]
name = "{model}"
engine = "scripted:{script}"

[tools.web_search]
mcp = [{python}, {server}]
tool = "search"
"""


def searching(serve: Serve, folder: Path, *lines: dict[str, Any]) -> ServedGateway:
    """A gateway that has a search."""
    script, config = folder / "lines.jsonl", folder / "turnwire.toml"
    write_script(script, list(lines))
    python, server = json.dumps(sys.executable), json.dumps(str(SERVER))
    config.write_text(CONFIG.format(model=MODEL, script=script, python=python, server=server))
    return serve(flags=("--config", str(config)))


def test_claude_code_gets_the_results_of_its_web_search(serve: Serve, sandbox: Sandbox, tmp_path: Path) -> None:
    asked = "Perform a web search for the query"
    gateway = searching(
        serve,
        tmp_path,
        line(thought("The tool."), call("web_search", query="who won the cup"), match=asked),
        line(thought("Found."), "Rovers won, says The cup.", match=asked),
        line(thought("I search."), call("WebSearch", query="who won the cup")),
        line(thought("There it is."), "Rovers won the cup."),
    )
    claude: Any = ClaudeCode(sandbox, gateway)
    claude_succeeded(claude("Who won the cup?", "--tools", "WebSearch"), "Rovers won the cup.")
    *_, last = gateway.turns("/v1/messages")
    (result,) = [
        block
        for message in last.json["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    read = json.dumps(result)
    assert "https://sport.example/cup" in read
    assert "Rovers won, says The cup." in read
    assert "unavailable" not in read


def test_codex_searches_and_its_next_turn_is_exact(serve: Serve, sandbox: Sandbox, tmp_path: Path) -> None:
    gateway = searching(
        serve,
        tmp_path,
        line(thought("I search."), call("web_search", query="who won the cup")),
        line(thought("Found."), call("exec_command", cmd="echo he''llo")),
        line(thought("Done."), "Rovers won the cup."),
    )
    codex: Any = Codex(sandbox, gateway).configure(search="live")
    done = codex("Who won the cup? Then say hello.")
    codex_succeeded(done, "Rovers won the cup.")
    searched = [row["item"] for row in done.rows if row.get("item", {}).get("type") == "web_search"]
    assert searched[-1]["query"] == "who won the cup"
    first, second = gateway.turns("/v1/responses")
    assert "web_search" in {tool["type"] for tool in first.json["tools"]}
    (kept,) = input_items(second, "web_search_call")
    assert kept["action"]["query"] == "who won the cup"
    prefix_held(gateway.records(3))
