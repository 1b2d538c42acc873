"""What real clients send is understood: one case per row of what they were seen to send, and every refusal named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.protocols.chat import Echo, decode
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import (
    ImageBlock,
    Message,
    OutputFormat,
    ReasoningBlock,
    TextBlock,
    Thinking,
    ToolCallBlock,
    ToolChoice,
    ToolResultBlock,
)

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":  1}'}}


def read(headers: dict[str, str] | None = None, /, **fields: Any) -> Inbound:
    return decode(json.dumps({"model": "m", "messages": [USER], **fields}).encode(), headers or {})


def said(message: dict[str, Any]) -> tuple[Any, ...]:
    """The blocks of an assistant message in the history."""
    inbound = read(messages=[USER, {"role": "assistant", **message}, USER])
    assert inbound.conversation.messages[1].role == "assistant"
    return inbound.conversation.messages[1].blocks


def codes(inbound: Inbound) -> list[str]:
    return [note.code for note in inbound.notes]


# ------------------------------------------------------------------------------------- what clients were seen to send


def test_the_developer_role() -> None:
    inbound = read(messages=[{"role": "developer", "content": "Be brief."}, USER])
    assert inbound.conversation.messages[0] == Message(role="developer", blocks=(TextBlock(text="Be brief."),))


@pytest.mark.parametrize(("value", "noted"), [(True, ["request.field_ignored"]), (False, []), (None, [])])
def test_what_is_not_stored_is_said(value: bool | None, noted: list[str]) -> None:
    assert codes(read(store=value)) == noted


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_output_limits_far_above_any_window(name: str) -> None:
    assert read(**{name: 10_000_000}).conversation.sampling.max_tokens == 10_000_000


def test_the_newer_name_of_the_output_limit_wins() -> None:
    assert read(max_tokens=5, max_completion_tokens=7).conversation.sampling.max_tokens == 7


@pytest.mark.parametrize("fields", [{"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}])
def test_reasoning_effort(fields: dict[str, Any]) -> None:
    assert read(**fields).conversation.thinking == Thinking(effort="high")


@pytest.mark.parametrize("extra", [{"strict": True}, {"strict": None}])
def test_strict_and_foreign_keys_in_tool_schemas(extra: dict[str, Any]) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Look", "type": "object"}
    tool = {"type": "function", "function": {"name": "look", "parameters": schema, **extra}}
    (found,) = read(tools=[tool]).conversation.tools
    assert found.schema == schema
    assert found.strict is (extra["strict"] is True)


def test_tools_without_parameters_or_required() -> None:
    bare = {"type": "function", "function": {"name": "now"}}
    loose = {"type": "function", "function": {"name": "at", "parameters": {"type": "object", "properties": {}}}}
    assert [tool.name for tool in read(tools=[bare, loose]).conversation.tools] == ["now", "at"]


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_an_assistant_turn_of_calls_alone(content: dict[str, Any]) -> None:
    assert said({"tool_calls": [CALL], **content}) == (ToolCallBlock(id="c1", name="look", arguments='{"a":  1}'),)


def test_an_assistant_turn_of_nothing() -> None:
    assert said({}) == ()


def test_tool_results_as_a_list_of_parts_and_with_a_name() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    results = [
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": parts},
        {"role": "tool", "tool_call_id": "c2", "content": "three"},
    ]
    message = read(messages=[USER, {"role": "assistant", "tool_calls": [CALL]}, *results]).conversation.messages[-1]
    assert message.role == "user"
    assert message.blocks == (
        ToolResultBlock(call_id="c1", name="look", content=(TextBlock(text="one"), TextBlock(text="two"))),
        ToolResultBlock(call_id="c2", content=(TextBlock(text="three"),)),
    )


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-session-affinity", "s"),
        ("x-session-id", "s"),
        ("session_id", "s"),
        ("x-client-request-id", "s"),
    ],
)
def test_headers_that_name_the_session(header: str, value: str) -> None:
    assert read({header: value}).conversation.context.session == value


def test_the_cache_key_names_the_session_where_no_header_does() -> None:
    assert read(prompt_cache_key="k").conversation.context.session == "k"
    assert read({"session_id": "s"}, prompt_cache_key="k").conversation.context.session == "s"


def test_fields_that_nobody_reads_are_noted() -> None:
    assert codes(read(modalities=["audio"], service_tier="flex", field_of_next_year=1)) == ["request.field_ignored"] * 3
    assert codes(read(modalities=["text"], service_tier="auto")) == []


def test_null_is_absent() -> None:
    fields = ("tools", "tool_choice", "stop", "n", "stream", "stream_options", "response_format", "logit_bias")
    assert codes(read(**dict.fromkeys(fields))) == []


# -------------------------------------------------------------------------------------------------- spelled thoughts


@pytest.mark.parametrize(
    "spelling",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"thinking": "hm"},
        {"reasoning": {"content": "hm"}},
        {"reasoning": {"text": "hm"}},
        {"thinking": [{"type": "thinking", "thinking": "h"}, {"type": "thinking", "thinking": "m"}]},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"reasoning_content": "", "reasoning": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"reasoning_details": [], "reasoning_content": "hm"},
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "So."}]},
        {"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "So."}]},
    ],
)
def test_every_spelling_of_a_thought(spelling: dict[str, Any]) -> None:
    assert said({"content": "So.", **spelling}) == (ReasoningBlock(text="hm"), TextBlock(text="So."))


def test_our_own_carriers_keep_their_seals_and_the_words_beside_them() -> None:
    details = [{"type": "reasoning.encrypted", "data": seal, "format": "turnwire-v1"} for seal in ("s0", "s1")]
    blocks = said({"reasoning_content": "hm\n\nha", "reasoning_details": details, "tool_calls": [CALL]})
    assert blocks[:2] == (ReasoningBlock(text="hm\n\nha", seal="s0"), ReasoningBlock(text="", seal="s1", redacted=True))
    alone = said({"reasoning_details": details, "tool_calls": [CALL]})
    assert [(block.text, block.seal) for block in alone[:2]] == [("", "s0"), ("", "s1")]


def test_arguments_stay_the_text_that_was_sent() -> None:
    wire = {"id": "c", "function": {"name": "look", "arguments": {"a": [1, 2]}}}
    assert [block.arguments for block in said({"tool_calls": [CALL, wire]})] == ['{"a":  1}', '{"a":[1,2]}']


def test_the_older_function_call_and_its_result() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "x"},
    ]
    inbound = read(messages=messages, functions=[{"name": "look", "parameters": {"type": "object"}}])
    call, result = (message.blocks[0] for message in inbound.conversation.messages[1:])
    assert isinstance(call, ToolCallBlock)
    assert isinstance(result, ToolResultBlock)
    assert call.id == result.call_id
    assert [tool.name for tool in inbound.conversation.tools] == ["look"]


def test_images_inline_and_by_address() -> None:
    content = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "low"}},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "input_audio", "input_audio": {}},
    ]
    inbound = read(messages=[{"role": "user", "content": content}])
    inline, address, audio = inbound.conversation.messages[0].blocks
    assert inline == ImageBlock(media_type="image/png", data="QUJD", detail="low")
    assert address == ImageBlock(url="https://example.org/a.png")
    assert getattr(audio, "wire_type", "") == "input_audio"
    assert codes(inbound) == ["content.opaque"]


# ---------------------------------------------------------------------------------------------------------- switches


@pytest.mark.parametrize(
    ("system", "user", "fields", "mode"),
    [
        ("/no_think\n\nHelp.", "Hi", {}, "off"),
        ("Help. /think", "Hi", {}, "on"),
        ("/no_think", "Hi /think", {}, "on"),
        ("Say nothing of /no_thinking.", "Hi", {}, None),
        ("/no_think", "Hi", {"enable_thinking": True}, "on"),
        ("Help.", "Hi", {"reasoning_effort": "none"}, "off"),
        ("Help.", "Hi", {"thinking": {"type": "disabled"}}, "off"),
        ("Help.", "Hi", {"thinking": {"type": "enabled"}}, "on"),
    ],
)
def test_thinking_on_and_off(system: str, user: str, fields: dict[str, Any], mode: str | None) -> None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    inbound = read(messages=messages, **fields)
    assert inbound.conversation.thinking.mode == mode
    assert inbound.conversation.messages[0].text == system


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        (["system: /think", "system: /no_think", "user: Hi"], "on"),
        (["system: Help.", "system: /no_think", "user: Hi"], None),
        (["user: Hi /no_think", "assistant: Yes.", "user: Hi"], None),
        (["user: Hi", "assistant: /no_think", "user: Hi"], None),
        (["system: /think", "user: Hi /no_think", "assistant: ", "user: "], "off"),
        (["user: Hi /think /no_think", "assistant: ", "tool: /think"], "off"),
        (["user: Hi", "developer: /no_think"], "off"),
    ],
)
def test_the_last_question_switches_thinking_or_else_the_first_system_prompt(said: list[str], mode: str | None) -> None:
    messages: list[dict[str, Any]] = []
    cache = DecodedParts()
    for one in said:
        role, _, text = one.partition(": ")
        messages.append({"role": role, "content": text, "tool_call_id": "call_1"})
        body = json.dumps({"model": "m", "messages": messages}).encode()
        cached, anew = decode(body, {}, cache=cache), decode(body, {})
        assert cached.conversation == anew.conversation
    assert anew.conversation.thinking.mode == mode


def test_template_arguments_are_passed_on() -> None:
    assert read(chat_template_kwargs={"enable_thinking": False}).conversation.template_args == {
        "enable_thinking": False
    }


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        ("auto", True, ToolChoice()),
        ("none", None, ToolChoice(mode="none")),
        ("required", False, ToolChoice(mode="required", parallel=False)),
        ({"type": "function", "function": {"name": "look"}}, True, ToolChoice(mode="named", name="look")),
    ],
)
def test_tool_choice(choice: Any, parallel: bool | None, expected: ToolChoice) -> None:
    inbound = read(tools=[TOOL], tool_choice=choice, parallel_tool_calls=parallel)
    assert inbound.conversation.tool_choice == expected


def test_output_formats() -> None:
    schema = {"type": "object"}
    wire = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": False}}
    assert read(response_format={"type": "text"}).conversation.format is None
    assert read(response_format={"type": "json_object"}).conversation.format == OutputFormat(kind="json_object")
    assert read(response_format=wire).conversation.format == OutputFormat(
        kind="json_schema", schema=schema, name="n", strict=False
    )


def test_log_probabilities_choices_and_usage() -> None:
    inbound = read(logprobs=True, top_logprobs=3, n=2, stream=True, stream_options={"include_usage": True})
    assert inbound.conversation.sampling.logprobs == 3
    assert inbound.echo == Echo(choices=2, usage=True, logprobs=3)
    assert inbound.stream


@pytest.mark.parametrize(
    ("headers", "fields", "expected"),
    [
        ({}, {}, (None, "event")),
        ({"x-turnwire-dispatch": "1"}, {}, (True, "event")),
        ({"x-turnwire-dispatch": "0"}, {}, (False, "event")),
        ({"x-turnwire-dispatch": "delta"}, {}, (True, "delta")),
        ({}, {"turnwire": {"dispatch": True}}, (True, "event")),
        ({}, {"nvext": {"dispatch": "delta"}}, (True, "delta")),
        ({"x-turnwire-dispatch": "0"}, {"turnwire": {"dispatch": True}}, (False, "event")),
    ],
)
def test_the_opt_in_to_dispatch(headers: dict[str, str], fields: dict[str, Any], expected: tuple[Any, str]) -> None:
    inbound = read(headers, **fields)
    assert isinstance(inbound.echo, Echo)
    assert (inbound.dispatch, inbound.echo.dispatch) == expected
    assert codes(inbound) == []


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ({"type": "web_search"}, "tools.hosted_ignored"),
        ({"type": "custom", "custom": {"name": "shell"}}, "tools.custom_as_function"),
        (TOOL, "tools.duplicate"),
    ],
)
def test_tools_that_need_a_word(tool: dict[str, Any], code: str) -> None:
    assert codes(read(tools=[TOOL, tool])) == [code]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 3}, "model"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [3]}, "messages.0"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages.0.tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "messages.0.tool_calls.0.function.name"),
        ({"tools": {}}, "tools"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"stop": 3}, "stop"),
        ({"stop": ["x"] * 100}, "stop"),
        ({"logit_bias": {"1": "x"}}, "logit_bias.1"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"logit_bias": {"abc": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"²": 1}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"top_k": 1.5}, "top_k"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {"a" * 65: "x"}}, "metadata"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"top_logprobs": 99, "logprobs": True}, "top_logprobs"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"seed": True}, "seed"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(TurnFailure) as refused:
        read(**fields)
    assert (refused.value.kind, refused.value.param) == ("invalid_request", param)


def test_nesting_is_bounded() -> None:
    deep = "[" * 500 + "]" * 500
    body = f'{{"model":"m","messages":[{{"role":"user","content":"x"}}],"metadata":{deep}}}'.encode()
    with pytest.raises(TurnFailure) as refused:
        decode(body, {})
    assert refused.value.param == "metadata"
