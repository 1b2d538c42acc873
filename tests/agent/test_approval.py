"""Permission before a tool runs: asked once at a time, remembered for good where the answer says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnwire.agent import Answered, AsyncChatSession, ToolFinished, ToolRefused, ToolRequest, ToolStarted

from .conftest import Plain, delta, fragment

ran: list[str] = []


def drop(path: str) -> str:
    """Delete a file."""
    ran.append(path)
    return "deleted"


def keep(path: str) -> str:
    """Keep a file."""
    return "kept"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def calls(*made: tuple[str, str]) -> list[Any]:
    return [*(fragment(index, arguments, name) for index, (name, arguments) in enumerate(made)), delta("tool_calls")]


DONE = [delta(content="Done."), delta("stop")]
TWO = calls(("drop", '{"path": "a"}'), ("drop", '{"path": "b"}'))


async def turn(plain: Plain, approve: Any, *answers: list[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    server = await plain(*answers, DONE)
    async with AsyncChatSession(server.base, "m", tools=[drop, keep], approve=approve) as session:
        events = [event async for event in session.stream("Tidy up.")]
        return events, [message for message in session.history if message["role"] == "tool"]


@pytest.mark.parametrize(
    ("answer", "paths", "asked"),
    [("once", ["a", "b"], 2), ("always", ["a", "b"], 1), ("no", [], 2), ("never", [], 1)],
)
async def test_an_answer_is_for_one_call_or_for_all(plain: Plain, answer: str, paths: list[str], asked: int) -> None:
    requests: list[ToolRequest] = []

    def approve(request: ToolRequest) -> str:
        requests.append(request)
        return answer

    events, results = await turn(plain, approve, TWO)
    assert ran == paths
    assert [request.arguments for request in requests] == ['{"path": "a"}', '{"path": "b"}'][:asked]
    assert len(results) == 2
    refused = [event for event in events if isinstance(event, ToolRefused)]
    assert len(refused) == 2 - len(paths)
    assert all("not run" in message["content"] for message in results[len(paths) :])
    assert isinstance(events[-1], Answered)


async def test_an_async_function_is_awaited_and_questions_come_one_by_one(plain: Plain) -> None:
    at_once = most = 0

    async def approve(request: ToolRequest) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return "once" if '"a"' in request.arguments else "no"

    events, results = await turn(plain, approve, TWO)
    assert (ran, most) == (["a"], 1)
    assert results[0]["content"] == "deleted"
    assert [type(event) for event in events if isinstance(event, ToolStarted | ToolFinished)] == [
        ToolStarted,
        ToolFinished,
    ]


async def test_calls_that_cannot_run_are_not_asked_about(plain: Plain) -> None:
    asked: list[str] = []

    def approve(request: ToolRequest) -> str:
        asked.append(request.name)
        return "once"

    made = calls(("gone", "{}"), ("drop", '{"paths": 1}'), ("drop", "{"), ("keep", '{"path": "c"}'))
    _, results = await turn(plain, approve, made)
    assert asked == ["keep"]
    assert [message["content"][:5] for message in results] == ["Error", "Error", "Error", "kept"]


@pytest.mark.parametrize("approve", [lambda request: True, lambda request: 1 / 0, lambda request: None])
async def test_no_answer_means_no(plain: Plain, approve: Any) -> None:
    _, results = await turn(plain, approve, TWO)
    assert ran == []
    assert all("asking for permission failed" in message["content"] for message in results)
