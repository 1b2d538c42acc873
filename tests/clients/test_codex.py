"""Codex, headless: items, patches, namespaces, the catalog, and what it does when things go wrong."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import DRIVERS, Finished, Sandbox
from .serving import ServedGateway, count_tokens, prefix_held, rate_limited_key
from .wiretap import Exchange

CONFIG = """\
model = "{model}"
model_provider = "gw"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "{search}"
check_for_update_on_startup = false
{top}
[analytics]
enabled = false
[features]
plugins = false
apps = false
multi_agent = false
goals = false
shell_snapshot = false
[skills.bundled]
enabled = false
[model_providers.gw]
name = "{name}"
base_url = "{v1}"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
stream_idle_timeout_ms = 20000
{provider}
{tables}
"""
COMMAND_AUTH = """
[model_providers.gw.auth]
command = "sh"
args = ["-c", "printf %s \\"$GW_API_KEY\\""]
"""


class Codex:
    """`codex exec` in a sandbox. `catalog` is `auth` or `login` (asked of the gateway), a file, or None (Codex falls
    back)."""

    def __init__(self, sandbox: Sandbox, gateway: ServedGateway) -> None:
        self.sandbox = sandbox
        self.gateway = gateway
        self.home = sandbox.home / "codex"

    def configure(
        self,
        *,
        catalog: str | Path | None = "auth",
        name: str = "Gateway",
        top: str = "",
        provider: str = "",
        tables: str = "",
        search: str = "disabled",
    ) -> Codex:
        auth = 'env_key = "GW_API_KEY"'
        if catalog == "login":
            auth = "requires_openai_auth = true"
        elif catalog == "auth":
            auth = ""
            tables = COMMAND_AUTH + tables
        elif catalog is not None:
            top += f"\nmodel_catalog_json = {json.dumps(str(catalog))}"
        self.home.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(
            CONFIG.format(
                model=self.gateway.model,
                v1=self.gateway.v1,
                name=name,
                top=top,
                provider=f"{auth}\n{provider}",
                tables=tables,
                search=search,
            )
        )
        return self

    def run(self, *arguments: str, command: str = "codex", timeout: float = 90) -> Finished:
        env = self.sandbox.environment(CODEX_HOME=str(self.home), GW_API_KEY="sk-test")
        return self.sandbox.run([command, *arguments], env=env, timeout=timeout)

    def turns(self, *prompts: str, timeout: float = 90) -> Finished:
        """Several user turns in one process."""
        env = self.sandbox.environment(CODEX_HOME=str(self.home), GW_API_KEY="sk-test")
        command = [sys.executable, str(DRIVERS / "codex_turns.py"), str(self.sandbox.workspace), *prompts]
        return self.sandbox.run(command, env=env, timeout=timeout)

    def __call__(self, prompt: str, *more: str, timeout: float = 90) -> Finished:
        fixed = ["exec", "--strict-config", "--skip-git-repo-check", "--json", "-C", str(self.sandbox.workspace)]
        return self.run(*fixed, *more, prompt, timeout=timeout)


@pytest.fixture
def codex(sandbox: Sandbox) -> Any:
    return lambda gateway, **settings: Codex(sandbox, gateway).configure(**settings)


def items(done: Finished, kind: str) -> list[dict[str, Any]]:
    """The completed items of one type, as Codex reports them."""
    found = [row["item"] for row in done.rows if row["type"] == "item.completed"]
    return [item for item in found if item["type"] == kind]


def succeeded(done: Finished, text: str) -> None:
    assert done.code == 0, str(done)
    assert done.rows[-1]["type"] == "turn.completed", str(done)
    assert text in "\n".join(item["text"] for item in items(done, "agent_message")), str(done)
    assert not items(done, "error"), str(done)


def done_items(exchange: Exchange) -> list[dict[str, Any]]:
    return [sent.data["item"] for sent in exchange.events if sent.data["type"] == "response.output_item.done"]


def thoughts(found: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    """Reasoning items that say something; an item without a summary only carries what followed the last thought."""
    return [
        (item["summary"], item["encrypted_content"])
        for item in found
        if item["type"] == "reasoning" and item["summary"]
    ]


def input_items(exchange: Exchange, kind: str) -> list[dict[str, Any]]:
    return [item for item in exchange.json["input"] if item.get("type", "message") == kind]


def tool_names(exchange: Exchange) -> set[str]:
    return {tool.get("name", tool["type"]) for tool in exchange.json["tools"]}


TWO_TURNS = (
    line(thought("The user wants a greeting.\n“echo” will do."), call("exec_command", cmd="echo he''llo")),
    line(thought("It printed hello."), "The command printed hello."),
)


def test_two_turns_with_a_tool(serve: Serve, codex: Any) -> None:
    gateway = serve(*TWO_TURNS)
    done = codex(gateway)("Run echo hello and tell me what it printed.")
    succeeded(done, "The command printed hello.")
    assert [item["aggregated_output"] for item in items(done, "command_execution")] == ["hello\n"]
    first, second = gateway.turns()
    # The served catalog counts: effort and apply_patch are in the request, and no verbosity that nothing here heeds.
    assert first.json["reasoning"]["effort"]
    assert "verbosity" not in (first.json.get("text") or {})
    assert "apply_patch" in tool_names(first)
    # The thought came back as it was sent, carrier included.
    ((summary, carrier),) = thoughts(done_items(first))
    assert summary[0]["text"].strip() == "The user wants a greeting.\n“echo” will do."
    assert carrier
    assert thoughts(input_items(second, "reasoning")) == [(summary, carrier)]
    records = gateway.records(2)
    prefix_held(records)
    for exchange, record in zip((first, second), records, strict=True):
        usage = exchange.events[-1].data["response"]["usage"]
        assert usage["input_tokens"] == record.prompt_tokens == count_tokens(record.prompt_text)
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert done.rows[-1]["usage"]["input_tokens"] == sum(record.prompt_tokens for record in records)


@pytest.mark.parametrize("version", ["0.160", "0.150", "0.142", "0.100"])
def test_two_turns_with_older_versions(serve: Serve, codex: Any, sandbox: Sandbox, version: str) -> None:
    """Older ones put their prompt elsewhere, send other ids and other headers; they do not know our model."""
    gateway = serve(*TWO_TURNS)
    command = sandbox.executable(f"codex-{version}")
    arguments = ("exec", "--skip-git-repo-check", "--json", "-C", str(sandbox.workspace), "Run echo hello.")
    done = codex(gateway, catalog=None).run(*arguments, command=command)
    assert done.code == 0, str(done)
    assert [item["aggregated_output"] for item in items(done, "command_execution")] == ["hello\n"]
    assert items(done, "agent_message")[-1]["text"] == "The command printed hello."
    first, second = gateway.turns()
    assert thoughts(input_items(second, "reasoning")) == thoughts(done_items(first))
    prefix_held(gateway.records(2))


def test_a_patch_on_a_real_file(serve: Serve, codex: Any, sandbox: Sandbox) -> None:
    target = sandbox.workspace / "poem.txt"
    target.write_text("roses are red\nviolets are green\n")
    patch = "\n".join(
        [
            "*** Begin Patch",
            "*** Update File: poem.txt",
            "@@",
            " roses are red",
            "-violets are green",
            "+violets are blue",
            "*** End Patch",
        ]
    )
    gateway = serve(
        line(thought("A patch."), call("apply_patch", input=patch)),
        line(thought("Applied."), "The poem is right now."),
    )
    done = codex(gateway)("Correct the poem.")
    succeeded(done, "The poem is right now.")
    assert target.read_text() == "roses are red\nviolets are blue\n"
    assert items(done, "file_change")
    first, second = gateway.turns()
    (sent,) = [item for item in done_items(first) if item["type"] == "custom_tool_call"]
    assert sent["name"] == "apply_patch"
    assert sent["input"].strip() == patch
    deltas = [s.data["delta"] for s in first.events if s.data["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == sent["input"]
    assert len(input_items(second, "custom_tool_call")) == 1
    prefix_held(gateway.records(2))


def test_an_mcp_tool_in_its_namespace(serve: Serve, codex: Any, sandbox: Sandbox) -> None:
    notes = sandbox.folder / "notes.txt"
    server = (
        "[mcp_servers.notes]\n"
        f"command = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps([str(DRIVERS / 'mcp_notes.py'), str(notes)])}\n"
    )
    gateway = serve(
        line(thought("I write it down."), call("mcp__notes__add_note", text="buy milk")),
        line(thought("Noted."), "It is noted."),
    )
    done = codex(gateway, tables=server)("Note: buy milk")
    succeeded(done, "It is noted.")
    assert notes.read_text() == "buy milk\n"
    first, second = gateway.turns()
    offered = [tool for tool in first.json["tools"] if tool["type"] == "namespace"]
    assert "mcp__notes" in {tool["name"] for tool in offered}
    (sent,) = [item for item in done_items(first) if item["type"] == "function_call"]
    assert (sent["namespace"], sent["name"]) == ("mcp__notes", "add_note")
    (returned,) = input_items(second, "function_call")
    assert (returned["namespace"], returned["name"]) == ("mcp__notes", "add_note")
    prefix_held(gateway.records(2))


def test_parallel_calls_start_as_they_are_written(serve: Serve, codex: Any, sandbox: Sandbox) -> None:
    filler = "Meanwhile I think about the second file. " * 20
    gateway = serve(
        line(
            thought("Two files."),
            call("exec_command", cmd="echo one > first.txt"),
            thought(filler, first=False),
            call("exec_command", cmd="echo two > second.txt"),
            delay_ms=15,
        ),
        line(thought("Both there."), "Both files are written."),
    )
    succeeded(codex(gateway)("Write two files"), "Both files are written.")
    first, second = gateway.turns()
    closed = [s.at for s in first.events if s.data["type"] == "response.output_item.done"]
    assert [item["type"] for item in done_items(first)][:4] == ["reasoning", "function_call"] * 2
    written = (sandbox.workspace / "first.txt").stat().st_mtime
    assert closed[1] - 0.1 < written < closed[3], "the first tool waited for the second call"
    kinds = [item["type"] for item in second.json["input"] if item["type"] != "message"]
    assert kinds[:4] == ["reasoning", "function_call"] * 2
    assert kinds[-2:] == ["function_call_output"] * 2
    prefix_held(gateway.records(2))


def test_resume_in_a_new_process(serve: Serve, codex: Any) -> None:
    gateway = serve(*TWO_TURNS, line(thought("We spoke of hello."), "It was hello."))
    run = codex(gateway)
    succeeded(run("Run echo hello."), "The command printed hello.")
    succeeded(run("What was it?", "resume", "--last"), "It was hello.")
    exchanges = gateway.turns()
    assert len(exchanges) == 3
    assert len({exchange.headers["session-id"] for exchange in exchanges}) == 1
    sent = thoughts(done_items(exchanges[0])) + thoughts(done_items(exchanges[1]))
    assert thoughts(input_items(exchanges[2], "reasoning")) == sent
    prefix_held(gateway.records(3))


def catalog_entry(done: Finished, slug: str) -> dict[str, Any]:
    assert done.code == 0, str(done)
    entries = {entry["slug"]: entry for entry in json.loads(done.stdout)["models"]}
    assert slug in entries, sorted(entries)
    return entries[slug]


def test_the_catalog_is_served_by_command_auth(serve: Serve, codex: Any) -> None:
    gateway = serve(line("Hello."))
    entry = catalog_entry(codex(gateway).run("debug", "models"), gateway.model)
    assert entry["apply_patch_tool_type"] == "freeform"
    assert entry["truncation_policy"] == {"mode": "tokens", "limit": 10000}
    assert any(exchange.path == "/v1/models" for exchange in gateway.exchanges)


def catalog(model: str, *flags: str, env: dict[str, str] | None = None) -> str:
    command = [str(Path(sys.executable).with_name("turnwire")), "codex-catalog", "--model", model, *flags]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_a_catalog_like_a_record_of_the_installed_codex(serve: Serve, codex: Any, sandbox: Sandbox) -> None:
    """The record's own instructions and tools reach the wire; the window is the served model's."""
    gateway = serve(*TWO_TURNS)
    run = codex(gateway, catalog=None)
    records = json.loads(run.run("debug", "models", "--bundled").stdout)["models"]
    record = next(record for record in records if record["slug"] == "gpt-5.5")
    env = sandbox.environment(CODEX_HOME=str(run.home))
    path = sandbox.folder / "catalog.json"
    path.write_text(catalog(gateway.model, "--window", "65536", "--like", "gpt-5.5", env=env))
    run = codex(gateway, catalog=path)
    entry = catalog_entry(run.run("debug", "models"), gateway.model)
    for name in ("base_instructions", "truncation_policy", "shell_type", "apply_patch_tool_type"):
        assert entry[name] == record[name], name
    assert (entry["context_window"], entry["slug"]) == (65_536, gateway.model)
    succeeded(run("Run echo hello."), "The command printed hello.")
    first = gateway.turns()[0]
    assert json.dumps(record["base_instructions"][:200])[1:-1] in json.dumps(first.json)
    assert "apply_patch" in tool_names(first)


def test_the_catalog_by_file(serve: Serve, codex: Any, sandbox: Sandbox) -> None:
    gateway = serve(*TWO_TURNS)
    path = sandbox.folder / "catalog.json"
    path.write_text(catalog(gateway.model))
    run = codex(gateway, catalog=path)
    assert catalog_entry(run.run("debug", "models"), gateway.model)["base_instructions"]
    succeeded(run("Run echo hello."), "The command printed hello.")
    assert "apply_patch" in tool_names(gateway.turns()[0])
    assert not any(exchange.path == "/v1/models" for exchange in gateway.exchanges)


def test_tool_output_is_cut_by_tokens_and_not_by_bytes(serve: Serve, codex: Any) -> None:
    gateway = serve(
        line(thought("Much output."), call("exec_command", cmd="seq -f 'line number %06g of the listing' 1 3000")),
        line(thought("Long."), "It is long."),
    )
    succeeded(codex(gateway)("List."), "It is long.")
    (output,) = input_items(gateway.turns()[1], "function_call_output")
    assert len(json.dumps(output["output"])) > 30_000, "cut at 10,000 bytes, as with a model Codex does not know"


LISTING = "for i in $(seq 1 600); do echo another line of this long listing; done"
LONG = (
    line(thought("A listing."), call("exec_command", cmd=LISTING), match="twice"),
    line(thought("Again."), call("exec_command", cmd=LISTING), match="twice"),
    line(thought("And again."), call("exec_command", cmd=LISTING), match="twice"),
    line(thought("Shown."), "Both are shown.", match="twice"),
    line(thought("To sum up."), "A listing was shown: MARK-7."),
)


def kind_of(exchange: Exchange) -> str:
    return json.loads(exchange.headers["x-codex-turn-metadata"])["request_kind"]


def test_compaction_when_the_window_fills(serve: Serve, codex: Any) -> None:
    """Codex knows the window from our catalog and compacts before the end, by a plain turn."""
    gateway = serve(*LONG, flags=("--window", "19000"))
    run = codex(gateway)
    done = run("Show the listing twice.")
    assert done.code == 0, str(done)
    compactions = [exchange for exchange in gateway.turns() if kind_of(exchange) == "compaction"]
    assert compactions
    last = gateway.turns()[-1]
    assert kind_of(last) == "turn"
    assert last.headers["x-codex-window-id"].endswith(":1")
    assert "MARK-7" in last.body.decode()
    for exchange in gateway.turns():
        failed = [sent.data for sent in exchange.events if sent.data["type"] == "response.failed"]
        # A compaction that does not fit itself is answered so that Codex leaves the oldest item out and asks again.
        assert [failure["response"]["error"]["code"] for failure in failed] in ([], ["context_length_exceeded"])


def test_an_overflow_makes_the_next_turn_compact(serve: Serve, codex: Any, sandbox: Sandbox) -> None:
    """The client believes in a larger window than there is: only our answer tells it."""
    gateway = serve(*LONG, flags=("--window", "16000"))
    path = sandbox.folder / "catalog.json"
    path.write_text(catalog(gateway.model, "--window", "1000000"))
    run = codex(gateway, catalog=path)
    done = run.turns("Show the listing twice.", "What now?")
    assert [row["status"] for row in done.rows] == ["failed", "completed"], str(done)
    turns = gateway.turns()
    (overflow,) = [e for e in turns if kind_of(e) == "turn" and e.events[-1].data["type"] == "response.failed"]
    assert overflow.status == 200
    assert overflow.events[-1].data["response"]["error"]["code"] == "context_length_exceeded"
    later = turns[turns.index(overflow) + 1 :]
    assert kind_of(later[0]) == "compaction"
    assert kind_of(later[-1]) == "turn"
    assert "MARK-7" in later[-1].body.decode()


def test_compaction_by_the_server(serve: Serve, codex: Any) -> None:
    """A provider called OpenAI makes Codex ask the server for a compaction item, and replay it."""
    gateway = serve(*LONG, flags=("--window", "19000"))
    run = codex(gateway, name="OpenAI")
    done = run("Show the listing twice.")
    assert done.code == 0, str(done)
    triggered = [e for e in gateway.turns() if any(i.get("type") == "compaction_trigger" for i in e.json["input"])]
    assert triggered
    whole = [e for e in triggered if any(sent.data["type"] == "response.completed" for sent in e.events)]
    assert [item["type"] for item in done_items(whole[-1])] == ["compaction"]
    last = gateway.turns()[-1]
    assert input_items(last, "compaction")
    assert "MARK-7" in gateway.records(len(gateway.turns()))[-1].prompt_text


def test_a_stream_that_dies(serve: Serve, codex: Any) -> None:
    shared = ("--seal-key", "one key for all replicas")
    dying = serve(
        TWO_TURNS[0],
        line(thought("It printed hello."), "The command printed hello. " * 10, finish="disconnect", delay_ms=2),
        flags=shared,
    )
    healthy = serve(*TWO_TURNS, flags=shared)
    dying.hand_over(healthy, after=2)
    succeeded(codex(dying)("Run echo hello."), "The command printed hello.")
    assert not any(sent.data["type"] == "response.completed" for sent in dying.turns()[1].events)
    history = dying.records(2)[1].prompt_text.removesuffix("<|im_start|>assistant\n<think>\n")
    assert healthy.records(1)[0].prompt_text.startswith(history)


@pytest.mark.parametrize("error", ["overloaded", "internal", "unreachable"])
def test_refused_then_well(serve: Serve, codex: Any, error: str) -> None:
    busy = serve(line("", finish="error", error=error, after=0))
    well = serve(*TWO_TURNS)
    busy.hand_over(well, after=1)
    succeeded(codex(busy)("Run echo hello."), "The command printed hello.")
    # A worker that is away is waited for a while, so that the stream has begun when it is given up.
    assert busy.turns()[0].status == {"overloaded": 503, "internal": 502, "unreachable": 200}[error]


def test_a_rate_limit_is_waited_for(serve: Serve, codex: Any, sandbox: Sandbox) -> None:
    """A bare 429 would end the turn: Codex is told on a stream when to ask again."""
    gateway = serve(*TWO_TURNS, flags=rate_limited_key(sandbox.folder / "keys.toml", "sk-test"))
    run = codex(gateway, catalog=None)
    gateway.exhaust("sk-test")
    done = run("Run echo hello.")
    assert done.code == 0, str(done)
    assert items(done, "agent_message")[-1]["text"] == "The command printed hello."
    limited = [e for e in gateway.turns() if e.events and e.events[-1].data["type"] == "response.failed"]
    assert limited
    for exchange in limited:
        assert exchange.status == 200
        error = exchange.events[-1].data["response"]["error"]
        assert error["code"] == "rate_limit_exceeded"
        assert re.search(r"try again in \d", error["message"])


def _token(claims: dict[str, Any]) -> str:
    """A token in the shape of a login's; nobody here checks its signature."""
    parts = ({"alg": "none"}, claims, {})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def test_a_compressed_body(serve: Serve, codex: Any) -> None:
    """With a login and a provider called OpenAI, Codex sends zstd without a content size."""
    gateway = serve(*TWO_TURNS)
    run = codex(gateway, catalog="login", name="OpenAI")
    account = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "account", "chatgpt_user_id": "user"}
    token = _token({"email": "someone@example.com", "exp": 4102444800, "https://api.openai.com/auth": account})
    tokens = {"id_token": token, "access_token": token, "refresh_token": "none", "account_id": "account"}
    login = {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": datetime.now(UTC).isoformat()}
    (run.home / "auth.json").write_text(json.dumps(login))
    done = run("Run echo hello.")
    assert done.code == 0, str(done)
    assert "The command printed hello." in "\n".join(item["text"] for item in items(done, "agent_message"))
    assert {exchange.headers.get("content-encoding") for exchange in gateway.turns()} == {"zstd"}
    prefix_held(gateway.records(2))


def test_the_whole_task_over_a_websocket(serve: Serve, codex: Any) -> None:
    gateway = serve(*TWO_TURNS)
    done = codex(gateway, provider="supports_websockets = true")("Run echo hello.")
    succeeded(done, "The command printed hello.")
    upgrade = next(exchange for exchange in gateway.exchanges if exchange.headers.get("upgrade") == "websocket")
    assert upgrade.status == 101
    assert not gateway.turns(), "Codex went back to plain requests"
    prefix_held([record for record in gateway.records(2) if record.output_text])
