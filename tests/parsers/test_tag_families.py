"""MiniMax M3's nested tags, Step-3, MiniCPM5, dots, xLAM and Sarashina. Every case in every cut."""
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest
from running import Turn, cut, events_of, parse
from test_cases import EDIT, LS, TOOLS, codes, told

from turnwire.parsers import Start, resolve, start_state
from turnwire.turns import BlockDelta, Tool

MARK = "]<]minimax[>["


def m3(text: str) -> str:
    """M3's markup, with `#` for its mark."""
    return text.replace("#", MARK)


def invoke(body: str, name: str = "edit") -> str:
    return m3(f'#<tool_call>\n#<invoke name="{name}">{body}#</invoke>\n#</tool_call>')


def read(name: str, text: str, start: str = "content", reason: str = "stop") -> Turn:
    return parse(resolve(name), text, TOOLS, Start(start), reason)


# ------------------------------------------------------------------------------------------------------ MiniMax M3

DEEP = Tool(
    name="deep",
    schema={
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
            "box": {"type": "object", "properties": {"item": {"type": "integer"}, "n": {"type": "integer"}}},
            "both": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "object"}]},
            "text": {"oneOf": [{"type": "string"}, {"type": "object"}]},
            "maybe": {"type": ["integer", "null"]},
            "said": {"type": ["string", "null"]},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
        "$defs": {"Row": {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "number"}}}},
    },
)


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("", {}),
        ("#<rows>#<item>#<id>007#</id>#<n>1.5#</n>#</item>#<item>#<id>x#</id>#</item>#</rows>",
         {"rows": [{"id": "007", "n": 1.5}, {"id": "x"}]}),
        ("\n#<rows>\n#<item>\n#<id> a\nb #</id>\n#</item>\n#</rows>\n", {"rows": [{"id": " a\nb "}]}),
        ("#<rows>#</rows>#<box>#</box>#<maybe>#</maybe>#<said>#</said>",
         {"rows": [], "box": {}, "maybe": None, "said": None}),
        ("#<box>#<item>1#</item>#<n>2#</n>#</box>", {"box": {"item": 1, "n": 2}}),
        ("#<both>#<item>1#</item>#</both>", {"both": [1]}),
        ("#<both>#<x>1#</x>#</both>", {"both": {"x": "1"}}),
        ("#<text>#<b>hi#</b>#</text>", {"text": m3("#<b>hi#</b>")}),
        ("#<text>5#</text>", {"text": "5"}),
        ("#<maybe>null#</maybe>#<said>null#</said>", {"maybe": None, "said": None}),
        ("#<maybe>7#</maybe>#<said>nullable#</said>", {"maybe": 7, "said": "nullable"}),
        ("#<map>#<a>true#</a>#<b>false#</b>#</map>", {"map": {"a": True, "b": False}}),
        ("#<map>{\"a\": true}#</map>", {"map": {"a": True}}),
        ("#<free>a < b & \"c\" ]<] #</free>", {"free": 'a < b & "c" ]<] '}),
        ("#<free>#<item>1#</item>#<item>#<x>y#</x>#</item>#</free>", {"free": ["1", {"x": "y"}]}),
        ("#<free>note #<x>y#</x>#</free>", {"free": {"$text": "note", "x": "y"}}),
        ("#<free>#<x>y#</x> note#</free>", {"free": {"x": "y", "$text": "note"}}),
        ("# <free>1# </free>", {"free": "1"}),
    ],
)  # fmt: skip
def test_m3_values(body, arguments):
    turn = parse(resolve("minimax_m3"), invoke(m3(body), "deep"), [DEEP])
    (call,) = turn.blocks
    assert not call.malformed
    assert json.loads(call.text) == arguments
    assert codes(turn) == []


M3 = [
    ("<mm:think>hm</mm:think>ok" + invoke("#<path>a#</path>") + invoke("", "ls"),
     [("reasoning", "hm"), ("text", "ok"), EDIT, LS], []),
    (m3('#<tool_call>#<invoke name="edit">#<path>a#</path>#</invoke>#<invoke name="ls">#</invoke>#</tool_call>'),
     [EDIT, LS], []),
    ("</mm:think>ok", [("text", "ok")], ["reasoning.stray_closer"]),
    (m3('#<invoke name="ls">#</invoke>'), [LS], ["rescue.missing_wrapper"]),
    (m3('#<tool_call>#<invoke name="ls">#</invoke>'), [LS], []),
    (m3('#<tool_call>#<invoke name="edit">#<path>a#</path>'), [EDIT], ["rescue.missing_closer"]),
    (m3('#<tool_call>#<invoke name="edit">#<path>a#</invoke>#</tool_call>'), [EDIT], ["rescue.missing_closer"]),
    (m3('#<tool_call>#<invoke name="edit">#<path>a#</path>#</tool_call>ok'), [EDIT, ("text", "ok")],
     ["rescue.missing_closer"]),
    (invoke("#<path>a#</file>"), [EDIT], ["rescue.wrong_closer"]),
    (invoke("#<path>a#</file> b#</path>"), [("call", "edit", {"path": m3("a#</file> b")})], ["rescue.quoted_closer"]),
    (invoke("#<path>a#<count>3#</count>"), [("call", "edit", {"path": "a", "count": 3})], ["rescue.missing_closer"]),
    (invoke("#<path>a#</path>#<path>b#</path>"), [("call", "edit", {"path": "b"})], ["call.duplicate_argument"]),
    (invoke("noise#<path>a#</path>"), [EDIT], ["call.noise"]),
    (invoke("", "nosuch") + invoke("", "ls"), [("call", "nosuch", {}), LS], ["call.unknown_tool"]),
    (invoke("", "ls") + m3("#</invoke>\n#</tool_call>ok"), [LS, ("text", "ok")], ["rescue.duplicate_closer"] * 2),
    (m3("#<tool_call>#</tool_call>ok"), [("text", "ok")], ["call.unnamed"]),
    ("<mm:think>hm.\n" + invoke("", "ls"), [("reasoning", "hm."), LS], ["rescue.call_in_reasoning"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "blocks", "notes"), M3)
def test_m3_turns(text, blocks, notes):
    turn = read("minimax_m3", m3(text))
    assert told(turn) == blocks
    assert codes(turn) == notes


@pytest.mark.parametrize(
    "text", ["The mark # is a token.", "#<b>bold", "# <tool", "<tool_call>x</tool_call>", "a[1]<2"]
)
def test_m3_prose(text):
    assert told(read("minimax_m3", m3(text))) == [("text", m3(text))]


@pytest.mark.parametrize("body", ["#<path>a", "#<pa", "#<path>a#</pa", "#<options>#<x>1#</x>"])
def test_a_cut_m3_call_is_never_complete(body):
    turn = read("minimax_m3", m3('#<tool_call>#<invoke name="edit">' + body), reason="length")
    assert [b.malformed for b in turn.blocks] == [True]


@pytest.mark.parametrize(
    ("tail", "state"),
    [
        ("]~b]ai\n", "content"),
        ("]~b]ai\n<mm:think>", "reasoning"),
        ("]~b]ai\n</mm:think>", "content"),
        ("]~b]user\nwhat is <mm:think>[e~[\n]~b]ai\n", "content"),
    ],
)
def test_where_an_m3_turn_starts(tail, state):
    assert start_state(tail, resolve("minimax_m3")) == Start(state)


def test_m3_strings_stream_at_any_depth():
    text = invoke(m3("#<rows>#<item>#<id>" + "word " * 400 + "#</id>#</item>#</rows>"), "deep")
    events = events_of(resolve("minimax_m3"), cut(text, 5), [DEEP])
    assert sum(isinstance(event, BlockDelta) for event in events) > 350


# --------------------------------------------------------------------------------------------------- other families


def step3(*calls: str) -> str:
    inner = "".join(f"<｜tool_call_begin｜>function<｜tool_sep｜>{call}<｜tool_call_end｜>" for call in calls)
    return f"<｜tool_calls_begin｜>{inner}<｜tool_calls_end｜>"


STEP_EDIT = '<steptml:invoke name="edit"><steptml:parameter name="path">a</steptml:parameter></steptml:invoke>'
STEP_LS = '<steptml:invoke name="ls"></steptml:invoke>'
CPM_EDIT = '<function name="edit"><param name="path">a</param></function>'

OTHERS = [
    ("step3", step3(STEP_EDIT, STEP_LS) + "ok", [EDIT, LS, ("text", "ok")], []),
    ("step3", step3(STEP_EDIT.replace(">a<", ">a < b</p<")), [("call", "edit", {"path": "a < b</p"})], []),
    ("step3", step3(STEP_EDIT).replace("function<｜tool_sep｜>", ""), [EDIT], []),
    ("step3", "<｜tool_call_begin｜>function<｜tool_sep｜>" + STEP_LS + "<｜tool_call_end｜>", [LS],
     ["rescue.missing_wrapper"]),
    ("step3", "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>" + STEP_EDIT, [EDIT], []),
    ("minicpm5", "Hi\n" + CPM_EDIT + '\n<function name="ls"></function>\nBye', [("text", "Hi"), EDIT, LS, ("text", "Bye")],
     []),
    ("minicpm5", CPM_EDIT.replace(" name", "name"), [EDIT], []),
    ("minicpm5", CPM_EDIT.replace(" name", "Ġname"), [EDIT], []),
    ("minicpm5", CPM_EDIT.replace(">a<", "><![CDATA[ a</param>\n]]><"), [("call", "edit", {"path": " a</param>\n"})], []),
    ("minicpm5", CPM_EDIT.replace(">a<", ">a & b &amp; c<"), [("call", "edit", {"path": "a & b &amp; c"})], []),
    ("minicpm5", "<function name='edit'><param name=\"arguments\">{'path': 'a'}</param></function>", [EDIT],
     ["rescue.unwrapped_arguments"]),
    ("minicpm5", CPM_EDIT.replace("</function>", ""), [EDIT], ["rescue.missing_closer"]),
    ("dots", '<dots_function_call>\n<invoke name="edit">\n<parameter name="path">a</parameter>\n</invoke>\n'
     '<invoke name="ls">\n</invoke>\n</dots_function_call>', [EDIT, LS], []),
    ("dots", '<dots_function_call><invoke name="edit">{"path": "a"}</invoke></dots_function_call>', [EDIT], []),
    ("dots", '<dots_function_call>{"name": "edit", "arguments": {"path": "a"}}</dots_function_call>ok',
     [EDIT, ("text", "ok")], []),
    ("xlam", '[{"name": "edit", "arguments": {"path": "a"}}, {"name": "ls", "arguments": {}}]', [EDIT, LS], []),
    ("xlam", 'Sure.\n```json\n[{"name": "ls", "arguments": {}}]\n```', [("text", "Sure."), LS], []),
    ("xlam", '[TOOL_CALLS][{"name": "ls", "arguments": {}}]', [LS], []),
    ("xlam", '<tool_call>[{"name": "ls", "arguments": {}}]</tool_call>', [LS], []),
    ("xlam", '<think>hm</think>[{"name": "ls", "arguments": {}}]', [("reasoning", "hm"), LS], []),
    ("sarashina", "<|tool_calls|>[{'name': 'edit', 'arguments': {'path': 'a'}}]", [EDIT], ["rescue.python_literal"]),
    ("sarashina", "[{'name': 'ls', 'arguments': {}}]", [LS], []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "blocks", "notes"), OTHERS)
def test_other_families(name, text, blocks, notes):
    turn = read(name, text)
    assert told(turn) == blocks
    assert codes(turn) == notes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("minicpm5", '<function name="nosuch"><param name="x">1</param></function>'),
        ("minicpm5", '<function name="edit"><param name="Path">a</param></function>'),
        ("minicpm5", '<function name="edit"><param>a</param></function>'),
        ("minicpm5", '<function name="edit">is how one writes it.'),
        ("minicpm5", '<function name="edit"'),
        ("minicpm5", "a <functional> tag"),
        ("step3", "<｜tool_call_begin｜> is a token."),
        ("dots", "<dots_function_call>nothing</dots_function_call>"),
        ("xlam", "[1, 2, 3]"),
        ("xlam", '```json\n{"title": "x"}\n```'),
        ("sarashina", "[1, 2, 3]"),
    ],
)
def test_prose_stays_prose(name, text):
    assert told(read(name, text)) == [("text", text)]
