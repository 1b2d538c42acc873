"""Structured upstream servers: what they are sent, and how their deltas become events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.interface import Completion, EventBatch, GenerateRequest, Hints, TokenBatch, Vectors
from turnwire.engines.scripted.script import Line
from turnwire.engines.spec import create_engine, parse_spec
from turnwire.engines.upstream.chat import OpenAIEngine
from turnwire.engines.upstream.chat_body import chat_body
from turnwire.engines.upstream.responses import ResponsesEngine, responses_body
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Conversation,
    Event,
    ImageBlock,
    Message,
    Note,
    OpaqueBlock,
    OutputFormat,
    ReasoningBlock,
    Sampling,
    TextBlock,
    Thinking,
    Tool,
    ToolCallBlock,
    ToolCallClosed,
    ToolChoice,
    ToolResultBlock,
)

from .conformance import collect, fails
from .servers import FakeChat, FakeResponses, FakeServer
from .toytokenizer import ToyTokenizer


def asking(conversation: Conversation, **sampling: object) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=[1, 2, 3],
        sampling=Sampling(**sampling),  # type: ignore[arg-type]
        hints=Hints(request_id="r"),
        conversation=conversation,
    )


def text(value: str) -> TextBlock:
    return TextBlock(text=value)


HISTORY = Conversation(
    model="client-name",
    messages=(
        Message(role="system", blocks=(text("Be brief."),)),
        Message(role="user", blocks=(text("List "), text("files"), ImageBlock(media_type="image/png", data="AAAA"))),
        Message(
            role="assistant",
            blocks=(
                ReasoningBlock(text="first "),
                ToolCallBlock(id="c1", name="ls", arguments='{"path": "a",  "z":1}'),
                ReasoningBlock(text="second", seal="SEALED"),
                ToolCallBlock(id="c2", name="patch", arguments="*** Begin", kind="custom"),
                text("Working."),
            ),
        ),
        Message(
            role="user",
            blocks=(
                ToolResultBlock(call_id="c1", content=(text("one\n"), text("two"))),
                ToolResultBlock(call_id="c2", content=(text("ok"), ImageBlock(url="http://x/y.png")), is_error=True),
                text("Go on."),
            ),
        ),
    ),
    tools=(
        Tool(name="ls", description="List.", schema={"type": "object", "properties": {"path": {"type": "string"}}}),
        Tool(name="noargs", strict=True),
        Tool(name="later", deferred=True),
    ),
    tool_choice=ToolChoice(mode="named", name="ls", parallel=False),
    thinking=Thinking(effort="low"),
    format=OutputFormat(kind="json_schema", schema={"type": "object"}),
    template_args={"enable_thinking": True},
)


def test_a_conversation_as_chat_messages() -> None:
    body, notes = chat_body(asking(HISTORY, max_tokens=50, temperature=0.5, stop=("END",)), "served", "reasoning")
    assert [note.code for note in notes] == ["upstream.order"]
    assert body["model"] == "served"
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "List "},
                {"type": "text", "text": "files"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Working.",
            "reasoning": "first second",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "a",  "z":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": '{"input":"*** Begin"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
        {"role": "tool", "tool_call_id": "c2", "content": "ok"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]},
        {"role": "user", "content": "Go on."},
    ]
    tools: Any = body["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["ls", "noargs"]
    assert tools[1]["function"] == {
        "name": "noargs",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    }
    assert body["tool_choice"] == {"type": "function", "function": {"name": "ls"}}
    assert body["parallel_tool_calls"] is False
    assert (body["max_tokens"], body["temperature"], body["stop"]) == (50, 0.5, ["END"])
    assert body["reasoning_effort"] == "low"
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    form: Any = body["response_format"]
    assert form["json_schema"]["schema"] == {"type": "object"}


def test_deferred_tools_come_into_view_when_a_result_names_them() -> None:
    found = Message(role="user", blocks=(ToolResultBlock(call_id="c", references=("later",)),))
    body, _ = chat_body(asking(msgspec.structs.replace(HISTORY, messages=(*HISTORY.messages, found))), None, "r")
    tools: Any = body["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["ls", "noargs", "later"]
    assert body["model"] == "client-name"


def test_what_cannot_be_said_is_noted() -> None:
    odd = Conversation(
        model="m",
        messages=(
            Message(role="user", blocks=(text("a"), OpaqueBlock(wire_type="document", payload="{}"))),
            Message(role="assistant", blocks=(OpaqueBlock(wire_type="server_tool_use", payload="{}"),)),
        ),
        thinking=Thinking(mode="on", budget=100),
    )
    _, notes = chat_body(asking(odd), None, "reasoning")
    assert [note.code for note in notes] == ["upstream.block", "upstream.block", "upstream.thinking_budget"]
    assert "document" in notes[0].message
    _, notes = responses_body(asking(odd, stop=("x",), top_k=3), None)
    assert [note.code for note in notes].count("upstream.block") == 2
    assert [note.code for note in notes].count("upstream.option") == 2


def test_a_conversation_as_response_items_keeps_its_order() -> None:
    body, notes = responses_body(asking(HISTORY, max_tokens=50), "served")
    assert notes == []
    items: Any = body["input"]
    assert [item["type"] for item in items] == [
        "message", "message", "reasoning", "function_call", "reasoning", "function_call", "message",
        "function_call_output", "function_call_output", "message",
    ]  # fmt: skip
    assert items[2] == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "first "}],
    }
    assert items[4]["encrypted_content"] == "SEALED"
    assert items[3]["arguments"] == '{"path": "a",  "z":1}'
    assert items[7]["output"] == "one\ntwo"
    assert items[8]["output"][1]["image_url"] == "http://x/y.png"
    assert (body["store"], body["max_output_tokens"]) == (False, 50)
    assert body["tool_choice"] == {"type": "function", "name": "ls"}


# ------------------------------------------------------------------------------------------------- from deltas


async def heard(server: FakeServer, engine: OpenAIEngine) -> tuple[list[Event], Completion]:
    try:
        await engine.start()
        steps, completion = await collect(
            engine, asking(Conversation(model="m", messages=(Message(role="user", blocks=(text("hi"),)),)))
        )
    finally:
        await engine.close()
        await server.stop()
    events: list[Event] = []
    for step in steps:
        assert isinstance(step, EventBatch)
        events += step.events
    return merged(events), completion


def merged(events: list[Event]) -> list[Event]:
    """Neighbouring deltas of a block joined."""
    out: list[Event] = []
    for event in events:
        if isinstance(event, BlockDelta) and out and isinstance(out[-1], BlockDelta):
            out[-1] = BlockDelta(event.index, out[-1].text + event.text)
        else:
            out.append(event)
    return out


async def chat(deltas: list[dict[str, Any]], finish: str = "stop") -> tuple[list[Event], Completion]:
    server = FakeChat(Line(text="x"), ToyTokenizer())
    server.deltas, server.finish = deltas, finish
    return await heard(server, OpenAIEngine(await server.start()))


def tool_delta(index: int | None, call_id: str | None = None, name: str | None = None, arguments: Any = "") -> Any:
    call: dict[str, Any] = {"function": {"name": name, "arguments": arguments}, "type": "function"}
    if index is not None:
        call["index"] = index
    if call_id is not None:
        call["id"] = call_id
    return {"tool_calls": [call]}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_text_and_calls_in_the_order_they_came(field: str) -> None:
    events, completion = await chat(
        [
            {field: "Let me "},
            {field: "look."},
            {"content": "Looking"},
            tool_delta(0, "c1", "ls"),
            tool_delta(0, arguments='{"pa'),
            tool_delta(0, arguments='th": "a"}'),
            tool_delta(1, "c2", "cat", '{"f": 1}'),
        ],
        finish="tool_calls",
    )
    assert events == [
        BlockOpened(0, "reasoning"),
        BlockDelta(0, "Let me look."),
        BlockClosed(0, "reasoning"),
        BlockOpened(1, "text"),
        BlockDelta(1, "Looking"),
        BlockClosed(1, "text"),
        BlockOpened(2, "tool_call", "ls", "c1"),
        BlockDelta(2, '{"path": "a"}'),
        ToolCallClosed(2, "ls", '{"path": "a"}', "c1"),
        BlockOpened(3, "tool_call", "cat", "c2"),
        BlockDelta(3, '{"f": 1}'),
        ToolCallClosed(3, "cat", '{"f": 1}', "c2"),
    ]
    assert (completion.reason, completion.reasoning_tokens) == ("tool_calls", 7)


async def test_calls_without_index_whole_arguments_and_none() -> None:
    events, completion = await chat(
        [
            tool_delta(None, "c1", "ls", {"path": "a"}),
            tool_delta(None, "c2", "ls", None),
            tool_delta(None, "c3", "ls", "{bad"),
        ]
    )
    closed = [event for event in events if isinstance(event, ToolCallClosed)]
    assert closed == [
        ToolCallClosed(0, "ls", '{"path":"a"}', "c1"),
        ToolCallClosed(1, "ls", "{}", "c2"),
        ToolCallClosed(2, "ls", "{bad", "c3", malformed=True),
    ]
    assert completion.reason == "tool_calls", "a finish of `stop` after calls is mended"


async def test_markup_in_content_is_left_alone() -> None:
    events, _ = await chat([{"content": "<think>not ours</think><tool_call>"}])
    assert events == [
        BlockOpened(0, "text"),
        BlockDelta(0, "<think>not ours</think><tool_call>"),
        BlockClosed(0, "text"),
    ]


async def test_content_parts_with_thinking() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "answer"},
    ]
    events, _ = await chat([{"content": parts}])
    assert [event.kind for event in events if isinstance(event, BlockOpened)] == ["reasoning", "text"]


async def test_mixed_call_deltas_are_refused_not_garbled() -> None:
    server = FakeChat(Line(text="x"), ToyTokenizer())
    server.deltas = [tool_delta(0, "c1", "ls"), tool_delta(1, "c2", "ls"), tool_delta(0, arguments="{}")]
    engine = OpenAIEngine(await server.start())
    await engine.start()
    error, _ = await fails(engine, asking(HISTORY))
    assert error.kind == "internal"
    assert "mixes" in error.message
    await engine.close()
    await server.stop()


async def test_thoughts_go_back_under_the_name_they_came_by() -> None:
    server = FakeChat(Line(text="x"), ToyTokenizer())
    server.deltas = [{"reasoning": "hm"}, {"content": "a"}]
    engine = OpenAIEngine(await server.start())
    await engine.start()
    for _ in range(2):
        await collect(engine, asking(HISTORY))
    names = [
        {name for message in body["messages"] for name in message} & {"reasoning", "reasoning_content"}
        for body in server.requests
    ]
    assert names == [{"reasoning_content"}, {"reasoning"}]
    await engine.close()
    await server.stop()


async def test_notes_come_before_the_answer() -> None:
    server = FakeChat(Line(text="yes"), ToyTokenizer())
    engine = OpenAIEngine(await server.start())
    await engine.start()
    odd = Conversation(
        model="m", messages=(Message(role="user", blocks=(OpaqueBlock(wire_type="document", payload="{}"),)),)
    )
    steps, _ = await collect(engine, asking(odd))
    assert isinstance(steps[0], EventBatch)
    assert isinstance(steps[0].events[0], Note)
    await engine.close()
    await server.stop()


async def test_raw_mode_gives_text_and_refuses_a_server_that_separates() -> None:
    server = FakeChat(Line(text="<think>a</think>b", burst=1), ToyTokenizer())
    url = await server.start()
    engine = OpenAIEngine(url, mode="text")
    await engine.start()
    steps, _ = await collect(engine, asking(HISTORY))
    assert "".join(step.text for step in steps if isinstance(step, TokenBatch)) == "<think>a</think>b"
    server.deltas = [{"reasoning_content": "hm"}]
    error, _ = await fails(engine, asking(HISTORY))
    assert "openai:" in error.message
    await engine.close()
    await server.stop()


async def test_embeddings_come_back_in_order() -> None:
    server = FakeChat(Line(text="x"), ToyTokenizer())
    engine = OpenAIEngine(await server.start())
    await engine.start()
    vectors = await engine.embed(["a", "bbb"])
    assert vectors == [[1.0, 1.0], [3.0, 1.0]]
    assert isinstance(vectors, Vectors)
    assert vectors.tokens == 14
    await engine.close()
    await server.stop()


# -------------------------------------------------------------------------------------------- from item events


async def test_response_items_in_the_order_they_came() -> None:
    server = FakeResponses(Line(text="x"), ToyTokenizer())
    call = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"a":1}'}
    server.items = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs"}},
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "one"},
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "two"},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "reasoning", "id": "rs", "encrypted_content": "ENC"},
        },
        {"type": "response.output_item.added", "output_index": 1, "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a":'},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "1}"},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.output_item.done", "output_index": 2, "item": {**call, "call_id": "c2"}},
        {
            "type": "response.output_item.done",
            "output_index": 3,
            "item": {"type": "reasoning", "encrypted_content": "E2"},
        },
        {"type": "response.output_text.delta", "output_index": 4, "delta": "done"},
    ]
    events, completion = await heard(server, ResponsesEngine(await server.start()))
    assert events == [
        BlockOpened(0, "reasoning"),
        BlockDelta(0, "one\n\ntwo"),
        BlockClosed(0, "reasoning", "ENC"),
        BlockOpened(1, "tool_call", "ls", "c1"),
        BlockDelta(1, '{"a":1}'),
        ToolCallClosed(1, "ls", '{"a":1}', "c1"),
        BlockOpened(2, "tool_call", "ls", "c2"),
        BlockDelta(2, '{"a":1}'),
        ToolCallClosed(2, "ls", '{"a":1}', "c2"),
        BlockOpened(3, "reasoning"),
        BlockClosed(3, "reasoning", "E2"),
        BlockOpened(4, "text"),
        BlockDelta(4, "done"),
        BlockClosed(4, "text"),
    ]
    assert completion.reason == "tool_calls"
    assert completion.reasoning_tokens == 7


def test_the_address_chooses_the_api() -> None:
    chosen = create_engine(parse_spec("openai:https://host/v1/responses"), None)
    assert type(chosen) is ResponsesEngine
    for address in ("https://host", "https://host/v1", "https://host/v1/chat/completions"):
        engine = create_engine(parse_spec(f"openai:{address}"), None)
        assert isinstance(engine, OpenAIEngine)
        assert engine._base == "https://host/v1"


async def test_a_call_keeps_the_servers_id_unless_it_is_taken() -> None:
    server = FakeChat(Line(text=""), ToyTokenizer())
    server.deltas = [
        {"tool_calls": [{"index": at, "id": name, "function": {"name": "ls", "arguments": "{}"}}]}
        for at, name in enumerate(("call_new", "c1", "functions.ls:0", "call_new"))
    ]
    server.finish = "tool_calls"
    engine = OpenAIEngine(await server.start())
    try:
        await engine.start()
        steps = [step async for step in pull(engine, asking(HISTORY))]
    finally:
        await engine.close()
        await server.stop()
    events = [event for step in steps if isinstance(step, EventBatch) for event in step.events]
    assert [event.call_id for event in events if isinstance(event, ToolCallClosed)] == ["call_new", "", "", ""]
