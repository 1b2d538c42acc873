"""A checker of Responses event streams and response objects, by the rules that clients rely on.

Promise: total over any bytes; each broken rule is one sentence that names the event. An empty list means that every
rule held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["check_document", "check_events", "parse_stream"]

TERMINAL = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}

DELTAS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "response.output_text.delta": ("message", "response.output_text.done", ("text",)),
    "response.reasoning_summary_text.delta": ("reasoning", "response.reasoning_summary_text.done", ("text",)),
    "response.function_call_arguments.delta": (
        "function_call",
        "response.function_call_arguments.done",
        ("arguments",),
    ),
    "response.custom_tool_call_input.delta": (
        "custom_tool_call",
        "response.custom_tool_call_input.done",
        ("input",),
    ),
}
"""Each delta event: the item it belongs to, the event that repeats the whole, and the field that holds it."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "message": ("id", "role", "status", "content"),
    "reasoning": ("id", "summary"),
    "function_call": ("id", "call_id", "name", "arguments", "status"),
    "custom_tool_call": ("id", "call_id", "name", "input"),
    "tool_search_call": ("id", "call_id", "arguments", "execution", "status"),
    "compaction": ("id", "encrypted_content"),
}


def parse_stream(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """The events of a server-sent stream, and what is wrong with its framing."""
    events: list[dict[str, Any]] = []
    problems: list[str] = []
    frames = data.split(b"\n\n")
    if frames.pop():
        problems.append("the stream does not end with an empty line")
    for number, frame in enumerate(frames):
        fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
        try:
            value = msgspec.json.decode(fields.get(b"data", b""))
        except msgspec.DecodeError:
            problems.append(f"frame {number} has no JSON data")
            continue
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            problems.append(f"frame {number} has no type")
            continue
        if fields.get(b"event", b"").decode() != value["type"]:
            problems.append(f"frame {number}: event line and type differ ({value['type']})")
        events.append(value)
    return events, problems


def check_events(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the events of one response."""
    return _Check().run(events)


def check_document(document: Any) -> list[str]:
    """What is wrong with a response object."""
    if not isinstance(document, dict):
        return ["the response is not an object"]
    problems = []
    if document.get("object") != "response" or not isinstance(document.get("id"), str):
        problems.append("the response lacks id or object")
    status = document.get("status")
    if status in ("completed", "incomplete"):
        problems += _usage(document.get("usage"))
    if status == "failed" and not isinstance(document.get("error"), dict):
        problems.append("a failed response has no error")
    if status == "incomplete" and not (document.get("incomplete_details") or {}).get("reason"):
        problems.append("an incomplete response does not say why")
    calls: list[str] = []
    for item in document.get("output") or ():
        problems += _item(item)
        calls += [item["call_id"]] if isinstance(item.get("call_id"), str) else []
    if len(set(calls)) != len(calls):
        problems.append("two calls share one call_id")
    return problems


def _usage(usage: Any) -> list[str]:
    if not isinstance(usage, dict):
        return ["usage is missing"]
    details = ("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens")
    problems = [
        f"usage.{n} is not an integer"
        for n in ("input_tokens", "output_tokens", "total_tokens")
        if not _whole(usage.get(n))
    ]
    for group, name in details:
        held = usage.get(group)
        if not isinstance(held, dict) or not _whole(held.get(name)):
            problems.append(f"usage.{group}.{name} is not an integer")
    if not problems and usage["input_tokens"] + usage["output_tokens"] != usage["total_tokens"]:
        problems.append("usage.total_tokens is not the sum")
    return problems


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _item(item: Any) -> list[str]:
    if not isinstance(item, dict):
        return ["an item is not an object"]
    kind = item.get("type")
    missing = [name for name in REQUIRED.get(str(kind), ("id",)) if item.get(name) is None]
    problems = [f"{kind} item lacks {name}" for name in missing]
    if isinstance(item.get("id"), str) and "_" not in item["id"]:
        problems.append(f"{kind} item id has no underscore")
    if kind == "function_call" and not isinstance(item.get("arguments"), str):
        problems.append("function_call arguments are not a string")
    return problems


class _Check:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.open: dict[int, dict[str, Any]] = {}
        self.text: dict[str, list[str]] = {}
        self.done: list[Any] = []
        self.next_index = 0
        self.response_id: str | None = None
        self.ended = False

    def run(self, events: Sequence[Mapping[str, Any]]) -> list[str]:
        for number, one in enumerate(events):
            kind = str(one.get("type"))
            self._say(one.get("sequence_number") == number, f"event {number} ({kind}) has another sequence_number")
            self._say(not self.ended, f"event {number} ({kind}) comes after the end")
            if number < 2:
                wanted = (("response.created",), ("response.in_progress", "response.queued"))[number]
                self._say(kind in wanted, f"event {number} is {kind}, not {wanted[0]}")
            if "response" in one:
                self._response(kind, one["response"])
            elif kind == "response.output_item.added":
                self._added(one)
            elif kind == "response.output_item.done":
                self._done(one)
            elif kind in DELTAS:
                self._delta(kind, one)
            else:
                self._whole(kind, one)
        self._say(self.ended, "the stream has no terminal event")
        return self.problems

    def _say(self, held: bool, problem: str) -> None:
        if not held:
            self.problems.append(problem)

    def _response(self, kind: str, response: Mapping[str, Any]) -> None:
        if self.response_id is None:
            self.response_id = response.get("id")
        self._say(response.get("id") == self.response_id, f"{kind}: the response id changed")
        status = TERMINAL.get(kind)
        if status is None:
            return
        self.ended = True
        self._say(response.get("status") == status, f"{kind}: status is {response.get('status')}")
        self._say(response.get("output") == self.done, f"{kind}: output is not the list of finished items")
        if kind != "response.failed":
            self._say(not self.open, f"{kind}: an item is still open")
        self.problems += check_document(response)

    def _added(self, one: Mapping[str, Any]) -> None:
        index, item = one.get("output_index"), one.get("item")
        self._say(index == self.next_index, f"output_index {index} opened out of order")
        self._say(not self.open, f"item {index} opened while another is open")
        if isinstance(item, dict) and isinstance(index, int):
            self.open[index] = item
            self.next_index = index + 1

    def _done(self, one: Mapping[str, Any]) -> None:
        index, item = one.get("output_index"), one.get("item")
        added = self.open.pop(index, None) if isinstance(index, int) else None
        if added is None or not isinstance(item, dict):
            self.problems.append(f"item {index} is done but was not open")
            return
        for name in ("id", "type", "call_id", "name", "namespace"):
            self._say(added.get(name) == item.get(name), f"item {index}: {name} changed")
        self.problems += _item(item)
        self.done.append(item)
        streamed = "".join(self.text.get(str(item.get("id")), ()))
        self._say(not streamed or streamed == _content(item), f"item {index}: the deltas do not add up to the item")

    def _delta(self, kind: str, one: Mapping[str, Any]) -> None:
        item = self.open.get(one.get("output_index", -1))
        if item is None or item.get("id") != one.get("item_id"):
            self.problems.append(f"{kind} for an item that is not open")
            return
        self._say(item.get("type") == DELTAS[kind][0], f"{kind} for a {item.get('type')} item")
        self.text.setdefault(str(one.get("item_id")), []).append(str(one.get("delta")))

    def _whole(self, kind: str, one: Mapping[str, Any]) -> None:
        for _, done, fields in DELTAS.values():
            if kind == done:
                streamed = "".join(self.text.get(str(one.get("item_id")), ()))
                self._say(not streamed or streamed == one.get(fields[0]), f"{kind} differs from its deltas")
        self._say(one.get("output_index") in self.open, f"{kind} for an item that is not open")


def _content(item: Mapping[str, Any]) -> Any:
    kind = item.get("type")
    if kind == "message":
        return "".join(part.get("text", "") for part in item.get("content") or ())
    if kind == "reasoning":
        return "".join(part.get("text", "") for part in item.get("summary") or ())
    return item.get("arguments") if kind == "function_call" else item.get("input")
