"""Stored responses: a chain gives back every item, and references resolve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from turnwire.protocols.responses import (
    Stored,
    StoredResponse,
    compaction_item,
    history,
    item_page,
    read_request,
    with_ids,
)
from turnwire.protocols.wire import Inbound

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
    continued = decode(
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
    assert continued.conversation == whole.conversation
    assert continued.echo.previous_response_id == "r2"  # type: ignore[attr-defined]
    assert len(continued.echo.input_items) == 1  # type: ignore[attr-defined]


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
