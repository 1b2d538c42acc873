"""Dispatch for every family of models: each call once, as soon as it is closed, section wrapper or not."""

from __future__ import annotations

import json

import pytest

from tests.parsers.samples import SAMPLES, TOOLS
from turnwire.parsers import Parser, resolve
from turnwire.protocols.chat import StreamEncoder
from turnwire.protocols.wire import TurnFacts
from turnwire.turns import BlockOpened, Event, ToolCallClosed, Usage

from .test_answer import frames


def with_ids(events: list[Event]) -> list[Event]:
    """The events with call ids, as the gateway mints them."""
    return [
        type(event)(
            **{field: getattr(event, field) for field in event.__struct_fields__} | {"call_id": f"c{event.index}"}
        )
        if isinstance(event, ToolCallClosed) or (isinstance(event, BlockOpened) and event.kind == "tool_call")
        else event
        for event in events
    ]


CALLING = sorted(name for name, sample in SAMPLES.items() if "edit" in sample)
"""The families that call tools at all."""


@pytest.mark.parametrize("name", CALLING)
def test_a_call_is_dispatched_once_and_before_the_next_one_begins(name: str) -> None:
    dialect = resolve(name)
    parser = Parser(dialect, TOOLS, dialect.start)
    encoder = StreamEncoder(TurnFacts(turn_id="t", model="m", created=0, dispatch=True))
    data = encoder.start(Usage(1))
    closed: list[str] = []
    for character in SAMPLES[name]:
        events = with_ids(parser.feed(character))
        said = encoder.feed(events)
        calls = [event.call_id for event in events if isinstance(event, ToolCallClosed)]
        # With the very character that closes a call its dispatch goes out.
        assert said.count(b"event: tool_call_dispatch") == len(calls)
        closed += calls
        data += said
    data += encoder.feed(with_ids(parser.finish("stop")))
    found = frames(data)
    dispatched = [payload["tool_call"] for event, payload in found if event == "tool_call_dispatch"]
    assert [call["function"]["name"] for call in dispatched] == ["edit", "ls"]
    assert len({call["id"] for call in dispatched}) == 2
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in dispatched)
    kinds = [
        event or str([part.get("id") for part in payload["choices"][0]["delta"].get("tool_calls", ())])
        for event, payload in found
        if payload != "[DONE]"
    ]
    assert kinds.index("tool_call_dispatch") < kinds.index(f"['{dispatched[1]['id']}']")
