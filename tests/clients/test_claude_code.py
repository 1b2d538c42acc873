"""Claude Code, headless: what it does with our turns, and what it gives back to us."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Finished, Sandbox
from .serving import ServedGateway, count_tokens, prefix_held, rate_limited_key
from .wiretap import Exchange


class ClaudeCode:
    """`claude -p` in a sandbox."""

    def __init__(self, sandbox: Sandbox, gateway: ServedGateway) -> None:
        self.sandbox = sandbox
        self.gateway = gateway

    def __call__(self, prompt: str, *arguments: str, timeout: float = 90, **env: str) -> Finished:
        variables = {
            "CLAUDE_CONFIG_DIR": str(self.sandbox.home / ".claude"),
            "ANTHROPIC_BASE_URL": self.gateway.url,
            "ANTHROPIC_AUTH_TOKEN": "dummy",
            "ANTHROPIC_MODEL": self.gateway.model,
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "3",
            "IS_SANDBOX": "1",
            **env,
        }
        command = ["claude", "-p", prompt, "--output-format", "stream-json", "--verbose"]
        command += ["--dangerously-skip-permissions", *arguments]
        return self.sandbox.run(command, env=self.sandbox.environment(**variables), timeout=timeout)


@pytest.fixture
def claude(sandbox: Sandbox) -> Any:
    return lambda gateway: ClaudeCode(sandbox, gateway)


def succeeded(done: Finished, text: str) -> None:
    assert done.code == 0, str(done)
    result = done.rows[-1]
    assert result["type"] == "result", str(done)
    assert not result["is_error"], str(done)
    assert text in result["result"], str(done)


def streamed_blocks(exchange: Exchange) -> list[dict[str, Any]]:
    """The content blocks as a client assembles them from the stream."""
    blocks: dict[int, dict[str, Any]] = {}
    for sent in exchange.events:
        data = sent.data
        if data["type"] == "content_block_start":
            blocks[data["index"]] = dict(data["content_block"])
        elif data["type"] == "content_block_delta":
            block, delta = blocks[data["index"]], data["delta"]
            for key in ("text", "thinking", "signature", "partial_json"):
                if key in delta:
                    block[key] = block.get(key, "") + delta[key]
    return [blocks[index] for index in sorted(blocks)]


def kinds(blocks: list[dict[str, Any]]) -> list[str]:
    """The blocks' types, without the block that only carries what followed the last thought."""
    return [block["type"] for block in blocks if block["type"] != "redacted_thinking"]


def assistant_blocks(exchange: Exchange, turn: int = -1) -> list[dict[str, Any]]:
    """The blocks of an assistant message as the client sent them back."""
    messages = [message for message in exchange.json["messages"] if message["role"] == "assistant"]
    content = messages[turn]["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def thinking_of(blocks: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(block["thinking"], block["signature"]) for block in blocks if block["type"] == "thinking"]


def prompt_tokens_at_start(exchange: Exchange) -> int:
    usage = exchange.events[0].data["message"]["usage"]
    return sum(
        usage.get(key) or 0 for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )


TWO_TURNS = (
    line(thought("The user wants a greeting.\nI will use the shell: “echo”."), call("Bash", command="echo he''llo")),
    line(thought("It printed hello."), "The command printed hello."),
)


def test_two_turns_with_a_tool(serve: Serve, claude: Any) -> None:
    gateway = serve(*TWO_TURNS)
    succeeded(claude(gateway)("Run the shell command echo hello"), "The command printed hello.")
    first, second = gateway.turns()
    sent, returned = streamed_blocks(first), assistant_blocks(second)
    # The thought came back byte for byte, and with it the carrier of the exact turn.
    assert thinking_of(sent) == thinking_of(returned)
    assert kinds(returned) == ["thinking", "tool_use"]
    assert sent[0]["thinking"].strip() == "The user wants a greeting.\nI will use the shell: “echo”."
    assert sent[0]["signature"]
    result = second.json["messages"][-1]["content"][0]
    assert result["type"] == "tool_result"
    assert "hello" in json.dumps(result)
    # The count in the first event is the true one.
    records = gateway.records(2)
    for exchange, record in zip((first, second), records, strict=True):
        assert prompt_tokens_at_start(exchange) == record.prompt_tokens == count_tokens(record.prompt_text)
    assert first.events[0].data["message"]["usage"]["input_tokens"] == records[0].prompt_tokens
    prefix_held(records)


def test_a_tool_runs_while_the_turn_still_streams(serve: Serve, claude: Any, sandbox: Sandbox) -> None:
    filler = "Meanwhile I think about the second file. " * 20
    gateway = serve(
        line(
            thought("Two files."),
            call("Bash", command="echo one > first.txt"),
            thought(filler, first=False),
            call("Bash", command="echo two > second.txt"),
            delay_ms=15,
        ),
        line(thought("Both there."), "Both files are written."),
    )
    succeeded(claude(gateway)("Write two files"), "Both files are written.")
    first, second = gateway.turns()
    stops = [sent.at for sent in first.events if sent.data["type"] == "content_block_stop"]
    assert kinds(streamed_blocks(first)) == ["thinking", "tool_use", "thinking", "tool_use"]
    written = (sandbox.workspace / "first.txt").stat().st_mtime
    assert stops[1] - 0.1 < written < stops[3], "the first tool waited for the second call"
    assert (sandbox.workspace / "second.txt").read_text() == "two\n"
    results = [block for block in second.json["messages"][-1]["content"] if block["type"] == "tool_result"]
    assert len(results) == 2
    prefix_held(gateway.records(2))


def test_interleaved_thinking_comes_back_in_order(serve: Serve, claude: Any) -> None:
    gateway = serve(
        line(
            thought("First the date."),
            call("Bash", command="echo monday"),
            thought("Then the place.", first=False),
            "Now the place.",
            call("Bash", command="echo berlin"),
        ),
        line(thought("I know both."), call("Bash", command="echo done")),
        line(thought("Finished."), "Monday in Berlin."),
    )
    succeeded(claude(gateway)("When and where?"), "Monday in Berlin.")
    exchanges = gateway.turns()
    assert len(exchanges) == 3
    order = ["thinking", "tool_use", "thinking", "text", "tool_use"]
    assert kinds(streamed_blocks(exchanges[0])) == order
    for later in exchanges[1:]:
        returned = assistant_blocks(later, 0)
        assert kinds(returned) == order
        assert thinking_of(returned) == thinking_of(streamed_blocks(exchanges[0]))
    prefix_held(gateway.records(3))


def test_a_large_file_is_streamed_and_written_exactly(serve: Serve, claude: Any, sandbox: Sandbox) -> None:
    content = "".join(f"{number:05d} the quick brown fox, \"quoted\" and 'so' on: ü€\n" for number in range(1200))
    assert len(content.encode()) > 60_000
    path = str(sandbox.workspace / "large.txt")
    gateway = serve(
        # The client puts the keys into the schema's order when it sends the call back.
        line(thought("A big file."), call("Write", content=content, file_path=path)),
        line(thought("Written."), "The file is written."),
    )
    done = claude(gateway)("Write the file", CLAUDE_CODE_MAX_OUTPUT_TOKENS="60000")
    succeeded(done, "The file is written.")
    # One newline before the closing tag belongs to the format.
    assert (sandbox.workspace / "large.txt").read_text().rstrip("\n") == content.rstrip("\n")
    first = gateway.turns()[0]
    deltas = [sent for sent in first.events if sent.data.get("delta", {}).get("type") == "input_json_delta"]
    assert len(deltas) > 100, "the arguments came in one piece"
    prefix_held(gateway.records(2))


def test_resume_in_a_new_process(serve: Serve, claude: Any) -> None:
    gateway = serve(*TWO_TURNS, line(thought("We spoke of hello."), "It was hello."))
    session = str(uuid.uuid4())
    run = claude(gateway)
    succeeded(run("Run the shell command echo hello", "--session-id", session), "The command printed hello.")
    succeeded(run("What was it?", "--resume", session), "It was hello.")
    exchanges = gateway.turns()
    assert len(exchanges) == 3
    assert {exchange.headers["x-claude-code-session-id"] for exchange in exchanges} == {session}
    assert thinking_of(assistant_blocks(exchanges[2], 0)) == thinking_of(streamed_blocks(exchanges[0]))
    assert thinking_of(assistant_blocks(exchanges[2], 1)) == thinking_of(streamed_blocks(exchanges[1]))
    prefix_held(gateway.records(3))


def test_resume_after_the_gateway_was_restarted(serve: Serve, claude: Any) -> None:
    """The exact turns ride in the conversation itself: a gateway that has never seen it replays them."""
    gateway = serve(
        *TWO_TURNS, line(thought("We spoke."), "It was hello."), flags=("--seal-key", "one key for all replicas")
    )
    session = str(uuid.uuid4())
    run = claude(gateway)
    succeeded(run("Run the shell command echo hello", "--session-id", session), "The command printed hello.")
    gateway.stop()
    gateway.start()
    succeeded(run("What was it?", "--resume", session), "It was hello.")
    prefix_held(gateway.records(3), restarted_before=3)


def test_tool_search_keeps_the_prefix(serve: Serve, claude: Any) -> None:
    gateway = serve(
        line(thought("I need a deferred tool."), call("ToolSearch", query="select:CronList", max_results=5)),
        line(thought("Loaded."), call("CronList")),
        line(thought("No jobs."), "There are no jobs."),
    )
    succeeded(claude(gateway)("List the cron jobs"), "There are no jobs.")
    exchanges = gateway.turns()
    assert len(exchanges) == 3
    assert '"tool_reference"' in exchanges[1].body.decode()
    loaded = {tool["name"] for tool in exchanges[1].json["tools"]} - {
        tool["name"] for tool in exchanges[0].json["tools"]
    }
    assert loaded == {"CronList"}
    records = gateway.records(3)
    prefix_held(records)
    # The loaded tool's description stands where it was loaded, not in the tool section.
    added = records[1].prompt_text[len(records[0].prompt_text) :]
    assert '"CronList"' in added


def test_two_conversations_share_their_prefix(serve: Serve, claude: Any) -> None:
    """The client puts a line that differs per conversation first, and its surroundings behind the user's words."""
    gateway = serve(line(thought("Hi."), "Hello."))
    run = claude(gateway)
    succeeded(run("First of all: what is the time?"), "Hello.")
    succeeded(run("Something else entirely"), "Hello.")
    one, other = (record.prompt_text for record in gateway.records(2))
    shared = next(at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    assert shared > 0.98 * min(len(one), len(other))
    assert gateway.records(2)[1].cached_tokens > 0.9 * gateway.records(2)[1].prompt_tokens


def test_a_subagent_and_its_parent(serve: Serve, claude: Any) -> None:
    gateway = serve(
        line(thought("I look."), call("Bash", command="echo found"), match="MISSION"),
        line(thought("Found."), "The agent found it.", match="MISSION"),
        line(
            thought("Somebody else can do that."),
            call("Agent", description="Look", prompt="MISSION: look for it", subagent_type="general-purpose"),
        ),
        line(thought("Good."), "My agent found it."),
    )
    succeeded(claude(gateway)("Let an agent look for it", CLAUDE_CODE_GATEWAY_HINT_HEADERS="1"), "My agent found it.")
    turns = gateway.turns()
    agents = [exchange for exchange in turns if "x-claude-code-agent-id" in exchange.headers]
    assert len(agents) >= 2
    assert {exchange.headers["x-claude-code-request-class"] for exchange in agents} == {"subagent"}
    records = gateway.records(len(turns))
    inner = [record for record in records if "x-claude-code-agent-id" in record.headers]
    outer = [record for record in records if "x-claude-code-agent-id" not in record.headers]
    prefix_held(inner)
    prefix_held(outer)


def test_dispatch_when_asked_for(serve: Serve, claude: Any) -> None:
    gateway = serve(*TWO_TURNS)
    done = claude(gateway)("Run echo hello", ANTHROPIC_CUSTOM_HEADERS="x-turnwire-dispatch: 1")
    succeeded(done, "The command printed hello.")
    events = gateway.turns()[0].events
    (dispatched,) = [sent.data for sent in events if sent.event == "tool_call_dispatch"]
    assert dispatched["type"] == "tool_call_dispatch"
    prefix_held(gateway.records(2))


def test_an_engine_that_dies_in_mid_stream(serve: Serve, claude: Any) -> None:
    shared = ("--seal-key", "one key for all replicas")
    dying = serve(
        TWO_TURNS[0],
        line(thought("It printed hello."), "The command printed hello. " * 10, finish="disconnect", delay_ms=2),
        flags=shared,
    )
    healthy = serve(*TWO_TURNS, flags=shared)
    dying.hand_over(healthy, after=2)
    succeeded(claude(dying)("Run the shell command echo hello"), "The command printed hello.")
    asked = dying.turns()
    assert len(asked) >= 3
    broken = asked[1]
    assert broken.status == 200
    assert not any(sent.event == "message_stop" for sent in broken.events), "a cut turn was shown as a whole one"
    # The other gateway had never seen the first turn, and read it exactly; the client asks it to go on.
    history = dying.records(2)[1].prompt_text.removesuffix("<|im_start|>assistant\n<think>\n")
    assert dying.records(2)[1].failure
    assert healthy.records(1)[0].prompt_text.startswith(history)


def test_overloaded_then_well(serve: Serve, claude: Any) -> None:
    busy = serve(line("", finish="error", error="overloaded", after=0))
    well = serve(*TWO_TURNS)
    busy.hand_over(well, after=1)
    done = claude(busy)("Run the shell command echo hello")
    succeeded(done, "The command printed hello.")
    refused = busy.turns()[0]
    assert refused.status == 529
    assert json.loads(refused.answer)["error"]["type"] == "overloaded_error"
    assert any(row.get("subtype") == "api_retry" for row in done.rows)


def test_a_rate_limit_is_waited_for(serve: Serve, claude: Any, sandbox: Sandbox) -> None:
    gateway = serve(*TWO_TURNS, flags=rate_limited_key(sandbox.folder / "keys.toml", "dummy"))
    gateway.exhaust("dummy")
    succeeded(claude(gateway)("Run the shell command echo hello"), "The command printed hello.")
    limited = [exchange for exchange in gateway.turns() if exchange.status == 429]
    assert limited
    assert all(int(exchange.answer_headers["retry-after"]) <= 3 for exchange in limited)


def test_a_wrong_key_is_said_at_once(serve: Serve, claude: Any, sandbox: Sandbox) -> None:
    gateway = serve(*TWO_TURNS, flags=rate_limited_key(sandbox.folder / "keys.toml", "another"))
    done = claude(gateway)("Run the shell command echo hello", timeout=30)
    assert done.code == 1, str(done)
    assert [exchange.status for exchange in gateway.turns()] == [401]


def test_the_windows_end_leads_to_compaction_and_on(serve: Serve, claude: Any) -> None:
    long_output = "for i in $(seq 1 600); do echo another line of this long listing; done"
    summary = "<summary>Asked for a listing twice; it was shown twice: MARK-7.</summary>"
    gateway = serve(
        line(thought("A long listing."), call("Bash", command=long_output), match="then again"),
        line(thought("Again."), call("Bash", command=long_output), match="then again"),
        line(thought("To sum up."), summary, match="summary"),
        line(thought("I go on from the summary."), "The listing is long."),
        flags=("--window", "22000"),
    )
    # The client is told of a larger window than there is, so that our refusal is what makes it compact.
    done = claude(gateway)("Show the listing, then again", CLAUDE_CODE_MAX_CONTEXT_TOKENS="200000")
    succeeded(done, "The listing is long.")
    assert [exchange.status for exchange in gateway.turns()] == [200, 200, 400, 200, 200]
    refusal = json.loads(gateway.turns()[2].answer)["error"]
    assert refusal["type"] == "invalid_request_error"
    assert re.fullmatch(r"prompt is too long: \d+ tokens > 22000 maximum", refusal["message"])
    records = gateway.records(5)
    # The compaction request (all but the newest turn, which is kept) continues the old prefix; what follows it is a
    # new, shorter conversation.
    prefix_held([records[0], records[1]])
    assert records[3].prompt_text.startswith(records[0].prompt_text + records[0].output_text)
    assert records[4].prompt_tokens < records[3].prompt_tokens
    assert "MARK-7" in records[4].prompt_text


def test_a_search_is_said_to_be_unavailable_and_no_invention_is_shown(serve: Serve, claude: Any) -> None:
    gateway = serve(
        line(thought("I search."), call("WebSearch", query="who won the cup")),
        line(thought("No search here."), "I could not search the web."),
    )
    succeeded(claude(gateway)("Who won the cup?", "--tools", "WebSearch"), "I could not search the web.")
    *_, last = gateway.turns()
    (result,) = [
        block
        for message in last.json["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert "unavailable" in json.dumps(result)
    assert "I could not search" not in json.dumps(result)
