"""Stored responses: a chain gives back every item, and references resolve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from turnwire.protocols.responses import (
    Stored,
    StoredResponse,
    compaction_item,
    continued,
    history,
    item_page,
    read_request,
    with_ids,
)
from turnwire.protocols.wire import Inbound, TurnFailure

ANSWER = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}


def stored(name: str, inputs: list[Any], outputs: list[Any], previous: str | None = None) -> StoredResponse:
    return StoredResponse(
        id=name,
        created=1,
        document=msgspec.json.encode({"id": name, "output": outputs}),
        input_items=with_ids(inputs, name),
        previous_response_id=previous,
    )


def test_a_chain_reads_as_if_all_had_been_sent(decode: Callable[..., Inbound]) -> None:
    chain = [
        stored("r1", [{"role": "user", "content": "a"}], [ANSWER]),
        stored("r2", [{"role": "user", "content": "b"}], [{**ANSWER, "id": "msg_2"}], "r1"),
    ]
    going_on = decode(
        instructions="new base",
        input=[{"role": "user", "content": "c"}],
        previous_response_id="r2",
        stored=Stored(history=history(chain)),
    )
    whole = decode(
        instructions="new base",
        input=[
            {"role": "user", "content": "a"},
            ANSWER,
            {"role": "user", "content": "b"},
            ANSWER,
            {"role": "user", "content": "c"},
        ],
    )
    assert going_on.conversation == whole.conversation
    assert going_on.echo.previous_response_id == "r2"  # type: ignore[attr-defined]
    assert len(going_on.echo.input_items) == 1  # type: ignore[attr-defined]


def test_a_compaction_in_the_chain_replaces_what_came_before() -> None:
    chain = [
        stored("r1", [{"role": "user", "content": "a"}], [ANSWER]),
        stored("r2", [{"type": "compaction_trigger"}], [compaction_item("cmp_1", "sum")], "r1"),
    ]
    assert [item["type"] for item in history(chain)] == ["message", "compaction"]


def test_what_a_request_refers_to() -> None:
    items = b'[{"type":"item_reference","id":"rs_1"},{"id":"x_2"},{"role":"user","content":""}]'
    body = b'{"model":"m","previous_response_id":"resp_1","input":' + items + b"}"
    request = read_request(body)
    assert (request.previous_response_id, request.references) == ("resp_1", ("rs_1", "x_2"))
    assert read_request(b'{"model":"m","input":"x"}').references == ()


def test_pages_of_items() -> None:
    items = with_ids([{"role": "user", "content": str(n)} for n in range(5)], "T")
    ids = [item["id"] for item in items]
    assert len(set(ids)) == 5
    page = item_page(items, after=None, limit=2, order="desc")
    assert [item["id"] for item in page["data"]] == [ids[4], ids[3]]
    assert page["has_more"]
    rest = item_page(items, after=ids[3], limit=10, order="desc")
    assert (rest["first_id"], rest["last_id"], rest["has_more"]) == (ids[2], ids[0], False)
    assert item_page(items, after="nobody", limit=10, order="asc")["data"] == []


def refused(decode: Callable[..., Inbound], known: Stored | None, **fields: Any) -> TurnFailure:
    with pytest.raises(TurnFailure) as caught:
        decode(stored=known, **fields)
    return caught.value


def test_the_response_that_is_gone_is_the_one_that_is_named(decode: Callable[..., Inbound]) -> None:
    child = stored("r2", [{"role": "user", "content": "b"}], [ANSWER], "r1")
    failure = refused(decode, continued([child], "r1", {}), previous_response_id="r2")
    assert failure.message == "Previous response with id 'r1' not found."
    assert (failure.param, failure.code) == ("previous_response_id", "previous_response_not_found")
    unknown = refused(decode, continued([], "r9", {}), previous_response_id="r9")
    assert "'r9'" in unknown.message


@pytest.mark.parametrize("status", ["queued", "in_progress", "failed", "cancelled"])
def test_a_response_that_did_not_finish_is_not_continued(decode: Callable[..., Inbound], status: str) -> None:
    parent = StoredResponse(id="r1", created=1, document=msgspec.json.encode({"status": status, "output": []}))
    failure = refused(decode, continued([parent], None, {}), previous_response_id="r1")
    assert (failure.kind, failure.code) == ("invalid_request", "previous_response_not_finished")
    assert status in failure.message


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_response_that_finished_is_continued(decode: Callable[..., Inbound], status: str) -> None:
    parent = StoredResponse(id="r1", created=1, document=msgspec.json.encode({"status": status, "output": [ANSWER]}))
    inbound = decode(stored=continued([parent], None, {}), previous_response_id="r1")
    assert inbound.conversation.messages[0].text == "yes"


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_output_without_its_call_is_refused_in_the_vendors_words(decode: Callable[..., Inbound], kind: str) -> None:
    orphan = {"type": kind, "call_id": "call_9", "output": "x"}
    failure = refused(decode, None, input=[{"role": "user", "content": "a"}, orphan])
    assert failure.message == "No tool call found for function call output with call_id call_9."
    assert (failure.kind, failure.param, failure.code) == ("invalid_request", "input", None)


def test_an_output_finds_its_call_anywhere_in_the_conversation(decode: Callable[..., Inbound]) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call1", "output": "x"}
    assert decode(input=[call, {"role": "user", "content": "b"}, output]).conversation.messages
    earlier = continued([stored("r1", [], [call])], None, {})
    assert decode(input=[output], previous_response_id="r1", stored=earlier).conversation.messages
    shell = {"type": "local_shell_call", "call_id": "call_1", "action": {}}
    assert decode(input=[shell, output]).conversation.messages
    # The call may be in an item that the store has lost, which is noted.
    assert decode(input=[{"type": "item_reference", "id": "gone"}, output]).notes[0].code == "item.reference_missing"
