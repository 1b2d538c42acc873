"""`turnwire bench prefix` against a real gateway, and what it says of a list of times."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner

from tests.gateway.conftest import Serve, serve  # noqa: F401 - a fixture
from turnwire.cli.bench.conversation import CONDITIONS, Conversation, Dice
from turnwire.cli.bench.timing import interval
from turnwire.cli.main import main


async def test_every_condition_is_measured(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    client = await serve({"text": "Hm.\n</think>\n\nHi."})
    recorded, target = tmp_path / "request.json", tmp_path / "times.json"
    recorded.write_text(json.dumps({"system": "Be brief.", "tools": [{"name": "Read", "input_schema": {}}]}))
    arguments = ["bench", "prefix", "--url", client.base, "--model", "test-model", "--tokens", "900", "--rounds", "2"]
    arguments += ["--request", str(recorded), "--json", str(target)]
    told = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert told.exit_code == 0, told.output
    assert [line.split("  ")[0] for line in told.output.splitlines()[1:]] == list(CONDITIONS)
    found = json.loads(target.read_text())
    assert all(len(timed["times"]) == 2 and min(timed["times"]) > 0 for timed in found.values())
    assert min(found["stable"]["prompt"]) >= 900


def test_a_gateway_that_is_not_there_is_said() -> None:
    told = CliRunner().invoke(main, ["bench", "prefix", "--url", "http://127.0.0.1:9", "--rounds", "1"])
    assert told.exit_code == 1
    assert "Is a gateway running at http://127.0.0.1:9?" in told.output


def test_a_condition_changes_what_it_names_and_nothing_else() -> None:
    tools = [{"name": f"t{number}", "input_schema": {}} for number in range(6)]
    made = Conversation([{"type": "text", "text": "S"}], tools, [], "thought", "t0")
    stable = CONDITIONS["stable"][1](made, "n", Dice("a"))
    changed = {}
    for name, (_, body) in CONDITIONS.items():
        sent = body(made, "n", Dice("a"))
        changed[name] = {field for field in stable if sent[field] != stable[field]}
        assert sent.keys() == stable.keys()
    assert changed == {
        "stable": set(),
        "varying": {"system"},
        "stripped": {"system"},
        "date": {"system"},
        "tool order": {"tools"},
        "thought changed": {"messages"},
        "thought dropped": {"messages"},
    }


def test_the_interval_of_equal_times_is_a_point_and_of_others_holds_the_median() -> None:
    assert interval([5.0] * 30) == (5.0, 5.0)
    low, high = interval([float(value) for value in range(31)])
    assert 0 < low < 15 < high < 30
