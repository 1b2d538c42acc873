"""The transcript checker passes our streams and fails bad ones, rule by rule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from turnwire.turns import Event

from . import conformance
from .conformance import problems
from .pipeline import INTERLEAVED, MODEL, THINKING, call, ending, stream, text, thought


def rules(found: list[str]) -> set[str]:
    return {line.split(":", 1)[0] for line in found}


def frame(data: dict[str, object], name: str | None = None) -> bytes:
    return f"event: {name or data['type']}\ndata: {json.dumps(data)}\n\n".encode()


@pytest.mark.parametrize(
    "events",
    [
        INTERLEAVED,
        [*text(0, "hello"), *ending("stop")],
        [*thought(0, "hm"), *text(1, "hello"), *ending("length")],
        [*text(0, " \n"), *call(1, "Bash", "{}"), *ending("tool_calls")],
        [*text(0, "hel"), *ending("stop_sequence", "lo")],
        [*thought(0), *ending("stop")],
        [*text(0, "\n"), *ending("stop")],
        [*text(0, "no"), *ending("content_filter")],
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_our_streams_hold_every_rule(events: list[Event], step: int) -> None:
    writes = stream([events[at : at + step] for at in range(0, len(events), step)], THINKING)
    held = step == 1000
    assert problems([b"".join(writes)] if held else writes, model=MODEL) == []


def another_servers_transcript() -> list[bytes]:
    """The shape of a server that maps chat chunks onto this wire: calls kept to the end, a blank text block, usage on
    every delta, an estimated prompt count, a constant signature, and a chat trailer."""
    usage = {"input_tokens": 136, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    after = {**usage, "input_tokens": 289, "output_tokens": 40}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }

    def delta(index: int, **delta: str) -> bytes:
        return frame({"type": "content_block_delta", "index": index, "delta": delta, "usage": usage})

    def start(index: int, **block: object) -> bytes:
        return frame({"type": "content_block_start", "index": index, "content_block": block})

    def stop(index: int) -> bytes:
        return frame({"type": "content_block_stop", "index": index})

    calls = b"".join(
        start(index, type="tool_use", id=f"call-{index}", name="Bash", input={})
        + delta(index, type="input_json_delta", partial_json='{"command":"ls"}')
        + stop(index)
        for index in (2, 3)
    )
    return [
        frame({"type": "message_start", "message": message}),
        start(0, type="thinking", thinking="") + delta(0, type="thinking_delta", thinking="hm"),
        delta(0, type="signature_delta", signature="erased") + stop(0),
        start(1, type="text", text="") + delta(1, type="text_delta", text="\n\n") + stop(1),
        calls
        + frame(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use", "stop_sequence": None},
                "usage": after,
            }
        )
        + frame({"type": "message_stop"})
        + b"data: [DONE]\n\n",
    ]


def test_another_servers_transcript_fails() -> None:
    found = rules(problems(another_servers_transcript(), model=MODEL))
    assert found == {"blank-text", "no-done", "held-calls", "usage", "extra-keys"}


GOOD = b"".join(stream([INTERLEAVED], THINKING))

MUTATIONS: dict[str, tuple[bytes, bytes, str]] = {
    "no event lines": (b"event: content_block_stop\n", b"", "event-line"),
    "wrong event line": (b"event: message_stop", b"event: message_end", "event-line"),
    "data is not JSON": (b'{"type":"message_stop"}', b"bye", "json"),
    "no type": (b'{"type":"message_stop"}', b"{}", "type"),
    "unknown event": (
        b"event: message_stop\n",
        b'event: x\ndata: {"type":"x"}\n\nevent: message_stop\n',
        "standard-events",
    ),
    "other model": (MODEL.encode(), b"other", "model"),
    "missing id": (b'"id":"msg_0aB9",', b"", "start"),
    "missing prompt count": (b'"input_tokens":600,', b"", "usage"),
    "a stop is missing": (
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":4}\n\n',
        b"",
        "order",
    ),
    "index with a gap": (b'"index":5', b'"index":6', "index"),
    "empty signature": (b'"signature":"c2VhbA"', b'"signature":""', "signature"),
    "input at the start": (b'"input":{}', b'"input":{"path":"a.txt"}', "tool-input"),
    "broken input": (b'\\"b.txt\\"}', b'\\"b.txt', "tool-input"),
    "same call id": (b'"id":"toolu4"', b'"id":"toolu1"', "tool-id"),
    "wrong delta": (b'"type":"text_delta"', b'"type":"thinking_delta"', "delta"),
    "wrong stop reason": (b'"stop_reason":"tool_use"', b'"stop_reason":"end_turn"', "stop-reason"),
    "chat stop reason": (b'"stop_reason":"tool_use"', b'"stop_reason":"tool_calls"', "stop-reason"),
    "raw line separator": (b"Now the other", "Now\u2028the other".encode(), "one-line"),
    "blank text": (b"Now the other file.", b" ", "blank-text"),
    "no end": (b'event: message_stop\ndata: {"type":"message_stop"}\n\n', b"", "end"),
    "something after the end": (
        b'{"type":"message_stop"}\n\n',
        b'{"type":"message_stop"}\n\nevent: ping\ndata: {"type":"ping"}\n\n',
        "end",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_named(name: str) -> None:
    old, new, rule = MUTATIONS[name]
    assert old in GOOD
    assert problems([GOOD], model=MODEL) == []
    assert rule in rules(problems([GOOD.replace(old, new)], model=MODEL))


def test_an_error_event_after_content_is_named() -> None:
    error = frame({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    cut = GOOD[: GOOD.index(b"event: message_delta")] + error
    assert rules(problems([cut])) == {"error", "end"}


def test_the_checker_runs_on_a_file(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.sse", tmp_path / "bad.sse"
    good.write_bytes(GOOD)
    bad.write_bytes(b"".join(another_servers_transcript()))
    script = [sys.executable, conformance.__file__]
    assert subprocess.run([*script, str(good), "--model", MODEL], capture_output=True, check=False).returncode == 0
    ran = subprocess.run([*script, str(bad)], capture_output=True, check=False, text=True)
    assert ran.returncode == 1
    assert "no-done" in ran.stdout
