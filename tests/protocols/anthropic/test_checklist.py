"""The contract with harnesses, line by line, as far as the codec decides it.

Each test carries the number of its line in docs/anthropic.md ("What a harness needs").
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.protocols.anthropic import (
    DocumentEncoder,
    Echo,
    StreamEncoder,
    continue_thread,
    decode,
    decode_count,
    encode_count,
    error_reply,
    model_object,
    models_page,
    record_turn,
)
from turnwire.protocols.models import ModelRow, resolve_model
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import (
    BlockDelta,
    BlockOpened,
    Message,
    OpaqueBlock,
    ReasoningBlock,
    SealCarried,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
)

from .conformance import problems
from .pipeline import (
    FACTS,
    INTERLEAVED,
    MODEL,
    START,
    THINKING,
    assembled,
    call,
    document,
    ending,
    request,
    sent,
    stream,
    text,
    thought,
)

BILLING = "x-anthropic-billing-header: cc_version=2.1.325.0c6; cc_entrypoint=sdk-cli;"


def test_01_unknown_fields_betas_and_headers_never_fail() -> None:
    inbound = request(
        {"anthropic-beta": "made-up-2030-01-01,other", "x-whatever": "1"},
        safeguards=[{"type": "dangerous_tool_use", "classifier_context": {"a": [1, 2]}}],
        diagnostics={"previous_message_id": "msg_1"},
        service_tier="auto",
        speed="fast",
        field_of_next_year={"deep": True},
    )
    ignored = {note.message.split(":")[0] for note in inbound.notes if note.code == "request.field_ignored"}
    assert ignored == {"safeguards", "speed", "field_of_next_year"}
    assert inbound.echo == Echo(diagnostics=True)


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
def test_02_both_wire_versions_read_the_same(version: str) -> None:
    assert request({"anthropic-version": version}).conversation == request().conversation


def test_03_a_large_output_limit_is_kept_for_clamping() -> None:
    inbound = request(max_tokens=128000, thinking={"type": "enabled", "budget_tokens": 128000})
    assert inbound.conversation.sampling.max_tokens == 128000
    assert inbound.conversation.thinking.budget == 128000


@pytest.mark.parametrize(
    "system",
    [
        [{"type": "text", "text": BILLING}, {"type": "text", "text": "You are."}],
        [{"type": "text", "text": "You are."}, {"type": "text", "text": BILLING}],
        f"{BILLING}\nYou are.",
        f"{BILLING}\n\nYou are.",
        f"You are.\n{BILLING}",
        "You are.",
    ],
)
def test_04_billing_lines_never_reach_the_prompt(system: Any) -> None:
    assert request(system=system).conversation.messages == request(system="You are.").conversation.messages


def test_04_a_billing_line_alone_leaves_no_system_message() -> None:
    assert request(system=BILLING).conversation.messages == request().conversation.messages
    inside = request(messages=[{"role": "user", "content": "hi"}, {"role": "system", "content": BILLING}])
    assert [message.role for message in inside.conversation.messages] == ["user"]
    assert "system.billing_line_dropped" in {note.code for note in inside.notes}


def test_05_system_messages_keep_their_place_and_their_effort() -> None:
    inbound = request(
        system="top",
        output_config={"effort": "high"},
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "system", "content": [{"type": "text", "text": "env"}], "output_config": {"effort": "medium"}},
            {"role": "assistant", "content": "ok"},
            {"role": "system", "content": "switched"},
            {"role": "user", "content": "go"},
        ],
    )
    roles = [(message.role, message.text) for message in inbound.conversation.messages]
    assert roles == [
        ("system", "top"),
        ("user", "hi"),
        ("system", "env"),
        ("assistant", "ok"),
        ("system", "switched"),
        ("user", "go"),
    ]
    assert inbound.conversation.thinking.effort == "medium"


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_06_string_and_one_block_list_are_the_same(role: str) -> None:
    shapes: list[Any] = [
        "same",
        [{"type": "text", "text": "same"}],
        [{"type": "text", "text": "same", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        [{"type": "text", "text": "same", "citations": None}, {"type": "text", "text": ""}],
    ]
    read = [request(messages=[{"role": role, "content": shape}]).conversation.messages for shape in shapes]
    assert read == [(Message(role=role, blocks=(TextBlock(text="same"),)),)] * len(shapes)  # type: ignore[arg-type]


def test_07_deferred_tools_stay_out_and_references_are_named() -> None:
    schema = {"type": "object"}
    inbound = request(
        tools=[
            {"name": "ToolSearch", "input_schema": schema},
            {"name": "CronList", "input_schema": schema, "defer_loading": True},
        ],
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [
                            {"type": "tool_reference", "tool_name": "CronList"},
                            {"type": "text", "text": "loaded"},
                        ],
                    }
                ],
            },
        ],
    )
    assert [(tool.name, tool.deferred) for tool in inbound.conversation.tools] == [
        ("ToolSearch", False),
        ("CronList", True),
    ]
    assert inbound.conversation.messages[-1].blocks == (
        ToolResultBlock(call_id="t1", content=(TextBlock(text="loaded"),), name="ToolSearch", references=("CronList",)),
    )


def test_08_hosted_tools_without_schema_are_accepted() -> None:
    inbound = request(
        tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}], tool_choice={"type": "auto"}
    )
    assert inbound.conversation.tools == ()
    assert [note.code for note in inbound.notes] == ["tools.hosted_ignored"]
    assert inbound.conversation.context.turn_class == "auxiliary"
    forced = request(
        tools=[{"type": "computer_20250124", "name": "computer"}],
        tool_choice={"type": "tool", "name": "computer"},
    )
    assert forced.conversation.tool_choice.mode == "auto"
    assert "tools.choice_ignored" in {note.code for note in forced.notes}


def test_09_message_id_and_model_come_from_the_turn() -> None:
    facts = TurnFacts(turn_id="zZ1", model="claude-asked", created=0)
    first = sent(stream([ending("stop")], facts=facts))[0]["message"]
    assert (first["id"], first["model"]) == ("msg_zZ1", "claude-asked")
    whole = document(ending("stop"), facts=facts)
    assert (whole["id"], whole["model"]) == ("msg_zZ1", "claude-asked")


def test_10_a_call_is_closed_in_the_write_in_which_it_is_parsed() -> None:
    first, second = call(0, "Bash", '{"command":', '"ls"}'), call(1, "Bash", '{"command":"pwd"}')
    writes = stream([*([event] for event in first), *([event] for event in second), ending("tool_calls")])
    opened, piece, rest, closed = writes[1:5]
    assert b'"name":"Bash"' in opened
    assert b'"input":{}' in opened
    assert b'{\\"command\\":' in piece
    assert b'\\"ls\\"}' in rest
    assert closed == b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    assert all(writes)
    assert problems(writes, model=MODEL) == []


def test_11_input_only_by_delta_no_blank_text_no_tool_use_without_a_call() -> None:
    writes = stream([[*text(0, "\n", " \n"), *call(1, "Bash", '{"command": "ls"}'), *ending("tool_calls")]])
    assert problems([b"".join(writes)], model=MODEL) == []
    assert [block["type"] for block in assembled(writes)["content"]] == ["tool_use"]
    empty = assembled(stream([[*text(0, "done"), *ending("tool_calls")]]))
    assert empty["stop_reason"] == "end_turn"
    whole_at_once = [
        BlockOpened(0, "tool_call", "Bash", "t0"),
        call(0, "Bash", '{"command":"ls"}', call_id="t0")[-1],
        *ending("stop"),
    ]
    built = assembled(stream([whole_at_once]))
    assert built["content"][0]["input"] == {"command": "ls"}
    assert built["stop_reason"] == "tool_use"


DELTA_USAGE = {
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
}
"""The fields of a message_delta's usage that the vendor's types know and that have a value here."""


def test_12_the_real_prompt_count_at_both_ends() -> None:
    events = sent(stream([[*text(0, "hi"), *ending("stop")]]))
    start, end = events[0]["message"]["usage"], events[-2]["usage"]
    for usage in (start, end):
        assert usage["input_tokens"] == 600
        assert usage["cache_read_input_tokens"] == 400
        assert usage["cache_creation_input_tokens"] == 0
    assert start["cache_creation"] == {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    assert set(end) == DELTA_USAGE
    assert end["output_tokens"] == 70
    assert end["output_tokens_details"] == {"thinking_tokens": 30}


def test_13_ping_is_the_keepalive_until_the_turn_ends() -> None:
    encoder = StreamEncoder(FACTS)
    encoder.start(START)
    assert encoder.keepalive() == b'event: ping\ndata: {"type":"ping"}\n\n'
    encoder.feed(ending("stop"))
    assert encoder.keepalive() == b""


def test_14_overflow_and_load_in_the_words_that_clients_know() -> None:
    overflow = error_reply(TurnFailure("context_overflow", "no", prompt_tokens=140000, window=131072))
    assert overflow.status == 400
    assert json.loads(overflow.body)["error"] == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 140000 tokens > 131072 maximum",
    }
    assert overflow.headers == ()
    load = error_reply(TurnFailure("overloaded", "busy", retry_after=1.2))
    assert (load.status, load.headers) == (529, (("retry-after", "2"),))
    for kind, status in (("authentication", 401), ("permission", 403)):
        refused = error_reply(TurnFailure(kind, "no"))  # type: ignore[arg-type]
        assert (refused.status, refused.headers) == (status, (("x-should-retry", "false"),))


def test_15_after_content_began_a_failure_writes_nothing() -> None:
    failure = TurnFailure("engine_failed", "the engine died")
    fresh = StreamEncoder(FACTS, THINKING)
    fresh.start(START)
    assert json.loads(fresh.fail(failure).split(b"data: ")[1]) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the engine died"},
    }
    for events in (text(0, "hel")[:2], thought(0, "hm"), call(0, "Bash", "{}")):
        begun = StreamEncoder(FACTS, THINKING)
        begun.start(START)
        begun.feed(events)
        assert begun.fail(failure) == b""
    blank = StreamEncoder(FACTS)
    blank.start(START)
    blank.feed([BlockOpened(0, "text"), BlockDelta(0, "\n")])
    assert blank.fail(failure).startswith(b"event: error\n")


def test_16_stream_and_document_say_the_same() -> None:
    for echo in (THINKING, Echo(), Echo(thinking=True, omit_thinking=True), Echo(applied_edits=())):
        assert assembled(stream([INTERLEAVED], echo)) == document(INTERLEAVED, echo)


def test_17_models_are_listed_with_discoverable_names() -> None:
    row = ModelRow(id="nvidia/nemotron-3-super", display_name="Nemotron", created=1_790_000_000, window=131072)
    page = json.loads(models_page([row], limit=1000))
    assert [item["id"] for item in page["data"]] == [
        "nvidia/nemotron-3-super",
        "anthropic/nvidia/nemotron-3-super",
        "claude-nemotron-3-super",
    ]
    assert page["has_more"] is False
    for item in page["data"]:
        assert resolve_model(item["id"], [row]) == (row, True)
        assert (item["type"], item["created_at"]) == ("model", "2026-09-21T14:13:20Z")
    assert json.loads(model_object(row, "claude-nemotron-3-super"))["id"] == "claude-nemotron-3-super"
    assert resolve_model("claude-haiku-4-5-20251001", [row], row.id) == (row, False)
    assert resolve_model("gpt-9", [row], row.id) == (None, False)


def test_18_a_count_reads_the_same_conversation() -> None:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "compaction": {}}).encode()
    inbound = decode_count(body, {"anthropic-beta": "token-counting-2024-11-01"})
    assert inbound.conversation.messages == (Message(role="user", blocks=(TextBlock(text="hi"),)),)
    assert inbound.stream is False
    assert json.loads(encode_count(17)) == {"input_tokens": 17}


def test_19_a_thread_continues_the_whole_conversation() -> None:
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    first = request(system="be brief", tools=tools, thread={"type": "create"})
    reply = Reply()
    reply.feed(INTERLEAVED)
    record = record_turn(first, reply.message())
    results = [
        {"type": "tool_result", "tool_use_id": "toolu4", "content": "b"},
        {"type": "tool_result", "tool_use_id": "toolu1", "content": "a"},
    ]
    short = request(
        thread={"type": "continue", "previous_message_id": "msg_0aB9"}, messages=[{"role": "user", "content": results}]
    )
    joined = continue_thread(short, record)
    full = request(
        system="be brief",
        tools=tools,
        messages=[
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": document(INTERLEAVED, THINKING)["content"]},
            {"role": "user", "content": results},
        ],
    )
    assert joined.conversation.messages == full.conversation.messages
    assert joined.conversation.tools == full.conversation.tools
    with pytest.raises(TurnFailure) as lost:
        continue_thread(short, None)
    answer = error_reply(lost.value)
    assert answer.status == 404
    assert json.loads(answer.body)["error"]["details"] == {"error_code": "thread_not_found"}


@pytest.mark.parametrize(
    ("sent_input", "arguments"),
    [
        ('{"b" : 1,  "a": 5000.0}', '{"b" : 1,  "a": 5000.0}'),
        ("{}", "{}"),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ('"not json"', '"not json"'),
        ('{"__unparsedToolInput":{"raw":"{\\"a\\": tr","len":8}}', '{"a": tr'),
        ("null", "{}"),
        ('{"note": "__unparsedToolInput"}', '{"note": "__unparsedToolInput"}'),
    ],
)
def test_20_tool_input_keeps_the_clients_text(sent_input: str, arguments: str) -> None:
    body = (
        '{"model":"m","messages":[{"role":"assistant","content":'
        f'[{{"type":"tool_use","id":"t","name":"N","input":{sent_input}}}]}}]}}'
    )
    (message,) = decode(body.encode(), {}).conversation.messages
    assert message.blocks == (ToolCallBlock(id="t", name="N", arguments=arguments),)


def test_20_arguments_that_are_no_json_are_shown_as_written() -> None:
    events = [*call(0, "Bash", '{"command": tr', malformed=True), *ending("length")]
    writes = stream([events])
    assert problems([b"".join(writes)], model=MODEL, malformed_inputs=True) == []
    assert b'{\\"command\\": tr' in b"".join(writes)
    whole = document(events)
    assert whole["stop_reason"] == "max_tokens"
    returned = request(messages=[{"role": "assistant", "content": whole["content"]}])
    assert returned.conversation.messages[0].blocks == (
        ToolCallBlock(id="toolu0", name="Bash", arguments='{"command": tr'),
    )


def test_21_thoughts_come_back_in_order_with_any_signature() -> None:
    content = [
        {"type": "thinking", "thinking": "a", "signature": "S1"},
        {"type": "tool_use", "id": "t1", "name": "N", "input": {}},
        {"type": "thinking", "thinking": "b", "signature": ""},
        {"type": "text", "text": "c"},
        {"type": "thinking", "thinking": "d"},
        {"type": "redacted_thinking", "data": "R"},
        {"type": "thinking", "thinking": "", "signature": "foreign=="},
    ]
    (message,) = request(messages=[{"role": "assistant", "content": content}]).conversation.messages
    assert message.blocks == (
        ReasoningBlock(text="a", seal="S1"),
        ToolCallBlock(id="t1", name="N", arguments="{}"),
        ReasoningBlock(text="b"),
        TextBlock(text="c"),
        ReasoningBlock(text="d"),
        ReasoningBlock(text="", seal="R", redacted=True),
        ReasoningBlock(text="", seal="foreign=="),
    )


def test_21_a_thought_without_a_seal_still_has_a_signature() -> None:
    events = [*thought(0, "hm", seal=""), *text(1, "hi"), *ending("stop")]
    content = document(events, THINKING)["content"]
    assert content[0]["signature"]
    returned = request(messages=[{"role": "assistant", "content": content}])
    assert returned.conversation.messages[0].blocks[0] == ReasoningBlock(text="hm")


def test_22_hints_become_the_turns_context() -> None:
    context = request(
        {
            "user-agent": "claude-cli/2.1.325 (external, sdk-cli)",
            "x-claude-code-session-id": "s1",
            "x-claude-code-agent-id": "a1",
            "x-claude-code-request-class": "subagent",
        },
        metadata={"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": "other"})},
    ).conversation.context
    assert (context.session, context.agent, context.parent, context.turn_class) == ("s1", "a1", "s1", "subagent")
    assert context.client == "claude-cli/2.1.325"
    plain = request(metadata={"user_id": '{"session_id":"s2"}'}).conversation.context
    assert plain.session == "s2"


def test_23_custom_events_only_on_opt_in() -> None:
    assert request().dispatch is None
    assert request({"x-turnwire-dispatch": "1"}).dispatch is True
    assert request({"x-turnwire-dispatch": "0"}).dispatch is False
    assert b"tool_call_dispatch" not in b"".join(stream([INTERLEAVED], THINKING))
    facts = TurnFacts(turn_id="x", model=MODEL, created=0, dispatch=True)
    writes = stream([INTERLEAVED], THINKING, facts)
    events = [data for data in sent(writes) if data["type"] == "tool_call_dispatch"]
    assert events == [
        {
            "type": "tool_call_dispatch",
            "choice_index": 0,
            "tool_call": {
                "index": position,
                "id": call_id,
                "type": "function",
                "function": {"name": "Read", "arguments": arguments},
            },
        }
        for position, (call_id, arguments) in enumerate(
            [("toolu1", '{"path": "a.txt"}'), ("toolu4", '{"path": "b.txt"}')]
        )
    ]
    extra = frozenset({"tool_call_dispatch"})
    assert problems([b"".join(writes)], model=MODEL, extra_events=extra) == []
    broken = stream([[*call(0, "Bash", "{", malformed=True), *ending("length")]], facts=facts)
    assert b"tool_call_dispatch" not in b"".join(broken)


def test_the_tail_seal_travels_only_behind_calls() -> None:
    assert [block["type"] for block in document(INTERLEAVED, THINKING)["content"]] == [
        "thinking",
        "tool_use",
        "thinking",
        "text",
        "tool_use",
        "redacted_thinking",
    ]
    assert "redacted_thinking" not in json.dumps(document(INTERLEAVED, Echo()))
    final = [*thought(0, "hm"), *text(1, "the answer"), SealCarried(2, "dGFpbA"), *ending("stop")]
    assert [block["type"] for block in document(final, THINKING)["content"]] == ["thinking", "text"]
    assert assembled(stream([final], THINKING)) == document(final, THINKING)


def test_an_unfinished_turn_is_never_a_success() -> None:
    encoder = StreamEncoder(FACTS)
    encoder.start(START)
    encoder.feed(text(0, "hal"))
    assert encoder.feed(ending("error")) == b""
    whole = DocumentEncoder(FACTS)
    whole.start(START)
    whole.feed(text(0, "hal"))
    assert json.loads(whole.feed(ending("abort")))["type"] == "error"


def test_unknown_blocks_are_kept_whole() -> None:
    odd = {"type": "server_tool_use", "id": "s", "name": "text_editor_code_execution", "input": {"path": "x"}}
    inbound = request(messages=[{"role": "assistant", "content": [odd]}])
    (block,) = inbound.conversation.messages[0].blocks
    assert isinstance(block, OpaqueBlock)
    assert block.wire_type == "server_tool_use"
    assert json.loads(block.payload) == odd
    assert [note.code for note in inbound.notes] == ["request.block_opaque"]


@pytest.mark.parametrize(
    ("prompt", "cached", "split"), [(10, 30, (1, 9)), (10, 10, (1, 9)), (1, 1, (1, 0)), (0, 0, (0, 0))]
)
def test_a_prompt_never_counts_nothing_however_much_of_it_was_cached(
    prompt: int, cached: int, split: tuple[int, int]
) -> None:
    encoder = StreamEncoder(FACTS)
    start = json.loads(encoder.start(Usage(prompt, cached)).split(b"data: ")[1])["message"]["usage"]
    assert (start["input_tokens"], start["cache_read_input_tokens"]) == split
