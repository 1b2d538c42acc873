"""Every form of a Messages request, and every refusal with its path."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.protocols.anthropic import Echo, ThreadLink, decode
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import (
    Block,
    ImageBlock,
    OpaqueBlock,
    OutputFormat,
    Sampling,
    TextBlock,
    Thinking,
    Tool,
    ToolChoice,
    ToolResultBlock,
)

from .pipeline import MODEL, request

END = TextBlock(text="\n\n")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def blocks(*content: Any, role: str = "user") -> tuple[Block, ...]:
    """The blocks of one message with this content."""
    (message,) = request(messages=[{"role": role, "content": list(content)}]).conversation.messages
    return message.blocks


def refusal(body: bytes, limits: Limits | None = None) -> TurnFailure:
    with pytest.raises(TurnFailure) as caught:
        decode(body, {}, limits=limits)
    return caught.value


# --------------------------------------------------------------------------------------------------- content


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("done", (TextBlock(text="done"),)),
        ("", ()),
        (None, ()),
        ([], ()),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], (TextBlock(text="a"), TextBlock(text="b"))),
        (["a", {"type": "text", "text": "b"}], (TextBlock(text="a"), TextBlock(text="b"))),
        ({"type": "text", "text": "a"}, (TextBlock(text="a"),)),
        (
            [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}],
            (ImageBlock(media_type="image/png", data="aGk="),),
        ),
        ([{"type": "document", "source": {"type": "text", "data": "doc"}}], (TextBlock(text="doc"), END)),
    ],
)
def test_tool_result_in_every_shape(content: Any, expected: tuple[Block, ...]) -> None:
    assert blocks({"type": "tool_result", "tool_use_id": "t", "content": content}) == (
        ToolResultBlock(call_id="t", content=expected),  # type: ignore[arg-type]
    )


def test_tool_result_without_content_and_with_error() -> None:
    assert blocks({"type": "tool_result", "tool_use_id": "t"}) == (ToolResultBlock(call_id="t"),)
    assert blocks({"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}) == (
        ToolResultBlock(call_id="t", content=(TextBlock(text="no"),), is_error=True),
    )


def test_results_keep_their_order_and_learn_their_names() -> None:
    inbound = request(
        messages=[
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "one", "name": "Read", "input": {}},
                    {"type": "tool_use", "id": "two", "name": "Bash", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "two", "content": "2"},
                    {"type": "text", "text": "by the way"},
                    {"type": "tool_result", "tool_use_id": "one", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "nobody", "content": "?"},
                ],
            },
        ]
    )
    assert inbound.conversation.messages[1].blocks == (
        ToolResultBlock(call_id="two", content=(TextBlock(text="2"),), name="Bash"),
        TextBlock(text="by the way"),
        ToolResultBlock(call_id="one", content=(TextBlock(text="1"),), name="Read"),
        ToolResultBlock(call_id="nobody", content=(TextBlock(text="?"),)),
    )


def test_a_result_inside_a_result_is_kept_opaque() -> None:
    inner = {"type": "tool_use", "id": "x", "name": "N", "input": {}}
    (block,) = blocks({"type": "tool_result", "tool_use_id": "t", "content": [inner]})
    assert isinstance(block, ToolResultBlock)
    assert isinstance(block.content[0], OpaqueBlock)
    assert json.loads(block.content[0].payload) == inner


def test_images() -> None:
    assert blocks({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}) == (
        ImageBlock(url="https://example.com/a.png"),
    )
    (block,) = blocks({"type": "image", "source": {"type": "file", "file_id": "f"}})
    assert isinstance(block, OpaqueBlock)
    assert block.wire_type == "image/file"


def test_documents_become_text_where_they_hold_text() -> None:
    encoded = base64.b64encode("päge".encode()).decode()
    source = {"type": "base64", "media_type": "text/plain", "data": encoded}
    assert blocks({"type": "document", "source": source}) == (TextBlock(text="päge"), END)
    inner = {"type": "content", "content": [{"type": "text", "text": "part"}]}
    assert blocks({"type": "document", "source": inner, "title": "T", "context": "C"}) == (
        TextBlock(text="T\nC\n\n"),
        TextBlock(text="part"),
        END,
    )
    found = {"type": "search_result", "source": "s", "title": "T", "content": [{"type": "text", "text": "hit"}]}
    assert blocks(found) == (TextBlock(text="T\n\n"), TextBlock(text="hit"), END)


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
        {"type": "base64", "media_type": "text/plain", "data": "!!"},
        {"type": "url", "url": "https://example.com/a.pdf"},
        {"type": "file", "file_id": "f"},
    ],
)
def test_documents_that_hold_no_text_are_kept_opaque(source: dict[str, str]) -> None:
    (block,) = blocks({"type": "document", "source": source})
    assert isinstance(block, OpaqueBlock)
    assert json.loads(block.payload) == {"type": "document", "source": source}


def test_a_compaction_block_is_its_summary() -> None:
    assert blocks({"type": "compaction", "content": "so far"}) == (TextBlock(text="so far"),)


def test_a_system_message_may_expire() -> None:
    reminder = {"role": "system", "content": "only now", "clear_at": "next_user_message"}
    before = request(messages=[{"role": "user", "content": "a"}, reminder])
    assert [message.role for message in before.conversation.messages] == ["user", "system"]
    after = request(messages=[{"role": "user", "content": "a"}, reminder, {"role": "user", "content": "b"}])
    assert [message.role for message in after.conversation.messages] == ["user", "user"]
    assert [note.code for note in after.notes] == ["system.message_expired"]


def test_every_kind_of_oddity_is_noted_once() -> None:
    odd = [{"type": "server_tool_use", "id": str(number)} for number in range(30)]
    inbound = request(messages=[{"role": "user", "content": odd, "id": "m1", "name": "n"}] * 3)
    assert [note.message for note in inbound.notes] == [
        "messages.0.content.0: block of type server_tool_use is kept, but not understood",
        "messages.*.id: not used",
        "messages.*.name: not used",
    ]


def test_what_was_said_before_reads_the_same_when_more_is_said() -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "system", "content": [{"type": "text", "text": "env", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "x"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "next"},
    ]
    whole = request(system="s", messages=history).conversation.messages
    for length in range(1, len(history)):
        assert request(system="s", messages=history[:length]).conversation.messages == whole[: length + 1]


# ----------------------------------------------------------------------------------------------------- tools


def test_tools_of_every_kind() -> None:
    inbound = request(
        tools=[
            {"name": "a", "description": "d", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
            {"name": "b", "type": "custom", "input_schema": SCHEMA, "strict": True, "eager_input_streaming": True},
            {"name": "c"},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"type": "memory_20250818", "name": "memory"},
            {"type": "code_execution_20250825", "name": "code_execution"},
            {"type": "mcp_toolset", "mcp_server_name": "m"},
            {"name": "a", "input_schema": {}},
        ]
    )
    tools = inbound.conversation.tools
    assert tools[0] == Tool(name="a", description="d", schema=SCHEMA)
    assert tools[1] == Tool(name="b", schema=SCHEMA, strict=True)
    assert tools[2] == Tool(name="c", schema={"type": "object", "properties": {}})
    assert [tool.name for tool in tools[3:]] == ["bash", "str_replace_based_edit_tool", "memory"]
    assert all(tool.schema["properties"]["command"] and tool.description for tool in tools[3:])
    assert [note.code for note in inbound.notes] == [
        "tools.hosted_ignored",
        "tools.hosted_ignored",
        "tools.duplicate",
    ]


def test_deferred_tools_are_shown_when_their_search_is_hosted() -> None:
    inbound = request(
        tools=[
            {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
            {"name": "a", "input_schema": SCHEMA, "defer_loading": True},
        ]
    )
    assert inbound.conversation.tools == (Tool(name="a", schema=SCHEMA),)
    assert "tools.search_replaced" in {note.code for note in inbound.notes}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ToolChoice()),
        ("auto", ToolChoice()),
        ({"type": "any"}, ToolChoice(mode="required")),
        ({"type": "none"}, ToolChoice(mode="none")),
        ({"type": "tool", "name": "a"}, ToolChoice(mode="named", name="a")),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice(mode="required", parallel=False)),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    inbound = request(tools=[{"name": "a", "input_schema": SCHEMA}], tool_choice=choice)
    assert inbound.conversation.tool_choice == expected


def test_tools_that_come_and_go_are_said_in_place() -> None:
    inbound = request(
        tools=[{"name": "old", "input_schema": SCHEMA, "defer_loading": True}],
        messages=[
            {"role": "user", "content": "hi"},
            {
                "role": "system",
                "content": [
                    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "old"}},
                    {
                        "type": "tool_addition",
                        "tool": {"type": "tool_definition", "definition": {"name": "new", "input_schema": SCHEMA}},
                    },
                    {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "old"}},
                    {"type": "tool_addition", "tool": {"type": "mcp_toolset_reference", "server_name": "m"}},
                ],
            },
        ],
    )
    added, defined, removed, unknown = inbound.conversation.messages[1].blocks
    assert isinstance(added, TextBlock)
    assert '"name":"old"' in added.text
    assert isinstance(defined, TextBlock)
    assert '"name":"new"' in defined.text
    assert removed == TextBlock(text="The tool old is no longer available.\n")
    assert isinstance(unknown, OpaqueBlock)
    assert [(tool.name, tool.deferred) for tool in inbound.conversation.tools] == [("old", True), ("new", True)]


# ---------------------------------------------------------------------------------------------------- fields


@pytest.mark.parametrize(
    ("thinking", "expected", "in_play"),
    [
        (None, Thinking(), False),
        ({"type": "enabled", "budget_tokens": 2048}, Thinking(mode="on", budget=2048), True),
        ({"type": "adaptive", "display": "updates"}, Thinking(mode="adaptive"), True),
        ({"type": "adaptive", "display": "omitted"}, Thinking(mode="adaptive"), True),
        ({"type": "between_tools"}, Thinking(mode="adaptive"), True),
        ({"type": "disabled"}, Thinking(mode="off"), False),
        ({"type": "telepathic"}, Thinking(), False),
    ],
)
def test_thinking_in_every_form(thinking: Any, expected: Thinking, in_play: bool) -> None:
    inbound = request(thinking=thinking)
    assert inbound.conversation.thinking == expected
    assert isinstance(inbound.echo, Echo)
    assert inbound.echo.thinking is in_play
    assert inbound.echo.omit_thinking is (thinking is not None and thinking.get("display") == "omitted")


def test_output_config() -> None:
    inbound = request(output_config={"effort": "xhigh", "format": {"type": "json_schema", "schema": SCHEMA}})
    assert inbound.conversation.thinking.effort == "xhigh"
    assert inbound.conversation.format == OutputFormat(kind="json_schema", schema=SCHEMA)
    older = request(output_format={"type": "json_schema", "schema": SCHEMA})
    assert older.conversation.format == OutputFormat(kind="json_schema", schema=SCHEMA)
    odd = request(output_config={"effort": "furious", "format": {"type": "poem"}})
    assert (odd.conversation.thinking.effort, odd.conversation.format) == (None, None)
    assert [note.code for note in odd.notes] == ["request.field_ignored"] * 2


def test_sampling_and_stop_sequences() -> None:
    inbound = request(
        max_tokens=5, temperature=1, top_p=0.9, top_k=4, stop_sequences=["END", ""], seed=7, min_p=0.1, stream=True
    )
    assert inbound.stream is True
    assert inbound.conversation.sampling == Sampling(
        max_tokens=5, temperature=1.0, top_p=0.9, top_k=4, stop=("END",), seed=7, min_p=0.1
    )
    assert inbound.notes == ()


def test_null_is_as_good_as_absent() -> None:
    nothing = dict.fromkeys(
        ("system", "tools", "tool_choice", "temperature", "thinking", "metadata", "stream", "thread", "made_up")
    )
    assert request(**nothing) == request()


def test_template_arguments_and_hints_of_other_servers() -> None:
    inbound = request(
        chat_template_kwargs={"enable_thinking": False}, nvext={"agent_hints": {"priority": 5, "x": 1}, "y": 2}
    )
    assert inbound.conversation.template_args == {"enable_thinking": False}
    assert inbound.conversation.context.priority == 5
    assert [note.message for note in inbound.notes] == [
        "nvext.agent_hints.x: not known here; not used",
        "nvext.y: not known here; not used",
    ]


def test_title_calls_are_told_apart() -> None:
    asked = request(
        {"x-claude-code-session-id": "s"},
        tools=[],
        output_config={
            "format": {"type": "json_schema", "schema": {"properties": {"title": {"type": "string"}}}},
        },
    )
    assert asked.conversation.context.turn_class == "title"
    assert asked.conversation.context.priority < 0
    assert request(system="You are a title generator.").conversation.context.turn_class == "title"


def test_threads_are_exposed() -> None:
    created = request(thread={"type": "create"})
    assert isinstance(created.echo, Echo)
    assert created.echo.thread == ThreadLink(type="create")
    empty = request(thread={"type": "continue", "previous_message_id": "msg_1"}, messages=[])
    assert isinstance(empty.echo, Echo)
    assert empty.echo.thread == ThreadLink(type="continue", previous_message_id="msg_1")


def test_lone_surrogates_are_mended() -> None:
    body = rb'{"model":"m","messages":[{"role":"user","content":"cut \ud83d here \\ud83d \ud83d\ude00"}]}'
    inbound = decode(body, {})
    assert inbound.conversation.messages[0].text == "cut \ufffd here \\ud83d \U0001f600"
    assert [note.code for note in inbound.notes] == ["request.surrogate_replaced"]


# -------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content.0.source"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
            "messages.0.content.0.tool_use_id",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "input": {}}]}]},
            "messages.0.content.0.name",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "tool_reference"}]}
                        ],
                    }
                ]
            },
            "messages.0.content.0.content.0.tool_name",
        ),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "perhaps"}}, "tool_choice.type"),
        ({"thinking": "hard"}, "thinking"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"context_management": {"edits": {}}}, "context_management.edits"),
        ({"thread": {"type": "continue"}}, "thread.previous_message_id"),
        ({"thread": {"type": "fork"}}, "thread.type"),
        ({"thread": {"type": "continue", "previous_message_id": "m"}, "system": "s"}, "system"),
        ({"compaction": {"type": "summarize"}}, "compaction"),
    ],
)
def test_a_refusal_names_the_path(fields: dict[str, Any], param: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], **fields}
    failure = refusal(json.dumps(body).encode())
    assert failure.kind == "invalid_request"
    assert failure.param == param
    assert failure.message.startswith(f"{param}: ")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model":"\xff"}', b'{"a":' + b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    assert refusal(body).kind == "invalid_request"


@pytest.mark.parametrize(
    ("fields", "limits", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}] * 3}, Limits(messages=2), "messages"),
        ({"messages": [{"role": "user", "content": ["x"] * 3}]}, Limits(blocks=2), "messages.0.content"),
        ({"tools": [{"name": "a"}, {"name": "b"}]}, Limits(tools=1), "tools"),
        ({"tools": [{"name": "abc"}]}, Limits(name_chars=2), "tools.0.name"),
        ({"tools": [{"name": "a", "input_schema": {"a": {"b": [[{}]]}}}]}, Limits(depth=3), "tools.0.input_schema"),
        ({"stop_sequences": ["a", "b"]}, Limits(stop_sequences=1), "stop_sequences"),
        ({"metadata": {"a": [[[[]]]]}}, Limits(depth=3), "metadata"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {"a": [[[["]"]]]]}}],
                    }
                ]
            },
            Limits(depth=4),
            "messages.0.content.0.input",
        ),
    ],
)
def test_what_is_over_a_limit_is_refused(fields: dict[str, Any], limits: Limits, param: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], **fields}
    failure = refusal(json.dumps(body).encode(), limits)
    assert failure.param == param


@pytest.mark.parametrize("levels", [9, 150])
@pytest.mark.parametrize("kind", ["tool_result", "document", "compaction"])
def test_content_inside_content_is_bounded(kind: str, levels: int) -> None:
    content: Any = "x"
    for _ in range(levels):
        inside = {"source": {"type": "content", "content": [content]}} if kind == "document" else {"content": [content]}
        content = {"type": kind, "tool_use_id": "t", **inside}
    failure = refusal(json.dumps({"model": "m", "messages": [{"role": "user", "content": [content]}]}).encode())
    assert "nested" in failure.message


def test_a_large_body_is_refused_before_it_is_read() -> None:
    assert refusal(b"x" * 11, Limits(body_bytes=10)).kind == "too_large"


# ---------------------------------------------------------------------------------------------------- any JSON

_ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
_KEYS = st.sampled_from(
    ["type", "text", "thinking", "signature", "id", "name", "input", "content", "source", "tool", "role", "edits", "x"]
)
_WORDS = st.sampled_from(
    ["text", "thinking", "tool_use", "tool_result", "image", "document", "tool_addition", "user", "system", "create"]
)
_JSON = st.recursive(
    _ATOMS | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=20,
)
_FIELDS = st.sampled_from(
    [
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "context_management",
        "output_config",
        "metadata",
        "thread",
        "nvext",
        "betas",
        "stop_sequences",
        "other",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_FIELDS, _JSON, max_size=5))
def test_any_json_is_decoded_or_refused(fields: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    with contextlib.suppress(TurnFailure):
        decode(json.dumps(body).encode(), {})
