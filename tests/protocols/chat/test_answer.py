"""Laws of the two encoders: any turn, cut in any way, gives valid chunks that join to what the whole answer says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from turnwire.protocols.chat import DocumentEncoder, Echo, SharedAnswer, StreamEncoder
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    Note,
    SealCarried,
    TokensScored,
    ToolCallClosed,
    Usage,
)

FACTS = TurnFacts(turn_id="t1", model="house/model", created=1_790_000_000)
LOUD = TurnFacts(turn_id="t1", model="house/model", created=1_790_000_000, dispatch=True)
END: list[Event] = [Usage(100, 40, 70, 30), Finished("tool_calls")]
_PIECES = st.lists(
    st.text(max_size=6) | st.sampled_from(["", " ", "\n\n", '"', "\\", "é😀", "\u2028", "\x85", "data: [DONE]"]),
    max_size=4,
)
_BLOCKS = st.lists(st.tuples(st.sampled_from(["text", "reasoning", "tool_call"]), _PIECES), max_size=6)


def turn(blocks: Iterable[tuple[str, list[str]]]) -> list[Event]:
    events: list[Event] = []
    for index, (kind, pieces) in enumerate(blocks):
        if kind == "tool_call":
            whole = json.dumps({"a": "".join(pieces)}, ensure_ascii=False)
            events += [
                BlockOpened(index, "tool_call", "look", f"c{index}"),
                BlockDelta(index, whole[:3]),
                BlockDelta(index, whole[3:]),
                ToolCallClosed(index, "look", whole, f"c{index}"),
            ]
        else:
            events.append(BlockOpened(index, kind))  # type: ignore[arg-type]
            events += [BlockDelta(index, piece) for piece in pieces]
            events.append(BlockClosed(index, kind, f"seal{index}" if kind == "reasoning" else ""))  # type: ignore[arg-type]
    return [*events, SealCarried(-1, "tail"), Note("some.note", "for the log"), *END]


def streamed(batches: Sequence[Sequence[Event]], echo: Echo | None = None, facts: TurnFacts = FACTS) -> bytes:
    encoder = StreamEncoder(facts, echo)
    return encoder.start(Usage(100, 40)) + b"".join(encoder.feed(batch) for batch in batches)


def frames(data: bytes) -> list[tuple[str, Any]]:
    """Events as the strictest line splitter sees them: name and data."""
    found = []
    for frame in data.decode().split("\n\n")[:-1]:
        lines = frame.splitlines()
        fields = dict(line.split(": ", 1) for line in lines)
        assert len(fields) == len(lines) <= 2
        text = fields["data"]
        found.append((fields.get("event", ""), text if text == "[DONE]" else json.loads(text)))
    return found


def assembled(found: list[tuple[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "reasoning_details": [], "tool_calls": []}
    for name, data in found:
        if name or data == "[DONE]":
            continue
        ChatCompletionChunk.model_validate(data, strict=True)
        for choice in data["choices"]:
            delta = choice["delta"]
            for key in ("content", "reasoning_content"):
                message[key] += delta.get(key, "")
            message["reasoning_details"] += delta.get("reasoning_details", [])
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({**call, "function": dict(call["function"])})
                else:
                    message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    for call in message["tool_calls"]:
        del call["index"]
    return {key: value for key, value in message.items() if value}


def document(events: Sequence[Event], echo: Echo | None = None) -> dict[str, Any]:
    encoder = DocumentEncoder(FACTS, echo)
    assert encoder.start(Usage(100)) == b""
    whole = json.loads(encoder.feed(events))
    ChatCompletion.model_validate(whole, strict=True)
    return whole


@settings(max_examples=150, deadline=None)
@given(_BLOCKS, st.lists(st.integers(0, 40), max_size=6), st.sampled_from(["off", "event", "delta"]))
def test_any_turn_in_any_cut_says_what_the_whole_answer_says(
    blocks: list[tuple[str, list[str]]], cuts: list[int], dispatch: str
) -> None:
    events = turn(blocks)
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    echo = Echo(dispatch="delta" if dispatch == "delta" else "event")
    found = frames(streamed([events[a:b] for a, b in pairwise(edges)], echo, FACTS if dispatch == "off" else LOUD))
    message = document(events)["choices"][0]["message"]
    expected = {key: value for key, value in message.items() if value and key not in ("role", "refusal")}
    assert assembled(found) == expected
    assert found[-1] == ("", "[DONE]")
    assert all(data == "[DONE]" or name or data["choices"] for name, data in found)
    if dispatch != "event":
        assert all(not name for name, _ in found)
    calls = [event for event in events if isinstance(event, ToolCallClosed)]
    heard = [data["tool_call"]["id"] for name, data in found if name == "tool_call_dispatch"]
    assert heard == ([call.call_id for call in calls] if dispatch == "event" else [])


def test_thoughts_and_prose_that_were_apart_stay_apart() -> None:
    events = turn([("reasoning", ["One", "."]), ("text", ["A."]), ("reasoning", ["Two."]), ("text", ["B."])])
    message = document(events)["choices"][0]["message"]
    assert message["reasoning_content"] == "One.\n\nTwo."
    assert message["content"] == "A.\n\nB."
    assert [detail["data"] for detail in message["reasoning_details"]] == ["seal0", "seal2", "tail"]


def test_id_and_name_are_in_the_first_fragment_and_the_index_is_stable() -> None:
    found = frames(streamed([turn([("tool_call", ["x"]), ("text", ["and"]), ("tool_call", ["y"])])]))
    fragments = [call for _, data in found[:-1] for call in data["choices"][0]["delta"].get("tool_calls", ())]
    assert [fragment["index"] for fragment in fragments] == [0, 0, 0, 1, 1, 1]
    assert [(f["id"], f["type"], f["function"]["name"]) for f in fragments if "id" in f] == [
        ("c0", "function", "look"),
        ("c2", "function", "look"),
    ]
    assert [("id" in fragment) for fragment in fragments] == [True, False, False] * 2


def test_a_call_known_only_as_a_whole_is_still_sent_and_dispatched_with_its_arguments() -> None:
    events: list[Event] = [BlockOpened(0, "tool_call", "look", "c0"), ToolCallClosed(0, "look", '{"a":1}', "c0"), *END]
    found = frames(streamed([events], facts=LOUD))
    assert assembled(found)["tool_calls"][0]["function"]["arguments"] == '{"a":1}'
    (dispatched,) = [data for name, data in found if name == "tool_call_dispatch"]
    assert dispatched == {
        "choice_index": 0,
        "tool_call": {
            "index": 0,
            "id": "c0",
            "type": "function",
            "function": {"name": "look", "arguments": '{"a":1}'},
        },
    }


def test_a_malformed_call_is_not_dispatched() -> None:
    events: list[Event] = [
        BlockOpened(0, "tool_call", "look", "c0"),
        BlockDelta(0, '{"a":'),
        ToolCallClosed(0, "look", '{"a":', "c0", True),
        *END,
    ]
    assert all(not name for name, _ in frames(streamed([events], facts=LOUD)))


def test_reasoning_is_dispatched_when_each_thought_ends() -> None:
    events = turn([("reasoning", ["One", "."]), ("tool_call", ["x"]), ("reasoning", ["Two."])])
    names = [(name, data) for name, data in frames(streamed([events], facts=LOUD)) if name]
    assert names[0] == ("reasoning_dispatch", {"index": 0, "reasoning_content": "One."})
    assert names[1][0] == "tool_call_dispatch"
    assert names[2] == ("reasoning_dispatch", {"index": 0, "reasoning_content": "Two."})


def test_usage_and_scores() -> None:
    scored = TokensScored((("Hi", -0.5, (("Hi", -0.5), ("Ho", -1.0))),))
    events: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, "Hi"), scored, BlockClosed(0, "text"), *END]
    whole = document(events, Echo(logprobs=2))
    assert whole["usage"] == {
        "prompt_tokens": 100,
        "completion_tokens": 70,
        "total_tokens": 170,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    assert whole["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1]["token"] == "Ho"
    found = frames(streamed([events], Echo(logprobs=True, usage=True)))
    assert found[-2][1]["usage"] == whole["usage"]
    scores = [s for _, d in found[:-2] if (s := d["choices"][0].get("logprobs"))]
    assert [entry["token"] for score in scores for entry in score["content"]] == ["Hi"]
    assert document(events)["choices"][0]["logprobs"] is None


def test_choices_share_one_end_and_count_the_prompt_once() -> None:
    shared = SharedAnswer(2)
    encoders = [StreamEncoder(FACTS, Echo(choices=2, usage=True), choice=c, shared=shared) for c in range(2)]
    data = b"".join(encoder.feed([Usage(100, 0, 5), Finished("stop")]) for encoder in encoders)
    found = frames(data)
    assert [entry for _, entry in found].count("[DONE]") == 1
    assert found[-2][1]["usage"]["prompt_tokens"] == 100
    assert found[-2][1]["usage"]["completion_tokens"] == 10


@pytest.mark.parametrize(
    ("reason", "word"),
    [("stop", "stop"), ("stop_sequence", "stop"), ("length", "length"), ("tool_calls", "tool_calls")],
)
def test_how_a_turn_ends(reason: Any, word: str) -> None:
    assert document([Usage(1), Finished(reason)])["choices"][0]["finish_reason"] == word


def test_a_turn_that_dies_says_so_and_is_never_done() -> None:
    encoder = StreamEncoder(FACTS)
    data = encoder.start(Usage(1)) + encoder.fail(TurnFailure("engine_failed", "gone\u2028away"))
    assert b"[DONE]" not in data
    assert frames(data)[-1][1]["error"]["message"] == "gone\u2028away"
    assert encoder.keepalive() == b": keep-alive\n\n"


def test_log_probabilities_come_with_the_text_they_belong_to() -> None:
    scored = [TokensScored(((word, -0.5, ((word, -0.5), ("Ho", -1.0))),)) for word in ("Hi", " there", "!")]
    batches: list[list[Event]] = [
        [BlockOpened(0, "text"), BlockDelta(0, "Hi"), scored[0]],
        [scored[1]],
        [BlockDelta(0, " there"), scored[2]],
        [BlockDelta(0, "!"), BlockClosed(0, "text"), *END],
    ]
    chunks = choices(streamed(batches, Echo(logprobs=0)))
    carried = [
        (choice["delta"].get("content"), [token["token"] for token in choice["logprobs"]["content"]])
        for choice in chunks
        if choice.get("logprobs")
    ]
    assert carried == [("Hi", ["Hi"]), (" there", [" there", "!"])]
    scores = [choice["logprobs"]["content"] for choice in chunks if choice.get("logprobs")]
    assert [token["top_logprobs"] for tokens in scores for token in tokens] == [[], [], []]


def test_log_probabilities_that_no_text_followed_come_with_the_end() -> None:
    scored = TokensScored((("<eos>", -0.5, ()),))
    said: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, "Hi"), BlockClosed(0, "text")]
    ended = choices(streamed([said, [scored, *END]], Echo(logprobs=0)))
    last = next(choice for choice in ended if choice["finish_reason"])
    assert [token["token"] for token in last["logprobs"]["content"]] == ["<eos>"]


def choices(data: bytes) -> list[dict[str, Any]]:
    """The choices of all chunks of a stream."""
    chunks = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
    return [choice for chunk in chunks for choice in chunk["choices"]]


def test_a_stop_string_that_ended_a_choice_is_named() -> None:
    said: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, "Hi"), BlockClosed(0, "text"), Usage(1)]
    stopped = [*said, Finished("stop_sequence", "END")]
    for choice in (document(stopped)["choices"][0], choices(streamed([stopped]))[-1]):
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")
    assert "stop_reason" not in document([*said, Finished("stop")])["choices"][0]


def test_answers_of_one_model_and_version_share_a_fingerprint() -> None:
    whole = document([*END])
    first = json.loads(streamed([END]).decode().split("\n")[0].removeprefix("data: "))
    assert whole["system_fingerprint"] == first["system_fingerprint"]
    assert whole["system_fingerprint"].startswith("fp_")
