"""What is made of captures: training samples, spans, traces, bundles, a page."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.capture.format import CapturedTurn, DoneStep, TokenStep, encode_line
from turnwire.capture.parquet import parquet_file
from turnwire.capture.reading import Capture
from turnwire.capture.request_trace import request_trace
from turnwire.capture.samples import Sample, samples
from turnwire.capture.timelines import otlp_spans, perfetto_trace
from turnwire.capture.trajectories import trajectories
from turnwire.cli.main import main
from turnwire.engines.captured.files import load_capture

from ..gateway.conftest import Serve
from . import conversations
from .conversations import LINES
from .made import head, turn
from .test_replay import closed


@pytest.fixture
async def folder(serve: Serve, tmp_path: Path) -> Path:
    """A capture of a session over each of three APIs."""
    place = tmp_path / "captures"
    client = await serve(*LINES, capture=str(place))
    await conversations.messages(client, **{"x-claude-code-session-id": "s-1"})
    await conversations.chat(client, **{"x-claude-code-session-id": "s-2"})
    await conversations.responses(client)
    closed(client)
    return place


def _law(turns: list[CapturedTurn]) -> None:
    """Joining the samples gives the engine's own sequences, and every sampled token is trained once."""
    made = list(samples(turns, {"m": "k", "test-model": "k"}))
    ends = {place.turn_id: (sample, place) for sample in made for place in sample.turns}
    assert len(ends) == sum(len(sample.turns) for sample in made) == len(turns)
    for one in turns:
        sample, place = ends[one.turn_id]
        assert sample.ids[: place.end] == [*one.prompt.ids, *one.output_ids]
        assert sample.ids[place.start : place.end] == one.output_ids
    sampled = sum(len(step.ids) for one in turns for step in one.steps if isinstance(step, TokenStep))
    assert sum(sum(sample.loss_mask) for sample in made) == sampled
    for sample in made:
        assert len(sample.ids) == len(sample.loss_mask)
        assert sample.logprobs is None or len(sample.logprobs) == len(sample.ids)
        written = {place for each in sample.turns for place in range(each.start, each.end)}
        assert all(place in written for place, marked in enumerate(sample.loss_mask) if marked)
        if sample.branch is not None:
            other = next(each for each in made if each.id == sample.branch.sample)
            assert other.ids[: sample.branch.shared] == sample.ids[: sample.branch.shared]


async def test_samples_are_the_engines_own_sequences(folder: Path) -> None:
    turns = load_capture(str(folder)).turns
    _law(turns)
    made = list(samples(turns, {"test-model": "k"}))
    assert [len(sample.turns) for sample in made] == [3, 3, 3]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), max_size=3)), min_size=1, max_size=6))
def test_samples_of_any_session(story: list[tuple[int, list[int]]]) -> None:
    """Each turn goes on from some earlier turn, or from a part of it."""
    turns: list[CapturedTurn] = []
    for number, (back, more) in enumerate(story):
        base = [*turns[-back].prompt.ids, *turns[-back].output_ids] if 0 < back <= len(turns) else [1]
        output = [5 + number, 6]
        step = TokenStep(0.1, "x", tuple(output), (("a", -0.5, ()), ("b", -0.25, ())))
        turns.append(turn(f"t{number}", prompt=[*base, *more], output=output, at=float(number), steps=(step,)))
    _law(turns)
    made = list(samples(turns, {"m": "k"}))
    assert all(sample.logprobs is not None and -0.5 in sample.logprobs for sample in made)


def test_what_the_gateway_wrote_is_not_trained_and_masked_turns_are_left_out() -> None:
    step = TokenStep(0.1, "x", (7, 8))
    forced = turn("a", prompt=[1, 2], output=[9, 7, 8], steps=(step, DoneStep(0.2, "stop", 2, 3)))
    masked = turn("b", prompt=[1, -1], output=[3], steps=())
    (made,) = samples([forced, masked], {"m": "k"})
    assert (made.ids, made.loss_mask) == ([1, 2, 9, 7, 8], [0, 0, 0, 1, 1])


def test_branches_say_why() -> None:
    one = turn("a", prompt=[1, 2], output=[3], steps=(TokenStep(0, "x", (3,)),))
    broken = turn("b", prompt=[1, 9], output=[4], verdict={"state": "broken", "cause": "date"}, at=1.0)
    agent = turn("c", prompt=[1, 2, 8], output=[4], agent="helper", at=2.0)
    made = list(samples([one, broken, agent], {"m": "k"}))
    assert [sample.branch and (sample.branch.shared, sample.branch.cause) for sample in made] == [
        None,
        (1, "date"),
        (2, "subagent"),
    ]


async def test_spans_follow_the_conventions_and_hold_content_only_when_asked(folder: Path) -> None:
    turns = load_capture(str(folder)).turns
    told = otlp_spans(turns)
    spans = told["resourceSpans"][0]["scopeSpans"][0]["spans"]
    chats = [span for span in spans if span["name"] == "chat test-model"]
    assert len(chats) == 9
    names = {attribute["key"] for attribute in chats[0]["attributes"]}
    assert {"gen_ai.operation.name", "gen_ai.usage.input_tokens", "gen_ai.conversation.id", "session.id"} <= names
    assert {span["traceId"] for span in chats[:3]} != {span["traceId"] for span in chats[3:6]}
    parts = [span for span in spans if span.get("parentSpanId") == chats[0]["spanId"]]
    names = [span["name"] for span in parts if span["name"] != "queue"]  # on a busy machine a turn waits a moment
    assert names == ["prefill", "reasoning", "text", "tool_call", "tool_call"]
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    assert "What is in /a" not in json.dumps(told)
    content = otlp_spans(turns[:1], content=True)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    said = {one["key"]: one["value"].get("stringValue") for one in content}
    heard = json.loads(said["gen_ai.input.messages"])
    assert [message["role"] for message in heard] == ["system", "user"]
    assert heard[1]["parts"] == [{"type": "text", "content": "What is in /a and /b?"}]
    (answered,) = json.loads(said["gen_ai.output.messages"])
    assert [part["type"] for part in answered["parts"]] == ["reasoning", "text", "tool_call", "tool_call"]
    assert answered["finish_reason"] == "tool_calls"


async def test_trajectories_hold_the_whole_session_with_exact_ids(folder: Path) -> None:
    turns = load_capture(str(folder)).turns
    made = trajectories(turns)
    assert [line["session_id"] for line in made[:2]] == ["s-1", "s-2"]
    for line in made[:2]:
        steps = line["steps"]
        assert [step["source"] for step in steps] == ["system", "user", "agent", "agent", "user", "agent"]
        assert [step["step_id"] for step in steps] == [1, 2, 3, 4, 5, 6]
        assert steps[0]["message"] == "You list files."
        calls = steps[2]["tool_calls"]
        assert [call["arguments"] for call in calls] == [{"path": "/a"}, {"path": "/b"}]
        results = steps[2]["observation"]["results"]
        assert [result["source_call_id"] for result in results] == [call["tool_call_id"] for call in calls]
        assert steps[2]["reasoning_content"] == "I look at both."
        first = next(turn for turn in turns if turn.turn_id == steps[2]["extra"]["turn_id"])
        assert steps[2]["metrics"]["prompt_token_ids"] == first.prompt.ids
        assert steps[2]["metrics"]["completion_token_ids"] == first.output_ids
        assert line["final_metrics"]["total_steps"] == 6


async def test_a_perfetto_trace_has_sessions_turns_and_tool_waits(folder: Path) -> None:
    events = perfetto_trace(load_capture(str(folder)).turns)["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        "s-1",
        "s-2",
        "without a session",
    }
    slices = [event for event in events if event["ph"] == "X"]
    assert sum(event["name"].startswith("turn ") for event in slices) == 9
    assert any(event["name"] == "tools" for event in slices)
    assert all(event["dur"] > 0 for event in slices)


async def test_dynamos_trace_has_what_its_replay_needs_and_nothing_that_was_said(folder: Path) -> None:
    turns = load_capture(str(folder)).turns
    records = list(request_trace(turns, block=16))
    ended = [record for record in records if record["event_type"] == "request_end"]
    assert [record["request"]["request_id"] for record in ended] == [one.turn_id for one in turns]
    for record, one in zip(ended, turns, strict=True):
        request, replay = record["request"], record["request"]["replay"]
        assert record["schema"] == "dynamo.request.trace.v1"
        assert record["agent_context"]["session_id"]
        assert replay["input_length"] == len(one.prompt.ids)
        assert len(replay["input_sequence_hashes"]) == -(-len(one.prompt.ids) // 16)
        assert all(0 <= value < 1 << 64 for value in replay["input_sequence_hashes"])
        assert request["request_received_ms"] <= record["event_time_unix_ms"]
        assert request["output_tokens"] > 0
    # Of a session that kept its prefix, each prompt's hashes begin with those of the one before, as its blocks do.
    first, second = (record["request"]["replay"]["input_sequence_hashes"] for record in ended[:2])
    whole = len(turns[0].prompt.ids) // 16
    assert second[:whole] == first[:whole]
    assert len(set(second)) == len(second)
    calls = ended[0]["request"]["finish_reason_metadata"]["tool_calls"]
    tools = [record["tool"] for record in records if record["event_type"] == "tool_end"]
    assert [tool["tool_call_id"] for tool in tools[:2]] == [call["id"] for call in calls]
    assert "What is in /a" not in json.dumps(records)
    assert list(request_trace([turn("b", prompt=[1, -1], output=[3])])) == []


async def test_parquet_holds_the_same_samples(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="pyarrow is not installed (pip install 'turnwire[parquet]')"
    )
    made = list(samples(load_capture(str(folder)).turns, {"test-model": "k"}))
    scored = msgspec.structs.replace(made[0], logprobs=[None, -0.1, *[0.0] * (len(made[0].ids) - 2)])
    target = tmp_path / "samples.parquet"
    target.write_bytes(parquet_file([scored, *made[1:]]))
    table = parquet.read_table(target)
    assert msgspec.convert(table.to_pylist(), list[Sample]) == [scored, *made[1:]]
    assert table.schema.metadata[b"format"] == b"turnwire.samples.v1"


def _run(*arguments: str) -> str:
    ran = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


async def test_the_commands(folder: Path, tmp_path: Path) -> None:
    run = lambda *arguments: asyncio.to_thread(_run, *arguments)  # noqa: E731 - short, and used a dozen times
    assert "9 turns equal, 0 different, 0 not compared" in await run("replay", str(folder))
    target = str(tmp_path / "samples.jsonl")
    assert "3 samples of 9 turns; 0 left out" in await run("export", "samples", str(folder), "-o", target)
    assert [len(json.loads(line)["turns"]) for line in _read(target).splitlines()] == [3, 3, 3]
    await run("export", "atif", str(folder), "-o", str(tmp_path / "a.jsonl"))
    await run("export", "perfetto", str(folder), "-o", str(tmp_path / "p.json"))
    await run("export", "otel", str(folder), "-o", str(tmp_path / "o.json"))
    assert "9 requests; 0 left out" in await run("export", "dynamo", str(folder), "-o", str(tmp_path / "d.jsonl"))
    page = str(tmp_path / "t.html")
    assert "9 turns" in await run("trace", str(folder), "-o", page)
    html = _read(page)
    assert "What is in /a and /b?" in html
    assert 'src="/' not in html
    assert 'href="/' not in html
    last = load_capture(str(folder)).turns[2]
    bundle = str(tmp_path / "b.capture.jsonl")
    told = await run("repro", last.turn_id, str(folder), "-o", bundle)
    assert "the turn and 2 that it recalls" in told
    assert "1 turn equal, 0 different, 0 not compared" in await run("replay", bundle)
    assert CliRunner().invoke(main, ["repro", "nobody", str(folder)]).exit_code == 1


async def test_a_bundle_with_an_expectation_that_is_not_met_fails(folder: Path, tmp_path: Path) -> None:
    first = load_capture(str(folder)).turns[0]
    wanted = tmp_path / "wanted.json"
    wanted.write_bytes(msgspec.json.encode([{"kind": "text", "text": "Something else."}]))
    bundle = str(tmp_path / "b.capture.jsonl")
    await asyncio.to_thread(_run, "repro", first.turn_id, str(folder), "-o", bundle, "--expect", str(wanted))
    ran = await asyncio.to_thread(CliRunner().invoke, main, ["replay", bundle])
    assert ran.exit_code == 1
    assert "parse differs at 0" in ran.output


def test_a_bundle_holds_no_more_than_it_needs() -> None:
    from turnwire.capture.bundle import bundle

    turns = [turn(f"t{n}", prompt=[1, 2, *range(3, 3 + n)], output=[3 + n], at=float(n)) for n in range(3)]
    other = turn("other", prompt=[9], output=[9], at=0.5)
    capture = Capture([head()], [*turns, other])
    lines = list(bundle(capture, turns[2]))
    assert [line.turn_id for line in lines if isinstance(line, CapturedTurn)] == ["t0", "t1", "t2"]
    assert [line.memory for line in lines if isinstance(line, CapturedTurn)] == [True, True, False]
    assert all(encode_line(line) for line in lines)
