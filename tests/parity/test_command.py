"""`turnwire parity` as a person meets it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnwire.cli.main import main
from turnwire.parity.results import Run, write_runs
from turnwire.parity.shapes import diff, shape
from turnwire.parity.tasks import TASKS, write_tasks

ANSWER = {
    "id": "a",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"tool_calls": [{"id": "c", "function": {"name": "run", "arguments": "{}"}}]},
        }
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}
# A client that asks twice on one arm and once on the other, and mends the file on the first only.
CLIENT = """
import json, sys, urllib.request
url, folder, mends = sys.argv[1:]
for _ in range(2 if mends else 1):
    body = json.dumps({"model": "m", "messages": [], "tools": [], "temperature": int(bool(mends))}).encode()
    urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body)).read()
if mends:
    open(folder + "/clamp.py", "w").write(mends)
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["parity", *map(str, arguments)])


@pytest.fixture
def server() -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps(ANSWER).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()


def test_a_run_counts_what_passes_and_who_succeeds(server: str, tmp_path: Path) -> None:
    write_tasks(tmp_path / "all")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "all" / "clamp").rename(tmp_path / "tasks" / "clamp")
    clamp = next(task for task in TASKS if task.name == "clamp")
    plan = tmp_path / "plan.toml"
    arms = []
    for name, mends in (("native", clamp.source(clamp.right)), ("fallback", "")):
        arms.append(
            f"""[[arm]]
name = "{name}"
url = "{server}"
command = "python {{home}}/client.py {{url}} {{folder}} $MENDS"
[arm.files]
"client.py" = {json.dumps(CLIENT)}
""".replace("$MENDS", json.dumps(f"'{mends}'")[1:-1].replace('\\\\"', '\\\\\\"'))
        )
    plan.write_text("\n".join(arms))
    results, requests = tmp_path / "results.jsonl", tmp_path / "requests"
    done = run("run", plan, "--tasks", tmp_path / "tasks", "--save", results, "--requests", requests)
    assert done.exit_code == 0, done.output
    runs = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(r["arm"], r["turns"], r["calls"], r["prompt_tokens"], r["success"], r["note"]) for r in runs] == [
        ("native", 2, 2, 14, True, ""),
        ("fallback", 1, 1, 7, False, ""),
    ]
    assert "| calls | 2 | 1 | +1 (1 to 1) | 1 / 0 / 0 |" in done.output
    told = run("shapes", requests / "native.json", requests / "fallback.json")
    assert (told.exit_code, told.output) == (1, "temperature: 1 against 0\n")
    assert run("shapes", requests / "native.json", requests / "native.json").output == "the same shape\n"


def test_recorded_results_are_compared(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    for task in range(30):
        write_runs(results, [Run(task=f"t{task}", arm="a", calls=20 + task, turns=5, success=True)])
        write_runs(results, [Run(task=f"t{task}", arm="b", calls=10 + task, turns=5, success=True)])
    write_runs(results, [Run(task="only", arm="b", calls=1, turns=1)])
    done = run("compare", results, "--arms", "a,b", "--json", tmp_path / "out.json")
    assert done.exit_code == 0, done.output
    assert "| calls | 34.5 | 24.5 | +10 (10 to 10) | 30 / 0 / 0 | < 0.001 | < 0.001 |" in done.output
    assert "Left out, as only one arm has them: only." in done.output
    assert json.loads((tmp_path / "out.json").read_text())["measures"][1]["p"] == 1.0


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "two [[arm]]"), ("[[arm]]\nname = 3", "Expected `str`"), ("[", "plan.toml")],
)
def test_a_wrong_plan_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(text)
    done = run("run", tmp_path / "plan.toml", "--tasks", tmp_path, "--save", tmp_path / "r")
    assert done.exit_code == 1
    assert said in done.output


def test_wrong_results_are_refused(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_text('{"task": 1}\n')
    assert "line 1" in run("compare", results, "--arms", "a,b").output
    results.write_text("")
    assert "no run of the arm 'a'" in run("compare", results, "--arms", "a,b").output
    assert "Name two arms" in run("compare", results, "--arms", "a").output


def test_shapes_of_the_three_apis() -> None:
    chat = shape({"messages": [{"role": "system", "content": "Be brief."}], "tools": [{"function": {"name": "a"}}]})
    messages = shape({"system": [{"type": "text", "text": "Be brief."}], "tools": [{"name": "a"}]})
    responses = shape({"instructions": "Be brief.", "tools": [{"type": "web_search"}], "reasoning": {"effort": "low"}})
    assert diff(chat, messages) == ["tool a: defined differently"]
    assert diff(messages, responses) == [
        "tool a: only in the first",
        "tool web_search: only in the second",
        'reasoning: absent against {"effort":"low"}',
    ]
    longer = shape({"instructions": "Be very brief."})
    assert diff(responses, longer)[0].startswith("instructions: 9 characters (")
    assert diff(chat, chat) == []
    developer = shape({"input": [{"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}]})
    assert developer.instructions == chat.instructions
