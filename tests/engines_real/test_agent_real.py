"""The agent with real weights behind the gateway: Qwen2.5-Coder calls a Python function, MiniLM finds the passage."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gateway.conftest import running
from tests.gateway.test_messages import records

from turnwire.agent import Answered, AsyncChatSession, Library, TextDelta, ToolFinished, ToolStarted
from turnwire.gateway.settings import Settings

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

# A small coder model goes on in JSON unless it is told, here and in the result, what comes after a call.
INSTRUCTIONS = "You are a helpful assistant. After a <tool_response>, answer the user in plain English, without JSON."
FACTS = [
    "The chess club meets every Thursday at 18:00 in the old library.",
    "The computer lab is open on weekdays from 10:00 to 18:00.",
    "Bicycles can be borrowed from the porter without charge.",
]


async def test_a_real_model_calls_a_python_function_and_uses_its_result(tmp_path: Path) -> None:
    asked: list[str] = []

    def stock_level(item: str) -> str:
        """Look up how many pieces of an item are in the warehouse.

        Args:
            item: The item's name in the singular, for example "hammer".
        """
        asked.append(item)
        return f"4711 pieces of {item}. Now tell the user, in plain words."

    settings = Settings(engine="embedded:qwen2.5-coder-1.5b", record=str(tmp_path), window=4096)
    async with (
        running(settings) as client,
        AsyncChatSession(
            client.base,
            tools=[stock_level],
            instructions=INSTRUCTIONS,
            max_steps=3,
            options={"temperature": 0, "max_tokens": 200},
        ) as session,
    ):
        events = [event async for event in session.stream("How many bolts are in the warehouse?")]
    started = [event for event in events if isinstance(event, ToolStarted)]
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert [event.name for event in started][:1] == ["stock_level"]
    assert "bolt" in asked[0].lower()
    assert not finished[0].failed
    assert isinstance(events[-1], Answered)
    assert "4711" in events[-1].text.replace(",", "")
    assert any(isinstance(event, TextDelta) for event in events)
    # The second prompt begins with the first one and with the very text of the call.
    first, second, *_ = records(tmp_path)
    assert second["prompt_text"].startswith(first["prompt_text"] + first["output_text"])


async def test_real_embeddings_find_by_meaning_and_not_by_words() -> None:
    async with running(Settings(engine="embedded")) as client:
        library = Library(client.base, "all-MiniLM-L6-v2", FACTS)
        assert (await library.search("Where can I get a bike for free?", 1))[0].text == FACTS[2]
        assert (await library.search("When do people play board games?", 1))[0].text == FACTS[0]
        await library.close()
