"""Stored responses: what is kept of a turn, and how later requests refer to it.

Promise: pure values and functions; where they are kept is the gateway's affair. A chain of `previous_response_id` gives
back every item of the earlier turns, in order, verbatim, or says which response of it is gone or cannot be continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.protocols.responses.compaction.summary import kept_messages

__all__ = ["MAX_CHAIN", "Stored", "StoredResponse", "continued", "history", "item_page", "with_ids"]

MAX_CHAIN = 10_000
"""Turns in one chain of previous_response_id."""

_ID_PREFIX: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response as it is kept: the response object as JSON, and the items that it was asked with, as they were
    sent."""

    id: str
    created: int
    document: bytes
    input_items: tuple[dict[str, Any], ...] = ()
    previous_response_id: str | None = None

    @property
    def shown_items(self) -> tuple[dict[str, Any], ...]:
        """What it was asked with, as clients get it back: each item has a type and an id."""
        return with_ids(self.input_items, self.id.removeprefix("resp_"))

    @property
    def output_items(self) -> tuple[dict[str, Any], ...]:
        """What the model answered."""
        return tuple(_OUTPUT.decode(self.document).output)

    @property
    def status(self) -> str:
        """How far the response has come."""
        return _OUTPUT.decode(self.document).status

    @property
    def background(self) -> bool:
        """Whether it runs without a client that waits."""
        return bool(_OUTPUT.decode(self.document).background)


class _Output(msgspec.Struct):
    output: list[dict[str, Any]] = []
    status: str = "completed"
    background: bool | None = None


_OUTPUT = msgspec.json.Decoder(_Output)
_FINISHED = frozenset({"completed", "incomplete"})


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What a request's references resolved to. `history` is None where there is nothing to continue: `missing` is the
    response of the chain that is gone, or `unfinished` the status of the one to continue."""

    items: Mapping[str, Mapping[str, Any]] = {}
    history: tuple[Mapping[str, Any], ...] | None = None
    missing: str | None = None
    unfinished: str | None = None


def continued(chain: Sequence[StoredResponse], missing: str | None, items: Mapping[str, Mapping[str, Any]]) -> Stored:
    """What a chain of responses, oldest first, gives a request that continues its last. `missing` is the response at
    which the chain broke off."""
    if missing is not None or not chain:
        return Stored(items=items, missing=missing)
    status = chain[-1].status
    if status not in _FINISHED:
        return Stored(items=items, unfinished=status)
    return Stored(items=items, history=history(chain))


def history(chain: Sequence[StoredResponse]) -> tuple[dict[str, Any], ...]:
    """All items of earlier turns, oldest first, as if the client had sent them again. What came before a compaction
    was replaced by it."""
    items: list[dict[str, Any]] = []
    for response in chain:
        items += [item for item in response.shown_items if item.get("type") != "compaction_trigger"]
        output = response.output_items
        if any(item.get("type") == "compaction" for item in output):
            items = kept_messages(items)
        items += output
    return tuple(items)


def with_ids(items: Sequence[Mapping[str, Any]], turn_id: str) -> tuple[dict[str, Any], ...]:
    """Input items as they are shown: each has a type and an id."""
    kept = []
    for number, item in enumerate(items):
        kind = str(item.get("type") or "message")
        if kind == "item_reference":
            kept.append(dict(item))
            continue
        made = f"{_ID_PREFIX.get(kind, 'item')}_{turn_id}_in{number}"
        stored = {**item, "type": kind, "id": item.get("id") or made}
        if kind == "message":
            stored.setdefault("status", "completed")
            if isinstance(stored.get("content"), str):
                part = "output_text" if stored.get("role") == "assistant" else "input_text"
                stored["content"] = [{"type": part, "text": stored["content"]}]
        kept.append(stored)
    return tuple(kept)


def item_page(items: Sequence[Mapping[str, Any]], *, after: str | None, limit: int, order: str) -> dict[str, Any]:
    """One page of a list of items, newest first unless `order` is asc."""
    ordered = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        place = next((i for i, item in enumerate(ordered) if item.get("id") == after), None)
        ordered = ordered[place + 1 :] if place is not None else []
    page = ordered[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0].get("id") if page else None,
        "last_id": page[-1].get("id") if page else None,
        "has_more": len(ordered) > len(page),
    }
