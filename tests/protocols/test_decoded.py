"""A request decoded through a cache is the request decoded without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.fields.decoded import DecodedParts, PartNote, PartReader, RequestNotes
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.fields.table import Field
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound, TurnFailure

Decode = Callable[..., Inbound[Any]]

_text = st.text(max_size=6) | st.sampled_from(["x-anthropic-billing-header: a=b; hi", "<think>t</think>", "\ud83d", ""])
_id = st.sampled_from(["c1", "c2", "c3"])
_name = st.sampled_from(["ls", "rm", "add"])
_odd = st.fixed_dictionaries({"type": st.sampled_from(["server_tool_use", "container_upload", "audio"]), "a": _text})

_anthropic_blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": _text}),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": _text, "signature": _text}),
    st.fixed_dictionaries({"type": st.just("tool_use"), "id": _id, "name": _name, "input": st.just({"a": 1}) | _text}),
    st.fixed_dictionaries({"type": st.just("tool_result"), "tool_use_id": _id, "content": _text}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_removal"),
            "tool": st.fixed_dictionaries({"type": st.just("tool_reference"), "name": _name}),
        }
    ),
    _odd,
)
_anthropic_messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "content": _text | st.lists(_anthropic_blocks, max_size=3),
    },
    optional={"clear_at": st.just("next_user_message"), "output_config": st.just({"effort": "low"}), "odd": _text},
)
_chat_messages = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "assistant", "robot"]), "content": _text}),
    st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(_odd, max_size=2)}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": _text}, optional={"tool_call_id": _id, "name": _name}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": st.none(),
            "reasoning_content": _text,
            "tool_calls": st.lists(
                st.fixed_dictionaries(
                    {"id": _id, "function": st.fixed_dictionaries({"name": _name, "arguments": _text})}
                ),
                max_size=2,
            ),
        }
    ),
)
_items = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "developer", "robot"]), "content": _text}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "summary": st.just([]), "encrypted_content": _text}),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": _id, "name": _name, "arguments": _text | st.just({"a": 1})},
        optional={"namespace": st.sampled_from(["mcp__calc", "fs"])},
    ),
    st.fixed_dictionaries({"type": st.just("custom_tool_call"), "call_id": _id, "name": _name, "input": _text}),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": _id, "output": _text}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_search_output"),
            "call_id": _id,
            "tools": st.lists(st.fixed_dictionaries({"type": st.just("function"), "name": _name}), max_size=2),
        }
    ),
    st.fixed_dictionaries({"type": st.just("item_reference"), "id": _id}),
    _odd,
)
_schema = st.sampled_from([{}, {"type": "object", "properties": {"a": {"type": "number"}}}])


def _tools(schema_key: str) -> st.SearchStrategy[Any]:
    tool = st.fixed_dictionaries(
        {"name": _name, schema_key: _schema}, optional={"type": st.just("web_search_20250305")}
    )
    return st.lists(tool, max_size=3)


_namespace = st.fixed_dictionaries(
    {
        "type": st.just("namespace"),
        "name": st.just("mcp__calc"),
        "tools": st.lists(st.fixed_dictionaries({"type": st.just("function"), "name": _name}), max_size=2),
    }
)
_settings = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["other", 7]),
        "stream": st.booleans(),
        "temperature": st.sampled_from([0.5, 1, 9]),
        "metadata": st.sampled_from([{"user_id": "u_session_s"}, {"a": 1}]),
        "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "any"}, {"type": "tool", "name": "ls"}]),
        "thinking": st.sampled_from([{"type": "enabled", "budget_tokens": 9}, {"type": "disabled"}, {"type": "odd"}]),
        "reasoning": st.sampled_from([{"effort": "low"}, {"effort": "none"}, {"odd": 1}]),
        "output_config": st.sampled_from([{"effort": "high"}, {"effort": "odd"}]),
        "context_management": st.sampled_from([{}, {"edits": [{"type": "odd"}]}]),
        "nvext": st.sampled_from([{"annotations": ["odd"]}, {"odd": 1}, {"greed_sampling": True}]),
        "instructions": _text,
        "n": st.sampled_from([1, 2]),
        "service_tier": st.sampled_from(["flex", "auto"]),
        "prompt_cache_key": st.just("k"),
        "odd": _text | st.none(),
    },
)
APIS: list[tuple[Decode, str, st.SearchStrategy[Any], st.SearchStrategy[Any]]] = [
    (anthropic.decode, "messages", _anthropic_messages, _tools("input_schema")),
    (chat.decode, "messages", _chat_messages, _tools("parameters")),
    (responses.decode, "input", _items, st.lists(_namespace | st.fixed_dictionaries({"name": _name}), max_size=3)),
]


def outcome(decode: Decode, body: Mapping[str, Any], cache: DecodedParts | None) -> Any:
    """Everything that a decode says: the conversation, the notes and the echo, or the refusal."""
    try:
        inbound = decode(json.dumps(body).encode(), {}, cache=cache)
    except TurnFailure as failure:
        return failure.kind, failure.message, failure.param
    echo = inbound.echo
    if isinstance(echo, responses.Echo):
        origins = [(tool.name, echo.toolbox.origin(tool.name)) for tool in echo.toolbox.tools]
        return inbound.conversation, inbound.notes, echo.fields, echo.input_items, origins
    return inbound.conversation, inbound.notes, echo


@pytest.mark.parametrize(("decode", "field", "messages", "tools"), APIS)
@given(data=st.data())
@settings(max_examples=50)
def test_cached_and_uncached_requests_are_equal(
    decode: Decode, field: str, messages: st.SearchStrategy[Any], tools: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """Conversations that grow, fork, change their tools and settings and repeat the same message in other places."""
    cache = DecodedParts()
    wishes = data.draw(st.lists(_settings, min_size=1, max_size=2))
    pool = data.draw(st.lists(messages, min_size=1, max_size=6))
    offers = data.draw(st.lists(tools, min_size=1, max_size=2))
    for _ in range(4):
        body: dict[str, Any] = {"model": "m", field: data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=6))}
        body |= data.draw(st.sampled_from(wishes))
        if data.draw(st.booleans()):
            body["tools"] = data.draw(st.sampled_from(offers))
        if decode is anthropic.decode and data.draw(st.booleans()):
            body["system"] = data.draw(_text)
        assert outcome(decode, body, cache) == outcome(decode, body, None)


@pytest.mark.parametrize(("decode", "field", "messages", "tools"), APIS)
@given(data=st.data())
@settings(max_examples=50)
def test_histories_that_grow_fork_and_are_edited_are_equal(
    decode: Decode, field: str, messages: st.SearchStrategy[Any], tools: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """Conversations so long that their beginnings are known: they go on, go on from an earlier place, change somewhere,
    and offer other tools."""
    cache = DecodedParts()
    pool = [message for message in data.draw(st.lists(messages, min_size=4, max_size=8)) if _decodes(decode, message)]
    pool.append({"role": "user", "content": "Go on."})
    offers = data.draw(st.lists(tools, min_size=1, max_size=2))
    some = st.lists(st.sampled_from(pool), min_size=1, max_size=16)
    history: list[Any] = data.draw(some)
    # A result without its call is refused.
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "ls", "arguments": "{}"} for n in (1, 2, 3)]
    called = calls if decode is responses.decode else []
    for _ in range(8):
        place = data.draw(st.integers(0, len(history)))
        match data.draw(st.sampled_from(["grow", "grow", "fork", "edit"])):
            case "grow":
                history = [*history, *data.draw(some)]
            case "fork":
                history = [*history[:place], *data.draw(some)]
            case "edit":
                history = [*history[:place], data.draw(st.sampled_from(pool)), *history[place + 1 :]]
        body: dict[str, Any] = {"model": "m", field: [*called, *history]}
        if data.draw(st.booleans()):
            body["tools"] = data.draw(st.sampled_from(offers))
        if decode is anthropic.decode and data.draw(st.booleans()):
            body["system"] = data.draw(_text)
        assert outcome(decode, body, cache) == outcome(decode, body, None)


def _decodes(decode: Decode, message: dict[str, Any]) -> bool:
    """Whether a message is not refused by itself, which would end every comparison."""
    field = "input" if decode is responses.decode else "messages"
    refusal = outcome(decode, {"model": "m", field: [message]}, None)
    return not isinstance(refusal[1], str) or "No tool call found" in refusal[1]


@pytest.mark.parametrize(("decode", "field"), [(decode, field) for decode, field, _, _ in APIS])
def test_of_a_long_conversation_what_follows_its_known_beginning_is_looked_at(
    decode: Decode, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DecodedParts()
    looked_at: list[int] = []
    values = PartReader.values

    def counted(reader: Any, raws: Any, place: Any) -> Any:
        looked_at.append(len(raws))
        return values(reader, raws, place)

    monkeypatch.setattr(PartReader, "values", counted)
    said = [{"role": "assistant" if n % 2 else "user", "content": f"{n}"} for n in range(200)]
    sizes = []
    for count in range(101, 200, 2):
        marked = {**said[count - 1], "cache_control": {"type": "ephemeral"}}
        looked_at.clear()
        decode(json.dumps({"model": "m", field: [*said[: count - 1], marked]}).encode(), {}, cache=cache)
        assert count == 101 or max(looked_at) <= 16
        sizes.append(cache.size)
    assert sizes[-1] < 2 * 1024 * (200 + 200)


def test_what_is_stored_is_never_taken_from_an_earlier_request() -> None:
    cache = DecodedParts()
    said: list[dict[str, Any]] = [{"role": "assistant" if n % 2 else "user", "content": f"{n}"} for n in range(30)]
    named = [{"type": "item_reference", "id": "msg_x"}, *said]

    def decoded(body: dict[str, Any], stored: responses.Stored | None, known: DecodedParts | None) -> Any:
        inbound = responses.decode(json.dumps({"model": "m", **body}).encode(), {}, stored=stored, cache=known)
        return inbound.conversation, inbound.notes, inbound.echo.input_items

    for text in ("one", "two", "one"):
        item = {"type": "message", "role": "user", "content": text}
        for stored in (responses.Stored(items={"msg_x": item}), None):
            assert decoded({"input": named}, stored, cache) == decoded({"input": named}, stored, None)
        earlier = responses.Stored(history=(item,))
        for body in ({"input": said, "previous_response_id": "resp_1"}, {"input": said}):
            assert decoded(body, earlier, cache) == decoded(body, earlier, None)


def test_a_beginning_that_another_replaces_is_not_counted_twice() -> None:
    cache = DecodedParts()
    kind = cache.kind("text")
    parts = [msgspec.Raw(b'"%02d"' % number) for number in range(40)]
    cache.grow(kind, None, parts[:20], "twenty")
    known = cache.beginning(kind, parts)
    assert known is not None
    assert known.outcome == "twenty"
    before = cache.size
    cache.grow(kind, known, parts[20:30], "thirty")
    assert len(cache) == 1
    assert cache.size * 2 == before * 3
    other = [msgspec.Raw(b'"other"'), *parts[1:30]]
    cache.grow(kind, None, other, "another that ends alike")
    assert len(cache) == 1
    assert cache.beginning(kind, parts) is None
    found = cache.beginning(kind, [*other, *parts[30:]])
    assert found is not None
    assert found.outcome == "another that ends alike"
    assert cache.beginning(kind, [*other, *parts, *parts]) is None  # so much is new that nobody looks so far back


@pytest.mark.parametrize(("decode", "field"), [(decode, field) for decode, field, _, _ in APIS])
def test_a_message_that_was_seen_is_not_decoded_again(decode: Decode, field: str) -> None:
    cache = DecodedParts()
    first = {"model": "m", field: [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]}
    grown = {"model": "m", field: [*first[field], {"role": "user", "content": "three"}]}
    before = decode(json.dumps(first).encode(), {}, cache=cache).conversation.messages
    known = len(cache)
    after = decode(json.dumps(grown).encode(), {}, cache=cache).conversation.messages
    assert len(cache) == known + 1
    assert after[:2] == before
    assert after[0] is before[0] or decode is responses.decode


@pytest.mark.parametrize(("decode", "field"), [(decode, field) for decode, field, _, _ in APIS])
def test_settings_that_were_seen_are_not_read_again(decode: Decode, field: str) -> None:
    cache = DecodedParts()

    def read(said: str, **settings: Any) -> Inbound[Any]:
        body = {"model": "m", field: [{"role": "user", "content": said}], "temperature": 0.5, "odd": 1, **settings}
        return decode(json.dumps(body).encode(), {}, cache=cache)

    first, second, warmer = read("one"), read("two"), read("three", temperature=0.75)
    assert second.conversation.sampling is first.conversation.sampling
    assert [note.message for note in second.notes] == [note.message for note in first.notes] != []
    assert warmer.conversation.sampling.temperature == 0.75


def test_limits_are_part_of_what_is_known() -> None:
    cache = DecodedParts()
    deep: Any = "x"
    for _ in range(20):
        deep = {"a": deep}
    body = json.dumps(
        {
            "model": "m",
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": deep}]}
            ],
        }
    ).encode()
    anthropic.decode(body, {}, cache=cache)
    with pytest.raises(TurnFailure) as caught:
        anthropic.decode(body, {}, cache=cache, limits=Limits(depth=5))
    assert caught.value.param == "messages.0.content.0.input"


def test_the_cache_is_bounded_and_drops_the_longest_unused() -> None:
    cache = DecodedParts(max_bytes=20_000)
    kind = cache.kind("text")
    for number in range(100):
        cache.put(kind, b"%d" % number * 100, number + 1)
        assert cache.get(kind, [b"0" * 100]) == [1]
        assert cache.size <= 20_000
    assert 5 < len(cache) < 20
    assert cache.get(kind, [b"99" * 100, b"50" * 100]) == [100, None]


def test_a_part_that_would_fill_the_cache_is_not_kept() -> None:
    cache = DecodedParts(max_bytes=20_000)
    cache.put(cache.kind("text"), b"x" * 10_000, 1)
    assert len(cache) == 0


def test_a_part_reports_its_failures_at_its_place() -> None:
    def refuse(data: bytes) -> int:
        raise TurnFailure("invalid_request", ".a: must be b", param=".a", code="c")

    with pytest.raises(TurnFailure) as caught:
        PartReader(DecodedParts(), refuse, "kind").value(b"{}", "messages.3")
    failure = caught.value
    assert (failure.message, failure.param, failure.code) == ("messages.3.a: must be b", "messages.3.a", "c")


def test_of_each_kind_of_note_the_first_is_told() -> None:
    notes = RequestNotes()
    for place in range(3):
        notes.on_part(f"m.{place}", (PartNote("a.b", ".x", "odd", "s"), PartNote("a.b", ".y", "odd", "t")))
    assert [note.message for note in notes.all()] == ["m.0.x: odd", "m.0.y: odd"]


def test_notes_on_a_part_come_with_that_part_alone() -> None:
    table = {
        "part": Field("noted", "nobody reads it"),
        "part.a": Field("noted", "nor this"),
        "set": Field("noted", "x"),
    }
    cache = DecodedParts()

    def notes(body: dict[str, Any], known: DecodedParts | None) -> list[str]:
        fields = Fields(json.dumps(body).encode(), table, Limits())
        assert fields.settings(known, "test", {"part"}, lambda: 1) == 1
        return [note.message for note in fields.notes.all()]

    bodies: list[dict[str, Any]] = [
        {"part": {"a": 1}, "set": 2},
        {"set": 2},
        {"part": {}, "set": 2},
        {"part": {"b": 1}},
    ]
    for body in [*bodies, *reversed(bodies)]:
        assert notes(body, cache) == notes(body, None)
