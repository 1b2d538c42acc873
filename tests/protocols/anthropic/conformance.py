"""Checks any recorded Messages stream against the rules that clients depend on.

Promise: `problems` names every broken rule of a transcript, ours or another server's; an empty list means that a
harness can use the stream. Run as a script on a file with one SSE transcript:
`python conformance.py transcript.sse --model m`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

STOP_REASONS = {
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
}
USAGE_FIELDS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
DELTAS = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
    "redacted_thinking": {},
}
EVENT_KEYS = {
    "message_start": {"type", "message"},
    "content_block_start": {"type", "index", "content_block"},
    "content_block_delta": {"type", "index", "delta"},
    "content_block_stop": {"type", "index"},
    "message_delta": {"type", "delta", "usage", "context_management"},
    "message_stop": {"type"},
    "ping": {"type"},
    "error": {"type", "error", "request_id"},
}


class Frame:
    """One SSE frame: in which write it came, its event name (None without an `event:` line) and its data."""

    def __init__(self, write: int, name: str | None, data: str) -> None:
        self.write = write
        self.name = name
        self.data = data


def frames(writes: Sequence[bytes]) -> Iterator[Frame]:
    """The frames of a transcript given as the pieces in which it was written; comments are skipped."""
    ends: list[int] = []
    for piece in writes:
        ends.append((ends[-1] if ends else 0) + len(piece))
    offset = 0
    write = 0
    for raw in b"".join(writes).split(b"\n\n"):
        offset += len(raw) + 2
        while write < len(ends) - 1 and offset > ends[write]:
            write += 1
        name: str | None = None
        data: list[str] = []
        for line in raw.decode().replace("\r\n", "\n").split("\n"):
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].lstrip())
        if name is not None or data:
            yield Frame(write, name, "\n".join(data))


class _Walk:
    """The state of one pass over a transcript."""

    def __init__(self, model: str | None, extra_events: frozenset[str], malformed_inputs: bool) -> None:
        self.model = model
        self.extra_events = extra_events
        self.malformed_inputs = malformed_inputs
        self.found: list[str] = []
        self.started = False
        self.ended = False
        self.closing: dict[str, Any] | None = None
        self.prompt: int | None = None
        self.blocks: dict[int, dict[str, Any]] = {}
        self.calls: dict[str, tuple[int, int]] = {}

    def say(self, rule: str, detail: str) -> None:
        self.found.append(f"{rule}: {detail}")

    def take(self, frame: Frame) -> None:
        if any(mark in frame.data for mark in "\u0085\u2028\u2029"):
            self.say("one-line", "a raw line separator in the data, at which some clients cut the line")
        if frame.data == "[DONE]":
            self.say("no-done", "a [DONE] trailer")
            return
        if frame.name is None:
            self.say("event-line", f"data without an event line: {frame.data[:60]}")
        try:
            data = json.loads(frame.data)
        except ValueError:
            self.say("json", f"data is not JSON: {frame.data[:60]}")
            return
        kind = data.get("type") if isinstance(data, dict) else None
        if kind is None:
            self.say("type", f"event {frame.name} without a type")
            return
        if frame.name is not None and frame.name != kind:
            self.say("event-line", f"event {frame.name} carries type {kind}")
        if self.ended:
            self.say("end", f"{kind} after message_stop")
        if kind in self.extra_events:
            return
        known = EVENT_KEYS.get(kind)
        if known is None:
            self.say("standard-events", f"unknown event {kind}")
            return
        extra = set(data) - known
        if extra:
            self.say("extra-keys", f"{kind} has {', '.join(sorted(extra))}")
        if kind not in ("message_start", "ping", "error") and not self.started:
            self.say("order", f"{kind} before message_start")
        getattr(self, f"on_{kind}")(data, frame)

    def on_ping(self, data: dict[str, Any], frame: Frame) -> None:
        pass

    def on_error(self, data: dict[str, Any], frame: Frame) -> None:
        error = data.get("error")
        if not isinstance(error, dict) or not error.get("type") or not error.get("message"):
            self.say("error", "an error event needs error.type and error.message")
        if self.blocks:
            self.say("error", "an error event after content began; close the connection instead")

    def on_message_start(self, data: dict[str, Any], frame: Frame) -> None:
        if self.started:
            self.say("start", "two message_start events")
        self.started = True
        message = data.get("message") or {}
        if not message.get("id"):
            self.say("start", "message without an id")
        if message.get("role") != "assistant" or message.get("type") != "message":
            self.say("start", "message is not an assistant message")
        if self.model is not None and message.get("model") != self.model:
            self.say("model", f"model is {message.get('model')!r}, asked was {self.model!r}")
        if message.get("content") != [] or message.get("stop_reason") is not None:
            self.say("start", "message_start must have no content and no stop_reason")
        self.prompt = self.total(message.get("usage"), "message_start")

    def on_content_block_start(self, data: dict[str, Any], frame: Frame) -> None:
        index, content = data.get("index"), data.get("content_block") or {}
        if index != len(self.blocks):
            self.say("index", f"block {index} opened where {len(self.blocks)} was next")
        if self.closing is not None:
            self.say("order", "a block after message_delta")
        kind = content.get("type")
        if kind not in DELTAS:
            self.say("block-type", f"block of type {kind}")
        block = {"type": kind, "text": "", "thinking": "", "signature": "", "partial_json": "", "open": True}
        self.blocks[index] = block
        if kind == "tool_use":
            if content.get("input") != {}:
                self.say("tool-input", "input must be empty at the start and come as input_json_delta")
            if not content.get("id") or not content.get("name"):
                self.say("tool-id", "a tool_use block needs an id and a name")
            if content.get("id") in self.calls:
                self.say("tool-id", f"id {content.get('id')} is used twice")
            block["id"] = content.get("id")
            self.calls[content.get("id")] = (frame.write, frame.write)
        elif kind == "redacted_thinking" and not content.get("data"):
            self.say("signature", "redacted thinking without data")
        elif kind == "text":
            block["text"] = content.get("text", "")

    def on_content_block_delta(self, data: dict[str, Any], frame: Frame) -> None:
        block = self.blocks.get(data.get("index"))
        if block is None or not block["open"]:
            self.say("order", f"a delta for block {data.get('index')}, which is not open")
            return
        delta = data.get("delta") or {}
        field = DELTAS.get(block["type"], {}).get(delta.get("type"))
        if field is None or not isinstance(delta.get(field), str):
            self.say("delta", f"{delta.get('type')} in a {block['type']} block")
            return
        block[field] += delta[field]

    def on_content_block_stop(self, data: dict[str, Any], frame: Frame) -> None:
        block = self.blocks.get(data.get("index"))
        if block is None or not block["open"]:
            self.say("order", f"a stop for block {data.get('index')}, which is not open")
            return
        block["open"] = False
        if block["type"] == "text" and not block["text"].strip():
            self.say("blank-text", f"block {data['index']} is a text block with nothing to see")
        if block["type"] == "thinking" and not block["signature"]:
            self.say("signature", f"block {data['index']} is a thought without a signature")
        if block["type"] == "tool_use":
            self.calls[block["id"]] = (self.calls[block["id"]][0], frame.write)
            self.check_input(block["partial_json"])

    def check_input(self, text: str) -> None:
        if not text:
            self.say("tool-input", "a call without any input_json_delta")
            return
        try:
            json.loads(text)
        except ValueError:
            if not self.malformed_inputs:
                self.say("tool-input", f"input is not JSON: {text[:40]}")

    def on_message_delta(self, data: dict[str, Any], frame: Frame) -> None:
        if self.closing is not None:
            self.say("end", "two message_delta events")
        self.closing = data
        reason = (data.get("delta") or {}).get("stop_reason")
        if reason not in STOP_REASONS:
            self.say("stop-reason", f"stop_reason is {reason!r}")
        calls = any(block["type"] == "tool_use" for block in self.blocks.values())
        if reason == "tool_use" and not calls:
            self.say("stop-reason", "stop_reason tool_use without a call")
        if reason == "end_turn" and calls:
            self.say("stop-reason", "stop_reason end_turn with a call")
        if (reason == "stop_sequence") != isinstance((data.get("delta") or {}).get("stop_sequence"), str):
            self.say("stop-reason", "stop_sequence must be named exactly when it ended the turn")
        for index, block in self.blocks.items():
            if block["open"]:
                self.say("order", f"block {index} is still open at message_delta")
        total = self.total(data.get("usage"), "message_delta")
        if None not in (total, self.prompt) and total != self.prompt:
            self.say("usage", f"the prompt counts {self.prompt} tokens at the start and {total} at the end")

    def on_message_stop(self, data: dict[str, Any], frame: Frame) -> None:
        if self.closing is None:
            self.say("order", "message_stop without message_delta")
        self.ended = True

    def total(self, usage: Any, where: str) -> int | None:
        if not isinstance(usage, dict) or any(not isinstance(usage.get(field), int) for field in USAGE_FIELDS):
            self.say("usage", f"{where} lacks one of {', '.join(USAGE_FIELDS)}")
            return None
        return sum(usage[field] for field in USAGE_FIELDS[:3])


def problems(
    writes: Sequence[bytes],
    *,
    model: str | None = None,
    extra_events: frozenset[str] = frozenset(),
    malformed_inputs: bool = False,
) -> list[str]:
    """Every broken rule. `writes` are the pieces in which the stream came; with two or more pieces it is also checked
    that calls were not held back. `extra_events` were opted into; `malformed_inputs` lets broken tool JSON pass."""
    walk = _Walk(model, extra_events, malformed_inputs)
    last_write = 0
    for frame in frames(writes):
        walk.take(frame)
        last_write = frame.write
    if not walk.started:
        walk.say("start", "no message_start")
    if not walk.ended:
        walk.say("end", "no message_stop")
    stops = sorted(stop for _, stop in walk.calls.values())
    if len(writes) > 1 and len(stops) > 1 and stops[0] == last_write:
        walk.say("held-calls", "all calls were closed together at the end of the message")
    return walk.found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transcript", type=Path)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    found = problems([arguments.transcript.read_bytes()], model=arguments.model)
    print("\n".join(found) or "no problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
