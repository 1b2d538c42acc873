"""Claude Code's transcripts and Codex's rollouts as captures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from turnwire.capture.format import CapturedTurn, CaptureError, CaptureHead
from turnwire.capture.redaction import Redactor, secrets_in
from turnwire.capture.transcripts.importing import import_transcripts
from turnwire.cli.main import main
from turnwire.engines.captured.files import load_capture
from turnwire.gateway.telemetry.journal import TurnSummary

KEY = "sk-" + "a1b2" * 8


def line(number: int, parent: int | None, **over: Any) -> dict[str, Any]:
    """A line of a Claude Code transcript, one second after the one before."""
    fields = {
        "parentUuid": None if parent is None else f"u{parent}",
        "isSidechain": False,
        "uuid": f"u{number}",
        "timestamp": f"2026-11-16T01:00:{number:02d}.000Z",
        "sessionId": "s-1",
        "version": "2.1.325",
    }
    return fields | over


def user(number: int, parent: int | None, content: Any, **over: Any) -> dict[str, Any]:
    return line(number, parent, type="user", message={"role": "user", "content": content}, **over)


def answer(number: int, parent: int, name: str, *content: dict[str, Any], **over: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 7}
    message = {"id": name, "role": "assistant", "model": "m", "content": list(content), "usage": usage}
    return line(number, parent, type="assistant", message=message, **over)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "ls"}}


def result(name: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": name, "content": "a.py"}]


def imported(*lines: dict[str, Any]) -> list[CapturedTurn]:
    data = [json.dumps(one).encode() + b"\n" for one in lines]
    head, *turns = import_transcripts([("file", data)], Redactor())
    assert isinstance(head, CaptureHead)
    return [turn for turn in turns if isinstance(turn, CapturedTurn)]


def said(turn: CapturedTurn) -> list[str]:
    """Who speaks in a turn's request."""
    body = json.loads(turn.request.body)
    return [message["role"] for message in body["messages"]]


def test_an_answer_of_several_lines_is_one_turn_and_results_of_several_calls_stay_together() -> None:
    first, second = imported(
        {"type": "queue-operation", "sessionId": "s-1"},
        user(1, None, "Look."),
        answer(3, 1, "m1", {"type": "thinking", "thinking": "I look."}),
        answer(4, 3, "m1", use("c1")),
        answer(5, 4, "m1", use("c2")),
        user(6, 4, result("c1")),
        user(7, 5, result("c2")),
        answer(9, 7, "m2", text("Two files.")),
    )
    assert [block.kind for block in first.blocks] == ["reasoning", "tool_call", "tool_call"]
    assert (first.finish, first.call_ids, first.seconds) == ("tool_calls", ("c1", "c2"), 4.0)
    assert [(span["start"], span["end"]) for span in first.summary["spans"]] == [(0.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    assert said(second) == ["user", "assistant", "user", "user"]
    summary = msgspec.convert(second.summary, TurnSummary)
    assert (summary.prompt_tokens, summary.cached_tokens, summary.output_tokens) == (105, 90, 7)
    assert (summary.session, summary.client, second.place) == ("s-1", "claude-cli/2.1.325", 1)


def test_a_rewind_leaves_out_what_was_taken_back_and_a_compaction_begins_anew() -> None:
    turns = imported(
        user(1, None, "Look."),
        answer(2, 1, "m1", text("Where?")),
        user(3, 2, "There."),
        answer(4, 3, "m2", text("I see.")),
        user(5, 2, "No, here."),
        answer(6, 5, "m3", text("Ah.")),
        user(7, None, "What was said so far: much."),
        answer(8, 7, "m4", text("Go on.")),
    )
    assert [said(turn) for turn in turns] == [
        ["user"],
        ["user", "assistant", "user"],
        ["user", "assistant", "user"],
        ["user"],
    ]
    assert "No, here." in turns[2].request.body
    assert "There." not in turns[2].request.body


def test_a_sub_agent_is_a_thread_of_its_own() -> None:
    side = {"isSidechain": True, "agentId": "a7"}
    main, helper = imported(
        user(1, None, "Look."),
        answer(4, 1, "m1", use("c1")),
        user(2, None, "Search.", **side),
        answer(3, 2, "m2", text("Found."), **side),
    )
    assert (main.agent, helper.agent, helper.turn_class) == (None, "a7", "subagent")
    assert said(helper) == ["user"]


def rollout() -> list[dict[str, Any]]:
    def row(second: int, kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": f"2026-11-16T01:00:{second:02d}.000Z", "type": kind, "payload": payload}

    usage = {"input_tokens": 50, "cached_input_tokens": 40, "output_tokens": 9, "reasoning_output_tokens": 3}
    counted = {"type": "token_count", "info": {"last_token_usage": usage | {"output_tokens": 99}}}
    meta = {"id": "s-2", "originator": "codex_exec", "cli_version": "0.166.0", "base_instructions": {"text": "Work."}}
    return [
        row(0, "session_meta", **meta),
        row(0, "turn_context", model="m"),
        row(1, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "Look."}]),
        row(2, "response_item", type="reasoning", summary=[{"type": "summary_text", "text": "I look."}], content=None),
        row(3, "response_item", type="function_call", name="shell", arguments='{"cmd": "ls"}', call_id="c1"),
        row(3, "token_usage_record", usage=usage),
        row(5, "response_item", type="function_call_output", call_id="c1", output="a.py"),
        row(5, "event_msg", **counted),
        row(6, "response_item", type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2"),
        row(7, "compacted", message="Much was said."),
        row(8, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "Go on."}]),
        row(9, "response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
    ]


def test_a_rollout() -> None:
    first, second, third = imported(*rollout())
    assert [(block.kind, block.arguments) for block in first.blocks] == [
        ("reasoning", None),
        ("tool_call", {"cmd": "ls"}),
    ]
    body = json.loads(first.request.body)
    assert (body["instructions"], len(body["input"]), first.at + 2, first.seconds) == ("Work.", 1, second.at - 2, 2.0)
    assert first.summary["output_tokens"] == 9
    assert first.client == "codex_exec/0.166.0"
    assert [item["type"] for item in json.loads(second.request.body)["input"]] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert second.blocks[0].arguments == "*** Begin"
    assert "Much was said." in third.request.body
    assert "a.py" not in third.request.body
    assert third.summary["output_tokens"] == 0


def test_secrets_do_not_pass_and_an_unfinished_line_ends_the_file() -> None:
    lines = [user(1, None, f"The key is {KEY}."), answer(2, 1, "m1", text(f"I keep {KEY}."))]
    data = [json.dumps(one).encode() + b"\n" for one in lines]
    (_, turn) = import_transcripts([("file", [*data, b'{"type":"user","mess'])], Redactor())
    assert isinstance(turn, CapturedTurn)
    assert secrets_in(turn) == []
    assert KEY not in repr(turn)
    assert turn.redacted == 2


@pytest.mark.parametrize(
    "data", [b"", b"no json\n", b'{"type":"head"}\n', b"[1]\n", b'{"sessionId":"s","type":"user","message":7}\n']
)
def test_what_is_no_transcript_is_an_error(data: bytes) -> None:
    with pytest.raises(CaptureError, match=r"no transcript|No turn"):
        import_transcripts([("file", [data])], Redactor())


def test_the_command(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions" / "2026"
    sessions.mkdir(parents=True)
    (sessions / "rollout-1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rollout()))
    target = tmp_path / "i.capture.jsonl"

    def run(*arguments: str) -> str:
        ran = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        assert ran.exit_code == 0, ran.output
        return ran.output

    assert "3 turns of 1 sessions" in run("import", str(tmp_path / "sessions"), "-o", str(target))
    assert len(load_capture(str(target)).turns) == 3
    assert "3 turns" in run("trace", str(target), "-o", str(tmp_path / "t.html"))
    assert "0 samples of 0 turns; 3 left out" in run("export", "samples", str(target), "-o", str(tmp_path / "s.jsonl"))
    assert "3 not compared" in run("replay", str(target))
    (line,) = (run("export", "atif", str(target))).splitlines()
    assert [step["source"] for step in json.loads(line)["steps"]].count("agent") == 3
