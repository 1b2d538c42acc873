"""The sequence of requests that a tutorial agent makes: embeddings, tool turns, streamed fragments, memory over three
questions, a grounding check; with our own agent, on our own facts, against the gateway."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import Serve
from tests.gateway.test_messages import records
from turnwire.agent import Answered, AsyncChatSession, Grounding, Library, Refused, StepFinished, TextDelta

from .conftest import call_text

FACTS = [
    "The chess club meets every Thursday at 18:00 in the old library.",
    "The computer lab is open on weekdays from 10:00 to 18:00.",
    "Swimming lessons take place on Saturday mornings.",
    "The reading group meets on Tuesday afternoons.",
    "Bicycles can be borrowed from the porter for free.",
]
SYSTEM = "/no_think\nYou help students. Use the tools; say nothing that they do not tell you."


def days_until(weekday: str) -> str:
    """How many days until a weekday.

    Args:
        weekday: For example Thursday.
    """
    return f"{weekday} is in {len(weekday) % 7} days."


def search(query: str) -> str:
    return call_text("search_facts", query=query)


@pytest.mark.parametrize("name", ["test-model", "house/chat-large"])
async def test_three_questions_with_memory(serve: Serve, tmp_path: Path, name: str) -> None:
    client = await serve(
        {"text": search("chess club meeting")},
        {"text": "The chess club meets on Thursday at 18:00."},
        {"text": call_text("days_until", weekday="Thursday")},
        {"text": "In 1 day."},
        {"text": call_text("days_until", weekday="Thursday") + call_text("days_until", weekday="Tuesday")},
        {"text": "The reading group is sooner."},
        alias=("house/chat-large", "house/embedder"),
        record=str(tmp_path / "records"),
    )
    library = Library(client.base, "house/embedder", FACTS, input_types=True)
    tools = [library.tool("search_facts", "Search facts about the campus."), days_until]
    async with AsyncChatSession(
        client.base, name, tools=tools, instructions=SYSTEM, options={"temperature": 0.2, "max_tokens": 400}
    ) as session:
        answers = []
        for question in ("When does the chess club meet?", "How many days until that?", "Is the reading group sooner?"):
            pieces = []
            async for event in session.stream(question):
                if isinstance(event, TextDelta):
                    pieces.append(event.text)
                elif isinstance(event, Answered):
                    assert event.text == "".join(pieces)
                    answers.append(event.text)
        assert answers == ["The chess club meets on Thursday at 18:00.", "In 1 day.", "The reading group is sooner."]
        results = [message["content"] for message in session.history if message["role"] == "tool"]
    await library.close()
    assert results[0].splitlines()[0] == f"- {FACTS[0]}"
    assert results[1:] == ["Thursday is in 1 days.", "Thursday is in 1 days.", "Tuesday is in 0 days."]
    turns = records(tmp_path / "records")
    assert len(turns) == 6
    # Each prompt is the one before it, what the model said then, and only then what is new.
    for before, after in pairwise(turns):
        assert after["prompt_text"].startswith(before["prompt_text"] + before["output_text"])
        assert after["prefix"].startswith("held")


def judge(verdict: str) -> dict[str, Any]:
    return {"text": f"Let me see.\n</think>\n\n{verdict}", "match": "Is every statement of fact"}


async def grounded(client: Any, *, tools: bool = True) -> tuple[AsyncChatSession, Library]:
    library = Library(client.base, "test-model", FACTS)
    offered = [library.tool("search_facts", "Search facts about the campus.")] if tools else []
    session = AsyncChatSession(
        client.base, "test-model", tools=offered, instructions=SYSTEM, grounding=Grounding("I do not know.")
    )
    return session, library


@pytest.mark.parametrize(("verdict", "supported"), [("Yes.", True), ("no", False), ("Perhaps", False), ("", False)])
async def test_an_answer_is_shown_only_if_what_was_found_supports_it(
    serve: Serve, verdict: str, supported: bool
) -> None:
    client = await serve({"text": search("chess")}, {"text": "On Thursday."}, judge(verdict))
    session, library = await grounded(client)
    events = [event async for event in session.stream("When does the chess club meet?")]
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    if supported:
        assert isinstance(events[-1], Answered)
        assert shown == events[-1].text == "On Thursday."
    else:
        assert isinstance(events[-1], Refused)
        assert (shown, events[-1].withheld) == ("I do not know.", "On Thursday.")
    assert session.history[-1]["content"] == shown
    await session.close()
    await library.close()


async def test_a_checked_answer_streams_and_ends_where_it_is_not_supported(serve: Serve) -> None:
    said = "The chess club meets on Thursday.\n\nIt begins at 18:00.\n\nIt meets on Mars. " + "And so on. " * 20
    answer = {"text": said, "delay_ms": 10}
    wrong = judge("no") | {"match": "Answer to check: It meets on Mars."}
    client = await serve({"text": search("chess")}, answer, wrong, judge("yes"))
    session, library = await grounded(client)
    events = [event async for event in session.stream("When does the chess club meet?")]
    shown = [event.text for event in events if isinstance(event, TextDelta)]
    assert shown == ["The chess club meets on Thursday.\n\n", "It begins at 18:00.\n\n", "I do not know."]
    ended = events[-1]
    assert isinstance(ended, Refused)
    assert (ended.text, ended.withheld.startswith("It meets on Mars.")) == ("".join(shown), True)
    assert session.history[-1]["content"] == ended.text
    # The first paragraph was read while the model still wrote.
    kinds = [type(event) for event in events]
    assert kinds.index(TextDelta) < len(kinds) - 1 - kinds[::-1].index(StepFinished)
    await session.close()
    await library.close()


async def test_a_check_of_the_whole_answer_shows_nothing_of_one_that_is_wrong_at_its_end(serve: Serve) -> None:
    said = "The chess club meets on Thursday.\n\nIt meets on Mars."
    client = await serve({"text": search("chess")}, {"text": said}, judge("no"))
    session, library = await grounded(client)
    session.grounding = Grounding("I do not know.", whole=True)
    ended = await session.chat("When does the chess club meet?")
    assert isinstance(ended, Refused)
    assert (ended.text, ended.withheld) == ("I do not know.", said)
    await session.close()
    await library.close()


async def test_an_answer_without_anything_found_is_refused_without_asking(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "On Friday, surely."}, judge("yes"), record=str(tmp_path / "records"))
    session, library = await grounded(client, tools=False)
    ended = await session.chat("When does the chess club meet?")
    assert isinstance(ended, Refused)
    assert len(records(tmp_path / "records")) == 1
    await session.close()
    await library.close()


async def test_texts_are_embedded_once_and_can_be_added_later(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    library = Library(client.base, "test-model", FACTS)
    first = await library.search("bicycles for free", 1)
    library.add("Bicycles for free are a myth.")
    again = await library.search("bicycles for free", 2)
    assert first[0].text == FACTS[4]
    assert {passage.text for passage in again} == {FACTS[4], "Bicycles for free are a myth."}
    assert again[0].score >= again[1].score
    await library.close()
