"""Calls written as Python: literals, quotes inside quotes, lists with and without wrapper. Every case in every cut."""
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest
from running import Turn, cut, events_of, parse
from test_cases import EDIT, LS, TOOLS, codes, told

from turnwire.parsers import Start, resolve
from turnwire.turns import BlockDelta


def read(name: str, text: str, start: str = "content", reason: str = "stop") -> Turn:
    return parse(resolve(name), text, TOOLS, Start(start), reason)


def value(literal: str) -> object:
    """What a literal becomes as an argument."""
    turn = read("pythonic", f"[edit(x={literal})]")
    (call,) = turn.blocks
    assert not call.malformed, call
    return json.loads(call.text)["x"]


@pytest.mark.parametrize(
    ("literal", "meant"),
    [
        ("'a'", "a"),
        ('"a"', "a"),
        ("''", ""),
        ("'''a 'b' \"c\"'''", "a 'b' \"c\""),
        ('"""two\nlines"""', "two\nlines"),
        (r"'a\'b'", "a'b"),
        (r'"a\"b"', 'a"b'),
        (r"'\n\t\\\x41\u00e9\101\0'", "\n\t\\A\u00e9A\0"),
        (r"'\U0001F642'", "🙂"),
        (r"'\ud83d\ude42'", "🙂"),
        (r"'\d+\.py \x4'", r"\d+\.py \x4"),
        ("'a\\\nb'", "ab"),
        (r"r'\d\n'", r"\d\n"),
        ("f'no {holes} filled'", "no {holes} filled"),
        ("b'raw'", "raw"),
        ("'raw\nnewline\tand tab'", "raw\nnewline\tand tab"),
        ("'it's mine'", "it's mine"),
        ('"say "hi" twice"', 'say "hi" twice'),
        ("'echo 'a', 'b''", "echo 'a', 'b'"),
        ("'print(x['k'])'", "print(x['k'])"),
        ("'a]b)c}d,e=f(g='", "a]b)c}d,e=f(g="),
        ("'日本 \\'x\\''", "日本 'x'"),
        ("True", True),
        ("false", False),
        ("None", None),
        ("null", None),
        ("0", 0),
        ("-7", -7),
        ("007", 7),
        ("1_000", 1000),
        ("0x1F", 31),
        ("108.25", 108.25),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e5", 1e5),
        ("99999999999999999999999", 99999999999999999999999),
        ("[]", []),
        ("{}", {}),
        ("()", []),
        ("(1)", 1),
        ("(1,)", [1]),
        ("(1, 'a')", [1, "a"]),
        ("{1, 2}", [1, 2]),
        ("{'one'}", ["one"]),
        ("[1, 2,]", [1, 2]),
        ("{'a': 1, 'b': [True, None],}", {"a": 1, "b": [True, None]}),
        ("{1: 'a', True: 'b', x: 'c'}", {"1": "a", "true": "b", "x": "c"}),
        ("{'a': {'b': ({1}, [(2, 3)])}}", {"a": {"b": [[1], [[2, 3]]]}}),
        ("['it's', \"b\"]", ["it's", "b"]),
        ("{'k': 'it's'}", {"k": "it's"}),
        ("[1, 2", [1, 2]),
    ],
)
def test_literals(literal, meant):
    assert value(literal) == meant


@pytest.mark.parametrize("literal", ["name", "1 + 2", "f(1)", "", "a.b", "x if y", "'a' + 'b'", "nan", "}"])
def test_what_is_no_literal_is_never_evaluated(literal):
    turn = read("lfm2", f"<|tool_call_start|>[edit(path='a', x={literal})]<|tool_call_end|>ok")
    call, text = turn.blocks[0], turn.blocks[-1]
    assert call.kind == "tool_call"
    assert call.malformed or json.loads(call.text)["x"] == "a' + 'b"
    assert text.text == "ok"


CASES = [
    ("pythonic", '[edit(path="a"), ls()]', [EDIT, LS]),
    ("pythonic", 'Sure: [edit(path="a")] done', [("text", "Sure:"), EDIT, ("text", " done")]),
    ("pythonic", "[ls()]\n[ls()]", [LS, LS]),
    ("pythonic", "[ ls( ) ]", [LS]),
    ("pythonic", '[web-search.v2(q="x")]', [("call", "web-search.v2", {"q": "x"})]),
    ("pythonic", '[nosuch(from="x", class=1)]', [("call", "nosuch", {"from": "x", "class": 1})]),
    ("pythonic", '[edit(\n    path = "a" ,\n)]', [EDIT]),
    ("pythonic", '[edit({"path": "a"})]', [EDIT]),
    ("pythonic", '<|python_tag|>web-search.v2.call(q="x")<|eom_id|>', [("call", "web-search.v2", {"q": "x"})]),
    ("llama4", '<|python_start|>[edit(path="a"), ls()]<|python_end|>', [EDIT, LS]),
    ("llama4", '<|python_start|>edit(path="a")<|python_end|>ok', [EDIT, ("text", "ok")]),
    ("olmo3", "<function_calls>edit(path='a')\nls()</function_calls>", [EDIT, LS]),
    ("olmo3", '<function_calls>\nedit(path="x", deep=true, note=null)\n</function_calls>',
     [("call", "edit", {"path": "x", "deep": True, "note": None})]),
    ("lfm2", "<|tool_call_start|>[edit(path='a'), ls()]<|tool_call_end|>ok<|im_end|>", [EDIT, LS, ("text", "ok")]),
    ("lfm2", "<|tool_call_start|>[edit(path='a')][ls()]<|tool_call_end|>", [EDIT, LS]),
    ("lfm2", '<|tool_call_start|>[{"name": "edit", "arguments": {"path": "a"}}]<|tool_call_end|>', [EDIT]),
    ("lfm2", '<|tool_call_start|> {"name": "ls", "arguments": {}}<|tool_call_end|>', [LS]),
    ("lfm2.5", "<think>hm</think><|tool_call_start|>[ls()]<|tool_call_end|>", [("reasoning", "hm"), LS]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "blocks"), CASES)
def test_calls(name, text, blocks):
    assert told(read(name, text)) == blocks


RESCUES = [
    ("lfm2", "<|tool_call_start|>[ls()]<|tool_call_end|>[ls()]<|tool_call_end|>ok", [LS, ("text", "ok")], ["call.echo"]),
    ("lfm2", "<|tool_call_start|>[ls()]<|tool_call_end|>\n[ls()]", [LS], ["call.echo"]),
    ("lfm2", "<|tool_call_start|>[ls()]<|tool_call_end|>[ls(", [LS, ("text", "[ls(")], []),
    ("lfm2", "<|tool_call_start|>[]<|tool_call_end|>ok", [("text", "ok")], ["call.unnamed"]),
    ("lfm2", "<|tool_call_start|>[ls()<|tool_call_end|>", [LS], ["rescue.missing_closer"]),
    ("lfm2", "<|tool_call_start|>[edit(path='a'<|tool_call_end|>", [EDIT], ["rescue.missing_closer"] * 2),
    ("lfm2", "<|tool_call_start|>[ls()]ok", [LS, ("text", "ok")], ["rescue.missing_closer"]),
    ("pythonic", "[edit(path='it's')]", [("call", "edit", {"path": "it's"})], ["rescue.quoted_closer"]),
    ("pythonic", "[edit(path='a'), ls()", [EDIT, LS], []),
    ("pythonic", '[edit(path="a"]', [EDIT], ["rescue.missing_closer"]),
    ("pythonic", "[nosuch()]", [("call", "nosuch", {})], ["call.unknown_tool"]),
    ("pythonic", "[ls(), edit('a')]", [LS, ("call", "edit", '{"a"}')], ["call.malformed"]),
    ("olmo3", "<function_calls>ls()</function_calls></function_calls>ok",
     [LS, ("text", "ok")], ["rescue.duplicate_closer"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "blocks", "notes"), RESCUES)
def test_rescues(name, text, blocks, notes):
    turn = read(name, text)
    assert told(turn) == blocks
    assert codes(turn) == notes


@pytest.mark.parametrize(
    "text",
    [
        "[not a call]",
        "[1, 2, 3]",
        "[ls]",
        "[x.y]",
        "ls()]",
        "For f, see [f(x)] and [g(x=1)] in the text.",
        "Like [nosuch(a=1)] here.",
        "`[ls()]` lists files.",
        "```python\n[nosuch(a=1)]\n```",
        "[A(A=\t)A(A=,\t\t)A(A=,\t",
        "[edit(path=x)]",
        "<|python_start|> is a token.",
        "array[ls",
    ],
)
def test_prose_stays_prose(text):
    assert told(read("pythonic", text)) == [("text", text)]


def test_a_bare_list_in_a_thought_is_no_call():
    dialect = resolve("pythonic", "deepseek_r1")
    turn = parse(dialect, "I could do [ls()] now.</think>[ls()]", TOOLS, Start("reasoning"))
    assert told(turn) == [("reasoning", "I could do [ls()] now."), LS]


@pytest.mark.parametrize("text", ["[edit(path='a", "[edit(path='a'", "[ls(), edit(path='a', cou", "[edit(path=[1,"])
def test_a_cut_call_is_never_complete(text):
    turn = read("pythonic", text, reason="length")
    assert turn.reason == "length"
    assert not [b for b in turn.of("tool_call") if b.name == "edit" and not b.malformed]
    assert "path" not in turn.text("text")


def test_a_string_streams():
    text = "[edit(path='" + "word " * 400 + "')]"
    events = events_of(resolve("pythonic"), cut(text, 5), TOOLS)
    assert sum(isinstance(event, BlockDelta) for event in events) > 350


def test_depth_is_no_danger():
    text = "[edit(x=" + "[(" * 20000 + "1" + ")]" * 20000 + ")]"
    turn = parse(resolve("pythonic"), text[:3000], TOOLS)
    assert turn.blocks[0].malformed
    (whole,) = [e for e in events_of(resolve("pythonic"), [text], TOOLS) if type(e).__name__ == "ToolCallClosed"]
    assert whole.malformed
