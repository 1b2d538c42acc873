"""Claude Code's tiers on different models of one gateway, by their roles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .conftest import Serve
from .outputs import call, line, thought, write_script
from .sandbox import Sandbox
from .test_claude_code import ClaudeCode, succeeded

CONFIG = """\
[[model]]
name = "big"
engine = "scripted:{folder}/big.jsonl"
dialect = "qwen3_coder"
reasoning = "qwen3"
roles = ["default", "opus"]

[[model]]
name = "small"
engine = "scripted:{folder}/small.jsonl"
dialect = "qwen3_coder"
reasoning = "qwen3"
roles = ["haiku", "background"]
"""


def test_opus_and_haiku_are_different_models(serve: Serve, sandbox: Sandbox, tmp_path: Path) -> None:
    write_script(
        tmp_path / "big.jsonl",
        [line(thought("A shell."), call("Bash", command="echo he''llo")), line(thought("Done."), "I am the big one.")],
    )
    write_script(tmp_path / "small.jsonl", [line(thought("Easy."), "I am the small one.")])
    config = tmp_path / "turnwire.toml"
    config.write_text(CONFIG.format(folder=tmp_path))
    gateway = serve(flags=("--config", str(config)))
    claude: Any = ClaudeCode(sandbox, gateway)
    succeeded(claude("Run the shell command echo hello", ANTHROPIC_MODEL="opus"), "I am the big one.")
    succeeded(claude("Say something", ANTHROPIC_MODEL="haiku"), "I am the small one.")
    asked = [exchange.json["model"] for exchange in gateway.turns("/v1/messages")]
    assert [("opus" in name, "haiku" in name) for name in asked] == [(True, False), (True, False), (False, True)]
    records = gateway.records(3)
    assert re.findall(r"turn \w+ messages (\w+) ", gateway.log) == ["big", "big", "small"]
    assert records[1].prefix.startswith("held")
