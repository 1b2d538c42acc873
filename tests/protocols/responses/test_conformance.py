"""The checker itself: it must find each kind of damage, or its silence means nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Event, Finished, ToolCallClosed, Usage

from .conformance import check_document, check_events, parse_stream

TURN: list[Event] = [
    BlockOpened(0, "text"),
    BlockDelta(0, "one "),
    BlockDelta(0, "two"),
    BlockClosed(0, "text"),
    BlockOpened(1, "tool_call", "f", "c1"),
    BlockDelta(1, "{}"),
    ToolCallClosed(1, "f", "{}", "c1"),
    BlockOpened(2, "tool_call", "f", "c2"),
    BlockDelta(2, "{}"),
    ToolCallClosed(2, "f", "{}", "c2"),
    Usage(5, 0, 5),
    Finished("stop"),
]


def first(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(event for event in events if event["type"] == f"response.{kind}")


def index(events: list[dict[str, Any]], kind: str) -> int:
    return events.index(first(events, kind))


def renumber(events: list[dict[str, Any]]) -> None:
    for number, event in enumerate(events):
        event["sequence_number"] = number


def drop(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    def run(events: list[dict[str, Any]]) -> None:
        del events[index(events, kind)]
        renumber(events)

    return run


def edit(kind: str, *path: Any, to: Any) -> Callable[[list[dict[str, Any]]], None]:
    def run(events: list[dict[str, Any]]) -> None:
        place: Any = first(events, kind)
        for step in path[:-1]:
            place = place[step]
        if to is None:
            del place[path[-1]]
        else:
            place[path[-1]] = to

    return run


def swap_calls(events: list[dict[str, Any]]) -> None:
    opened = [i for i, event in enumerate(events) if event["type"] == "response.output_item.added"]
    events[opened[1]], events[opened[2]] = events[opened[2]], events[opened[1]]
    renumber(events)


def after_the_end(events: list[dict[str, Any]]) -> None:
    events.append({"type": "response.in_progress", "response": events[0]["response"], "sequence_number": len(events)})


DAMAGE = {
    "sequence number": edit("output_text.delta", "sequence_number", to=99),
    "no created": drop("created"),
    "no in_progress": drop("in_progress"),
    "no added": drop("output_item.added"),
    "no done": drop("output_item.done"),
    "no terminal event": drop("completed"),
    "lost delta": drop("output_text.delta"),
    "changed delta": edit("output_text.delta", "delta", to="zwei"),
    "changed whole text": edit("output_text.done", "text", to="zwei"),
    "changed arguments": edit("function_call_arguments.done", "arguments", to="[]"),
    "delta of another item": edit("output_text.delta", "item_id", to="msg_other"),
    "response id changes": edit("completed", "response", "id", to="resp_other"),
    "status": edit("completed", "response", "status", to="in_progress"),
    "output lacks an item": edit("completed", "response", "output", to=[]),
    "usage missing": edit("completed", "response", "usage", to=None),
    "total missing": edit("completed", "response", "usage", "total_tokens", to=None),
    "empty details": edit("completed", "response", "usage", "input_tokens_details", to={}),
    "null cached": edit("completed", "response", "usage", "input_tokens_details", to={"cached_tokens": None}),
    "wrong total": edit("completed", "response", "usage", "total_tokens", to=11),
    "item without id": edit("output_item.done", "item", "id", to=None),
    "id without underscore": edit("output_item.done", "item", "id", to="12345"),
    "out of order": swap_calls,
    "after the end": after_the_end,
}


@pytest.fixture
def events(answer: Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]) -> list[dict[str, Any]]:
    return answer(TURN)[0]


@pytest.mark.parametrize("name", DAMAGE)
def test_each_damage_is_found(events: list[dict[str, Any]], name: str) -> None:
    assert check_events(events) == []
    damaged = copy.deepcopy(events)
    DAMAGE[name](damaged)
    assert check_events(damaged)


def test_damaged_calls_are_found(events: list[dict[str, Any]]) -> None:
    document = copy.deepcopy(events[-1]["response"])
    assert check_document(document) == []
    document["output"][2]["call_id"] = document["output"][1]["call_id"]
    assert check_document(document) == ["two calls share one call_id"]
    document["output"][1]["arguments"] = {}
    del document["output"][2]["call_id"]
    assert len(check_document(document)) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"data: {}\n\n",
        b"event: a\ndata: {\n\n",
        b'event: a\ndata: {"type":"b"}\n\n',
        b'event: a\ndata: {"type":"a"}\n',
        b": comment\n\n",
    ],
)
def test_damaged_framing_is_found(data: bytes) -> None:
    assert parse_stream(data)[1]


def test_nothing_is_not_a_stream() -> None:
    assert check_events([]) == ["the stream has no terminal event"]
    assert check_document([]) == ["the response is not an object"]
