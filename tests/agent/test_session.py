"""The agent in whole turns: early and parallel tools, every way a turn can end, memory, cancelling."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.conftest import Serve
from tests.gateway.test_messages import records
from turnwire.agent import (
    AgentEvent,
    Answered,
    AsyncChatSession,
    Cancelled,
    ChatSession,
    Endpoint,
    EndpointError,
    Memory,
    MemoryTrimmed,
    ReasoningDelta,
    StepFinished,
    StepLimitReached,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)

from .conftest import Plain, call_text, delta, fragment

THOUGHT = "I look.\n</think>\n\n"


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Which city.
    """
    return f"sunny in {city}"


async def events_of(session: AsyncChatSession, question: str) -> list[AgentEvent]:
    return [event async for event in session.stream(question)]


def kinds(events: list[AgentEvent]) -> list[str]:
    """The kinds of events, with runs of the same kind written once."""
    names = [type(event).__name__ for event in events]
    return [name for place, name in enumerate(names) if place == 0 or names[place - 1] != name]


def tool_messages(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


# ------------------------------------------------------------------------------------------------------ a whole turn


async def test_a_turn_with_a_tool(serve: Serve, tmp_path: Path) -> None:
    client = await serve(
        {"text": THOUGHT + call_text("weather", city="Oslo")},
        {"text": "Now I know.\n</think>\n\nIt is sunny."},
        record=str(tmp_path / "records"),
    )
    async with AsyncChatSession(client.base, tools=[weather], instructions="Be brief.") as session:
        events = await events_of(session, "How is the weather in Oslo?")
    assert kinds([event for event in events if not isinstance(event, ToolFinished)]) == [
        "StepStarted",
        "ReasoningDelta",
        "ToolStarted",
        "StepFinished",
        "StepStarted",
        "ReasoningDelta",
        "TextDelta",
        "StepFinished",
        "Answered",
    ]
    answered = events[-1]
    assert isinstance(answered, Answered)
    assert (answered.text, answered.steps) == ("It is sunny.", 2)
    assert answered.tokens.prompt > 0 < answered.tokens.output
    assert tool_messages(session.history) == ["sunny in Oslo"]
    assert [message["role"] for message in session.history] == ["user", "assistant", "tool", "assistant"]
    # What the model said comes back to it exactly.
    first, second = records(tmp_path / "records")
    assert second["prompt_text"].startswith(first["prompt_text"] + first["output_text"])


async def test_tools_start_while_the_turn_still_streams_and_run_side_by_side(serve: Serve) -> None:
    client = await serve(
        {"text": THOUGHT + call_text("meet", name="a") + "And more.\n" + call_text("meet", name="b"), "delay_ms": 5},
        {"text": "Done.\n</think>\n\nBoth came."},
    )
    together = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        # Returns only if both calls run at the same time.
        async with asyncio.timeout(10):
            await together.wait()
        return f"{name} came"

    async with AsyncChatSession(client.base, tools=[meet]) as session:
        events = await events_of(session, "Meet.")
    started = [event for event in events if isinstance(event, ToolStarted)]
    assert [event.early for event in started] == [True, True]
    # The first tool runs before the text that the model wrote after calling it.
    assert kinds(events).index("ToolStarted") < kinds(events).index("TextDelta")
    assert tool_messages(session.history) == ["a came", "b came"]


async def test_results_go_back_in_call_order_whatever_ends_first(serve: Serve) -> None:
    client = await serve(
        {"text": THOUGHT + "".join(call_text("take", name=name) for name in "abc")},
        {"text": "Done.\n</think>\n\nAll."},
    )
    done: list[str] = []
    turns = {"c": asyncio.Event(), "b": asyncio.Event(), "a": asyncio.Event()}
    turns["c"].set()

    async def take(name: str) -> str:
        await turns[name].wait()
        done.append(name)
        following = {"c": "b", "b": "a"}.get(name)
        if following:
            turns[following].set()
        return name

    async with AsyncChatSession(client.base, tools=[take]) as session:
        await session.chat("Take.")
    assert done == ["c", "b", "a"]
    assert tool_messages(session.history) == ["a", "b", "c"]


async def test_a_server_without_dispatch_fragments_are_stitched(plain: Plain) -> None:
    server = await plain(
        [
            delta(role="assistant", content=""),
            fragment(0, name="weather"),
            fragment(0, '{"ci'),
            fragment(0, 'ty":"Oslo"}'),
            fragment(1, '{"city":"Rome"}', "weather"),
            delta("tool_calls"),
            "data: [DONE]\n\n",
        ],
        [delta(content="Sunny."), delta("stop"), "data: [DONE]\n\n"],
    )
    async with AsyncChatSession(server.base, "m", tools=[weather]) as session:
        events = await events_of(session, "Weather?")
    assert [event.early for event in events if isinstance(event, ToolStarted)] == [True, False]
    assert isinstance(events[-1], Answered)
    sent = server.asked[1]["messages"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["id0", "id1"]
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [
        ("id0", "sunny in Oslo"),
        ("id1", "sunny in Rome"),
    ]


async def test_a_server_that_does_not_stream(plain: Plain) -> None:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}
    server = await plain([web.Response(text=json.dumps(body), headers={"content-type": "application/json"})])
    async with AsyncChatSession(server.base + "/v1/", "m") as session:
        assert (await session.chat("Hello")).text == "Hi."


# ----------------------------------------------------------------------------------------------------- what goes wrong


async def test_bad_json_unknown_tools_and_failures_are_read_by_the_model(plain: Plain) -> None:
    def broken() -> None:
        raise ValueError("no luck")

    server = await plain(
        [
            fragment(0, '{"city": ', "weather"),
            fragment(1, "{}", "nonsense"),
            fragment(2, "{}", "broken"),
            fragment(3, '{"city":"Oslo"}', "weather"),
            delta("tool_calls"),
        ],
        [delta(content="Sunny."), delta("stop")],
    )
    async with AsyncChatSession(server.base, "m", tools=[weather, broken]) as session:
        events = await events_of(session, "Weather?")
    results = tool_messages(session.history)
    assert "not valid JSON" in results[0]
    assert '"properties":{"city"' in results[0]
    assert results[1] == "Error: there is no tool 'nonsense'. Tools: weather, broken."
    assert results[2] == "Error: broken failed: ValueError: no luck"
    assert results[3] == "sunny in Oslo"
    failed = {e.call_id: e.failed for e in events if isinstance(e, ToolFinished)}
    assert failed == {"id0": True, "id1": True, "id2": True, "id3": False}


async def test_a_hanging_tool_does_not_hang_the_turn(serve: Serve) -> None:
    client = await serve({"text": THOUGHT + call_text("hang")}, {"text": "Well.\n</think>\n\nWithout it."})
    release = threading.Event()

    def hang() -> None:
        release.wait(30)

    async with AsyncChatSession(client.base, tools=[hang], tool_timeout=0.05) as session:
        ended = await session.chat("Go.")
    release.set()
    assert ended.text == "Without it."
    assert tool_messages(session.history) == ["Error: hang did not answer within 0.05 s. Go on without it."]


async def test_the_step_limit_ends_with_an_answer(plain: Plain) -> None:
    call = [fragment(0, '{"city":"Oslo"}', "weather"), delta("tool_calls")]
    server = await plain(call, call, [delta(content="It is sunny, I think."), delta("stop")])
    async with AsyncChatSession(server.base, "m", tools=[weather], max_steps=2) as session:
        ended = await session.chat("Weather?")
    assert isinstance(ended, StepLimitReached)
    assert (ended.text, ended.steps) == ("It is sunny, I think.", 3)
    assert [asked["tool_choice"] for asked in server.asked] == ["auto", "auto", "none"]
    assert all(asked["tools"] == server.asked[0]["tools"] for asked in server.asked)


async def test_a_model_that_goes_on_calling_after_the_limit(plain: Plain) -> None:
    call = [fragment(0, '{"city":"Oslo"}', "weather"), delta("tool_calls")]
    server = await plain(call)
    async with AsyncChatSession(server.base, "m", tools=[weather], max_steps=1) as session:
        ended = await session.chat("Weather?")
        assert isinstance(ended, StepLimitReached)
        assert "limit of steps" in ended.text
        assert tool_messages(session.history)[1].startswith("Error: not run")
        roles = [message["role"] for message in session.history]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
        await session.chat("And now?")
    answered = {m["tool_call_id"] for m in server.asked[-1]["messages"] if m["role"] == "tool"}
    asked = {c["id"] for m in server.asked[-1]["messages"] for c in m.get("tool_calls", ())}
    assert asked <= answered


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([delta(content="Half"), {"error": {"message": "the engine died"}}], "the engine died"),
        ([delta(content="Half")], "before the turn did"),
        (["data: nonsense\n\n"], "not JSON"),
        ([web.Response(status=400, text='{"error":{"message":"bad field"}}')], "answered 400: bad field"),
        ([web.Response(status=500, text="<html>oops")], "answered 500: <html>oops"),
    ],
)
async def test_a_failing_server_is_an_error_and_leaves_a_valid_history(
    plain: Plain, chunks: list[Any], words: str
) -> None:
    server = await plain(chunks, [delta(content="Better."), delta("stop")])
    async with AsyncChatSession(server.base, "m") as session:
        with pytest.raises(EndpointError, match=words):
            await session.chat("Hello")
        kept = [message["content"] for message in session.history]
        assert kept in ([], ["Hello", "Half"])
        assert (await session.chat("Again")).text == "Better."


async def test_a_busy_server_is_asked_again(plain: Plain) -> None:
    busy = [web.Response(status=429, text="{}", headers={"retry-after": "0"})]
    server = await plain(busy, [delta(content="Hi."), delta("stop")])
    async with AsyncChatSession(server.base, "m") as session:
        assert (await session.chat("Hello")).text == "Hi."
    assert len(server.asked) == 2


def test_an_address_without_a_path_means_v1() -> None:
    for given, used in (
        ("http://host:1", "http://host:1/v1"),
        ("http://host:1/", "http://host:1/v1"),
        ("http://host:1/v1/", "http://host:1/v1"),
        ("https://host/v1beta/openai", "https://host/v1beta/openai"),
    ):
        assert Endpoint(given).base_url == used


async def test_no_server_at_all() -> None:
    async with AsyncChatSession("http://127.0.0.1:9", "m") as session:
        with pytest.raises(EndpointError, match="Is it running"):
            await session.chat("Hello")
        assert session.history == []


# --------------------------------------------------------------------------------------------------------- cancelling


async def test_cancelling_in_mid_stream_stops_the_server_and_the_tools(serve: Serve) -> None:
    client = await serve({"text": THOUGHT + call_text("wait") + "word " * 3000, "delay_ms": 10})
    stopped = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with AsyncChatSession(client.base, tools=[wait]) as session:
        seen: list[AgentEvent] = []
        async for event in session.stream("Go."):
            seen.append(event)
            if isinstance(event, TextDelta):
                session.cancel()
        assert isinstance(seen[-1], Cancelled)
        assert seen[-1].text.startswith("word")
        assert stopped.is_set()
        async with asyncio.timeout(5):
            await client.gateway.heartbeat.quiet.wait()
        assert [message["role"] for message in session.history] == ["user", "assistant"]
        assert "tool_calls" not in session.history[1]


async def test_cancelling_while_tools_run_keeps_their_turn(plain: Plain) -> None:
    running = asyncio.Event()

    async def wait() -> None:
        running.set()
        await asyncio.sleep(60)

    server = await plain(
        [fragment(0, '{"city":"Oslo"}', "weather"), fragment(1, "{}", "wait"), delta("tool_calls")],
        [delta(content="Fine."), delta("stop")],
    )
    async with AsyncChatSession(server.base, "m", tools=[weather, wait]) as session:
        async for event in session.stream("Go."):
            if isinstance(event, ToolFinished):
                await running.wait()
                session.cancel()
        assert isinstance(event, Cancelled)
        assert tool_messages(session.history) == ["sunny in Oslo", "Error: the user cancelled this call."]
        assert isinstance(await session.chat("Again"), Answered)
    assert [m["role"] for m in server.asked[1]["messages"]] == ["user", "assistant", "tool", "tool", "user"]


async def test_leaving_the_stream_cancels_and_an_empty_turn_is_forgotten(plain: Plain) -> None:
    server = await plain([delta(role="assistant", content=""), 30, delta("stop")])
    async with AsyncChatSession(server.base, "m") as session:
        stream = session.stream("Go.")
        assert isinstance(await anext(stream), StepStarted)
        while not server.asked:
            await asyncio.sleep(0.005)
        await stream.aclose()
        assert session.history == []
        while not server.left:
            await asyncio.sleep(0.005)


async def test_one_turn_at_a_time(plain: Plain) -> None:
    server = await plain([30])
    async with AsyncChatSession(server.base, "m") as session:
        stream = session.stream("Go.")
        await anext(stream)
        with pytest.raises(RuntimeError, match="one turn at a time"):
            await session.chat("Too.")
        await stream.aclose()


# ------------------------------------------------------------------------------------------------------------- memory


async def test_memory_is_trimmed_by_whole_turns_and_the_prefix_holds_until_then(plain: Plain) -> None:
    call = [fragment(0, '{"city":"Oslo"}', "weather"), delta("tool_calls")]
    server = await plain(call, [delta(content="Sunny. " * 40), delta("stop")], [delta(content="Yes."), delta("stop")])
    async with AsyncChatSession(
        server.base, "m", tools=[weather], instructions="Be brief.", memory=Memory(turns=2)
    ) as session:
        await session.chat("One?")
        await session.chat("Two?")
        events = await events_of(session, "Three?")
    assert [event for event in events if isinstance(event, MemoryTrimmed)] == [MemoryTrimmed(turns=1)]
    sent = [[m["role"] for m in asked["messages"]] for asked in server.asked]
    assert sent[2] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert sent[3] == ["system", "user", "assistant", "user"]
    assert server.asked[2]["messages"][:5] == [*server.asked[1]["messages"], server.asked[2]["messages"][4]]


def test_a_token_budget_counts_what_else_is_in_the_prompt_and_learns_the_rate() -> None:
    memory = Memory(budget=1000)
    for number in range(10):
        memory.begin({"role": "user", "content": f"question {number} " + "x" * 400})
        memory.add([{"role": "assistant", "content": "y" * 400, "reasoning_details": [{"data": "z" * 9000}]}])
    assert 0 < memory.trim() < 9
    assert memory.tokens() <= 1000
    kept = len(memory)
    memory.learn(chars=1000, tokens=1000)
    memory.trim(fixed=900)
    assert len(memory) == 1 < kept
    assert memory.messages[0]["content"].startswith("question 9")


def test_the_running_turn_stays_however_big_it_is() -> None:
    memory = Memory(budget=10)
    memory.begin({"role": "user", "content": "x" * 10_000})
    assert memory.trim() == 0
    with pytest.raises(ValueError, match="at least"):
        Memory(budget=0)


def test_loaded_messages_fall_into_turns() -> None:
    memory = Memory()
    messages = [{"role": role, "content": "x"} for role in ("user", "assistant", "tool", "assistant", "user")]
    memory.load(messages)
    assert len(memory) == 2
    assert memory.messages == messages


# --------------------------------------------------------------------------------------------------- without a loop


async def test_the_blocking_session(serve: Serve) -> None:
    client = await serve(
        {"text": THOUGHT + call_text("weather", city="Oslo")}, {"text": "Now.\n</think>\n\nIt is sunny."}
    )

    def talk() -> tuple[list[AgentEvent], str, int]:
        with ChatSession(client.base, tools=[weather]) as session:
            events = list(session.stream("Weather in Oslo?"))
            text = session.chat("And again?").text
            return events, text, len(session.history)

    events, text, kept = await asyncio.to_thread(talk)
    assert [event.content for event in events if isinstance(event, ToolFinished)] == ["sunny in Oslo"]
    assert [event.finish for event in events if isinstance(event, StepFinished)] == ["tool_calls", "stop"]
    assert any(isinstance(event, ReasoningDelta) for event in events)
    assert text == "It is sunny."
    assert kept == 6


async def test_the_blocking_session_cancels_when_left_or_told_and_passes_errors_on(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\n" + "word " * 3000, "delay_ms": 10})

    def leave() -> None:
        with ChatSession(client.base) as session:
            for event in session.stream("Go."):
                if isinstance(event, TextDelta):
                    break
            seen = []
            for event in session.stream("Go."):
                seen.append(event)
                if isinstance(event, TextDelta):
                    session.cancel()
            assert isinstance(seen[-1], Cancelled)
        session.close()
        with ChatSession(client.base, "nobody") as session, pytest.raises(EndpointError, match="404"):
            session.chat("Hello")

    await asyncio.to_thread(leave)
    async with asyncio.timeout(5):
        await client.gateway.heartbeat.quiet.wait()
