"""The playground's socket: an agent's events for a tab, through the gateway's own door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from turnwire.gateway.door.keys import hash_key
from turnwire.gateway.playground.tools import calculate

from .conftest import Client, Serve

CALL = (
    "I calculate.\n</think>\n\n<tool_call>\n<function=calculate>\n<parameter=expression>\n2 * 21\n</parameter>\n"
    "</function>\n</tool_call>"
)
LINES = ({"text": CALL}, {"text": "Good.\n</think>\n\nIt is **42**."})
SLOW = {"text": "Hm.\n</think>\n\n" + "word " * 2000, "delay_ms": 10}


@asynccontextmanager
async def tab(client: Client, **hello: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A tab that has said hello."""
    async with client.session.ws_connect(client.base.replace("http", "ws") + "/console/chat") as socket:
        await socket.send_json({"type": "hello"} | hello)
        yield socket


async def until(socket: aiohttp.ClientWebSocketResponse, *kinds: str) -> list[dict[str, Any]]:
    """What is heard up to one of these."""
    heard: list[dict[str, Any]] = []
    while not heard or heard[-1]["type"] not in kinds:
        heard.append(await socket.receive_json(timeout=10))
    return heard


async def test_a_turn_with_a_tool_that_is_allowed(serve: Serve) -> None:
    client = await serve(*LINES)
    async with tab(client, tools="ask") as socket:
        assert await until(socket, "ready") == [{"type": "ready", "models": ["test-model"], "model": "test-model"}]
        await socket.send_json({"type": "ask", "text": "What is 2 * 21?"})
        asked = (await until(socket, "approval"))[-1]
        assert asked["name"] == "calculate"
        await socket.send_json({"type": "approve", "call_id": asked["call_id"], "answer": "once"})
        heard = await until(socket, "answered")
        (finished,) = [event for event in heard if event["type"] == "tool_finished"]
        assert (finished["content"], finished["failed"]) == ("42", False)
        assert "".join(event["text"] for event in heard if event["type"] == "text_delta") == "It is **42**."
        assert heard[-1]["steps"] == 2
    (last, _) = client.gateway.journal.last(2)
    assert (last.client, last.prefix.partition(";")[0]) == ("turnwire-playground/1", "held")


async def test_a_turn_is_cancelled_and_its_engine_with_it(serve: Serve) -> None:
    client = await serve(SLOW)
    async with tab(client) as socket:
        await until(socket, "ready")
        await socket.send_json({"type": "ask", "text": "Talk."})
        await until(socket, "text_delta")
        await socket.send_json({"type": "ask", "text": "And more."})
        assert "One turn at a time" in (await until(socket, "failed"))[-1]["message"]
        await socket.send_json({"type": "cancel"})
        ended = (await until(socket, "cancelled"))[-1]
        assert ended["text"].startswith("word")
        async with asyncio.timeout(10):
            while len(client.gateway.heartbeat):
                await asyncio.sleep(0.01)
        await socket.send_json({"type": "retry"})
        await until(socket, "text_delta")
    async with asyncio.timeout(10):
        while len(client.gateway.heartbeat):  # a tab that is closed takes its turn with it
            await asyncio.sleep(0.01)


async def test_facts_are_searched_and_the_answer_is_checked_against_them_while_it_streams(serve: Serve) -> None:
    search = CALL.replace("calculate", "search_facts").replace("expression", "query").replace("2 * 21", "chess")
    lines = (
        {"text": "No.\n</think>\n\nno", "match": "Answer to check: It meets on Mars."},
        {"text": "Well.\n</think>\n\nyes", "match": "Is every statement of fact"},
        {"text": search},
        {"text": "Found.\n</think>\n\nThe chess club meets on Thursday.\n\nIt meets on Mars."},
    )
    client = await serve(*lines)
    async with tab(
        client, tools="always", facts=["The chess club meets on Thursday.", "The lab opens at ten."]
    ) as socket:
        await until(socket, "ready")
        await socket.send_json({"type": "ask", "text": "When does the chess club meet?"})
        heard = await until(socket, "answered", "refused", "failed")
        (found,) = [event for event in heard if event["type"] == "tool_finished"]
        assert found["content"].startswith("- The chess club meets on Thursday.")
        shown = [event["text"] for event in heard if event["type"] == "text_delta"]
        assert shown[0] == "The chess club meets on Thursday.\n\n"
        assert (heard[-1]["type"], heard[-1]["withheld"]) == ("refused", "It meets on Mars.")
        assert heard[-1]["text"] == "".join(shown)


async def test_where_there_are_keys_a_tab_brings_one(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "ann"\nhash = "{hash_key("tw-secret")}"\n')
    client = await serve(LINES[1], keys=str(keys))
    async with tab(client) as socket:
        assert "needs an API key" in (await until(socket, "failed"))[-1]["message"]
        await socket.send_json({"type": "ask", "text": "Hi."})
        assert "hello" in (await until(socket, "failed"))[-1]["message"]
        await socket.send_json({"type": "hello", "key": "no header\u2028carries this"})
        await until(socket, "failed")
        await socket.send_json({"type": "hello", "key": "tw-secret", "tools": "off"})
        await until(socket, "ready")
        await socket.send_json({"type": "ask", "text": "Hi."})
        assert (await until(socket, "answered"))[-1]["text"] == "It is **42**."
    (last,) = client.gateway.journal.last(1)
    assert last.tenant == "ann"


@pytest.mark.parametrize("said", ["{", '{"type":"dance"}', "[]", '{"type":"ask","text":5}', '{"type":"approve"}'])
async def test_whatever_is_said_is_answered_in_words(serve: Serve, said: str) -> None:
    client = await serve(LINES[1])
    async with client.session.ws_connect(client.base.replace("http", "ws") + "/console/chat") as socket:
        await socket.send_str(said)
        assert (await until(socket, "failed"))[-1]["message"]
        await socket.send_json({"type": "hello"})
        await until(socket, "ready")


def test_the_calculator() -> None:
    assert calculate("(3 + 4) * 2") == "14"
    assert calculate("-sqrt(16) / 2") == "-2.0"
    for bad in ("__import__('os')", "9 ** 9 ** 9", "1 if 2 else 3", "x", "2 ** 100000", "'a' * 3"):
        with pytest.raises((ValueError, SyntaxError)):
            calculate(bad)


async def test_what_was_captured_of_a_turn_can_be_asked_for(serve: Serve, tmp_path: Path) -> None:
    client = await serve(*LINES, capture=str(tmp_path / "captures"))
    body = {"model": "test-model", "max_tokens": 300, "messages": [{"role": "user", "content": "Hi."}]}
    await client.post("/v1/messages", body)
    (turn,) = client.gateway.journal.last(1)
    shown: dict[str, Any] = {}
    async with asyncio.timeout(10):
        while "turn_id" not in shown:
            async with client.session.get(f"{client.base}/admin/turns/{turn.turn_id}/payload") as answer:
                shown = await answer.json()
    assert "".join(shown["prompt"]["pieces"]).count("Hi.") == 1
    assert [block["kind"] for block in shown["blocks"]] == ["reasoning", "tool_call"]
    assert shown["blocks"][1]["arguments"] == {"expression": "2 * 21"}
    assert "".join(shown["output"]["pieces"]) == CALL
    async with client.session.get(f"{client.base}/admin/turns/nobody/payload") as answer:
        assert answer.status == 404
    plain = await serve(*LINES)
    async with plain.session.get(f"{plain.base}/admin/turns/{turn.turn_id}/payload") as answer:
        assert answer.status == 404
        assert "--capture" in await answer.text()


async def test_a_message_that_nests_without_end_leaves_the_tab_open(serve: Serve) -> None:
    client = await serve(*LINES)
    async with tab(client) as socket:
        await until(socket, "ready")
        for text in ("[" * 100_000, '{"type":' + '{"a":' * 3000):
            await socket.send_str(text)
            (answer,) = await until(socket, "failed")
            assert "not understood" in answer["message"]
        await socket.send_json({"type": "ask", "text": "Hi"})
        await until(socket, "approval", "answered")
