"""Gemma's notation: its own quotes, bare values typed by the schema, thoughts with a label. Every case in every cut."""

from __future__ import annotations

import json

import pytest
from running import Turn, cut, events_of, parse
from test_cases import EDIT, LS, TOOLS, codes, told

from turnwire.parsers import Start, resolve, start_state
from turnwire.turns import BlockDelta, Tool


def read(text: str, start: str = "content", reason: str = "stop", name: str = "gemma4") -> Turn:
    return parse(resolve(name), text, TOOLS, Start(start), reason)


def call(body: str) -> str:
    return f"<|tool_call>call:edit{{{body}}}<tool_call|>"


def q(text: str) -> str:
    return f'<|"|>{text}<|"|>'


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("", {}),
        (f"path:{q('a')}", {"path": "a"}),
        (f"path:{q('')}", {"path": ""}),
        (f"path:{q(' true ')}", {"path": " true "}),
        (f"path:{q('a{b},c:[d]<tool_call|>')}", {"path": "a{b},c:[d]<tool_call|>"}),
        (f"path:{q('line' + chr(10) + 'x' + chr(9) + chr(34))}", {"path": 'line\nx\t"'}),
        (f"path:{q('a')},count:12", {"path": "a", "count": 12}),
        ("ratio:108.25,deep:false", {"ratio": 108.25, "deep": False}),
        ("count:-1,limit:null", {"count": -1, "limit": None}),
        ("deep:True,note:None", {"deep": True, "note": None}),
        ("count:99999999999999999999", {"count": 99999999999999999999}),
        ("unheard:5,other:word,yes:true", {"unheard": 5, "other": "word", "yes": True}),
        ("path:42", {"path": "42"}),
        ("path:New York, NY", {"path": "New York, NY"}),
        ("path:New York, NY,count:3", {"path": "New York, NY", "count": 3}),
        ('path:"quoted \\"x\\"",count:1', {"path": 'quoted "x"', "count": 1}),
        (f"{q('path')}:{q('a')}", {"path": "a"}),
        (f'"path":{q("a")}', {"path": "a"}),
        (f" path : {q('a')} ,\n count : 3 ", {"path": "a", "count": 3}),
        (f"items:[{q('a')},{q('b,c')}]", {"items": ["a", "b,c"]}),
        ("items:[]", {"items": []}),
        ("items:[1,2]", {"items": ["1", "2"]}),
        ("unheard:[1, 2, {a:[true]}]", {"unheard": [1, 2, {"a": [True]}]}),
        (f"options:{{x:1,y:{{z:{q('w')}}}}}", {"options": {"x": 1, "y": {"z": "w"}}}),
        ("options:{}", {"options": {}}),
        ("mode:none", {"mode": "none"}),
        ("either:5", {"either": 5}),
    ],
)
def test_values(body, arguments):
    assert told(read(call(body))) == [("call", "edit", arguments)]


def test_quoted_text_of_functiongemma_follows_the_schema():
    text = "<start_function_call>call:edit{path:<escape>007<escape>,count:<escape>3<escape>,note:<escape>5<escape>}"
    turn = read(text + "<end_function_call>", name="functiongemma")
    assert told(turn) == [("call", "edit", {"path": "007", "count": 3, "note": "5"})]


def test_nested_values_follow_nested_schemas():
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}}},
        "$defs": {"Row": {"anyOf": [{"properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}]}},
    }
    text = "<|tool_call>call:put{rows:[{id:007,n:007,m:1}]}<tool_call|>"
    turn = parse(resolve("gemma4"), text, [Tool(name="put", schema=schema)])
    assert json.loads(turn.blocks[0].text) == {"rows": [{"id": "007", "n": 7, "m": 1}]}


TURNS = [
    (call(f"path:{q('a')}") + "<|tool_call>call:ls{}<tool_call|>ok<turn|>", [EDIT, LS, ("text", "ok")], []),
    ("<|channel>thought\nhm<channel|>ok", [("reasoning", "hm"), ("text", "ok")], []),
    ("<|channel>hm<channel|>ok", [("reasoning", "hm"), ("text", "ok")], []),
    ("<|channel>thoughtful<channel|>ok", [("reasoning", "thoughtful"), ("text", "ok")], []),
    ("<|channel>thought<channel|>ok", [("text", "ok")], []),
    ("<|channel>thought", [], []),
    ("<|channel><|channel>thought\nhm<channel|>", [("reasoning", "hm")], []),
    ("a<|channel>thought\nb<channel|>c<|channel>thought\nd<channel|>",
     [("text", "a"), ("reasoning", "b"), ("text", "c"), ("reasoning", "d")], []),
    ("thought\nhm<channel|>ok", [("reasoning", "hm"), ("text", "ok")], ["rescue.header"]),
    ("ok<channel|>", [("text", "ok")], ["reasoning.stray_closer"]),
    ("<|channel>thought\nhm.<|tool_call>call:ls{}<tool_call|>", [("reasoning", "hm."), LS],
     ["rescue.call_in_reasoning"]),
    ("<|tool_call>call:ls{}", [LS], []),
    ("<|tool_call>call:ls<tool_call|>", [LS], []),
    ("<|tool_call>ls{}<tool_call|>", [LS], []),
    ("<|tool_call>call:ls{}</tool_call>ok", [LS, ("text", "ok")], ["rescue.wrong_closer"]),
    ("<|tool_call>call:ls{}}<tool_call|>", [LS], ["rescue.duplicate_closer"]),
    ("<|tool_call>call:ls{}ok", [LS, ("text", "ok")], ["rescue.missing_closer"]),
    (f"<|tool_call>call:edit{{path:{q('a')}<tool_call|>ok", [EDIT, ("text", "ok")], ["rescue.missing_closer"]),
    (f"<|tool_call>call:edit{{path:a{q(',count:3')[:5]},count:3}}<tool_call|>",
     [("call", "edit", {"path": "a", "count": 3})], ["call.noise"]),
    (call(f"path:{q('a')},path:{q('b')}"), [("call", "edit", {"path": "b"})], ["call.duplicate_argument"]),
    ("<|tool_call>call:nosuch{a:1}<tool_call|><|tool_call>call:ls{}<tool_call|>",
     [("call", "nosuch", {"a": 1}), LS], ["call.unknown_tool"]),
    ("<|tool_call><tool_call|>ok", [("text", "ok")], ["call.unnamed"]),
    ("<|tool_call>{a:1}<tool_call|>ok", [("text", "ok")], ["call.unnamed"]),
    ("<|tool_call>call:ls{}call:ls{}<tool_call|>", [LS, LS], []),
    ("ok\ncall:ls{}<tool_call|>", [("text", "ok"), LS], ["rescue.missing_wrapper"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "blocks", "notes"), TURNS)
def test_turns(text, blocks, notes):
    turn = read(text)
    assert told(turn) == blocks
    assert codes(turn) == notes


@pytest.mark.parametrize(
    "text",
    [
        "call: me later",
        "call:nosuch{a:1}",
        "Just call:ls{} inline.",
        "thoughts",
        "The token <|tool_call> opens.",
        "<|ch",
    ],
)
def test_prose_stays_prose(text):
    assert told(read(text)) == [("text", text)]


@pytest.mark.parametrize("body", ['path:<|"|>a', "path:<|", "path:", "pa", "", 'path:<|"|>a<|"|>', "options:{x:1"])
def test_a_cut_call_is_never_complete(body):
    turn = read("<|tool_call>call:edit{" + body, reason="length")
    assert [b.malformed for b in turn.blocks] == [True]
    assert turn.reason == "length"


@pytest.mark.parametrize(
    ("tail", "state"),
    [
        ("<|turn>model\n", "content"),
        ("<|turn>model\n<|channel>thought\n<channel|>", "content"),
        ("<|turn>model\n<|channel>thought\n", "reasoning"),
        ("<|turn>model\n<|tool_response>x<|channel>y<tool_response|>", "content"),
        ("<|turn>model\n<|tool_response>x<tool_response|><|channel>thought\n", "reasoning"),
    ],
)
def test_the_prompt_tail_says_where_the_turn_starts(tail, state):
    assert start_state(tail, resolve("gemma4")) == Start(state)


def test_a_turn_that_starts_in_the_thought_has_its_label_taken_off():
    assert told(read("thought\nhm<channel|>ok", "reasoning")) == [("reasoning", "hm"), ("text", "ok")]


@pytest.mark.parametrize("name", ["gemma4", "functiongemma"])
def test_a_string_streams(name):
    text = call("path:" + q("word " * 400))
    if name == "functiongemma":
        text = "<start_function_call>call:edit{path:<escape>" + "word " * 400 + "<escape>}<end_function_call>"
    events = events_of(resolve(name), cut(text, 5), TOOLS)
    assert sum(isinstance(event, BlockDelta) for event in events) > 350
