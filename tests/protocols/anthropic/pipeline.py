"""A pipeline of canned events between the real decoder and the real encoders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnwire.protocols.anthropic import DocumentEncoder, Echo, StreamEncoder, decode
from turnwire.protocols.wire import Inbound, TurnFacts
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    FinishReason,
    SealCarried,
    ToolCallClosed,
    Usage,
)

from .conformance import frames

MODEL = "nvidia/nemotron-3-super"
FACTS = TurnFacts(turn_id="0aB9", model=MODEL, created=1_790_000_000)
START = Usage(1000, 400)
END = Usage(1000, 400, 70, 30)


def request(headers: Mapping[str, str] | None = None, /, **fields: Any) -> Inbound:
    """Decode a request with these fields; model, messages and max_tokens have defaults."""
    body = {"model": MODEL, "max_tokens": 1024, "messages": [{"role": "user", "content": "hello"}], **fields}
    return decode(json.dumps(body).encode(), headers or {})


def thought(index: int, *pieces: str, seal: str = "c2VhbA") -> list[Event]:
    return [
        BlockOpened(index, "reasoning"),
        *(BlockDelta(index, piece) for piece in pieces),
        BlockClosed(index, "reasoning", seal),
    ]


def text(index: int, *pieces: str) -> list[Event]:
    return [BlockOpened(index, "text"), *(BlockDelta(index, piece) for piece in pieces), BlockClosed(index, "text")]


def call(index: int, name: str, *pieces: str, call_id: str = "", malformed: bool = False) -> list[Event]:
    call_id = call_id or f"toolu{index}"
    return [
        BlockOpened(index, "tool_call", name, call_id),
        *(BlockDelta(index, piece) for piece in pieces),
        ToolCallClosed(index, name, "".join(pieces), call_id, malformed),
    ]


def ending(reason: FinishReason, stop_sequence: str | None = None) -> list[Event]:
    return [END, Finished(reason, stop_sequence)]


INTERLEAVED: list[Event] = [
    *thought(0, "first ", "look"),
    *call(1, "Read", '{"path":', ' "a.txt"}'),
    *thought(2, "then", seal="c2VhbDI"),
    *text(3, "\n\n", "Now the other file."),
    *call(4, "Read", '{"path": "b.txt"}'),
    SealCarried(5, "dGFpbA"),
    *ending("tool_calls"),
]
"""A turn with everything in it: thought, call, thought, text with leading blanks, call, and a tail seal."""


def stream(batches: Iterable[Sequence[Event]], echo: object = None, facts: TurnFacts = FACTS) -> list[bytes]:
    """The writes of a streaming answer, one per batch, the opening included."""
    encoder = StreamEncoder(facts, echo)
    return [encoder.start(START), *(encoder.feed(batch) for batch in batches)]


def document(events: Sequence[Event], echo: object = None, facts: TurnFacts = FACTS) -> dict[str, Any]:
    """The non-streaming answer to the same events."""
    encoder = DocumentEncoder(facts, echo)
    assert encoder.start(START) == b""
    body = b"".join(encoder.feed([event]) for event in events)
    decoded = json.loads(body)
    assert isinstance(decoded, dict)
    return decoded


def sent(writes: Sequence[bytes]) -> list[dict[str, Any]]:
    """The data of every frame."""
    return [json.loads(frame.data) for frame in frames(writes)]


def assembled(writes: Sequence[bytes]) -> dict[str, Any]:
    """The message a client builds from a stream."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    for data in sent(writes):
        match data["type"]:
            case "message_start":
                message = data["message"]
            case "content_block_start":
                message["content"].append(data["content_block"])
            case "content_block_delta":
                block, delta = message["content"][data["index"]], data["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "input_json_delta":
                        inputs[data["index"]] = inputs.get(data["index"], "") + delta["partial_json"]
            case "content_block_stop":
                if data["index"] in inputs:
                    message["content"][data["index"]]["input"] = json.loads(inputs[data["index"]])
            case "message_delta":
                message |= data["delta"]
                message["usage"] |= data["usage"]
                if "context_management" in data:
                    message["context_management"] = data["context_management"]
    return message


THINKING = Echo(thinking=True)
