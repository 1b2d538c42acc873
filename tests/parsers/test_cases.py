"""What each family's output means, case by case: plain, odd, broken. Every case runs in every cut."""
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest
from running import Turn, parse

from turnwire.parsers import Start, resolve
from turnwire.turns import Tool

TOOLS = [
    Tool(
        name="edit",
        schema={
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "deep": {"type": "boolean"},
                "items": {"type": "array", "items": {"type": "string"}},
                "options": {"$ref": "#/$defs/Options"},
                "mode": {"enum": ["none", "auto"]},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "either": {"type": ["integer", "string"]},
                "limit": {"type": "integer", "nullable": True},
            },
            "required": ["path"],
            "$defs": {"Options": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        },
    ),
    Tool(name="ls", schema={"type": "object", "properties": {}}),
    Tool(name="web-search.v2", schema={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}),
]


def told(turn: Turn) -> list[tuple]:
    """The turn as tuples: (kind, text) or ("call", name, arguments); a malformed call's arguments stay text."""
    return [
        (b.kind, b.text) if b.kind != "tool_call" else ("call", b.name, b.text if b.malformed else json.loads(b.text))
        for b in turn.blocks
    ]


def codes(turn: Turn) -> list[str]:
    return [note.partition(":")[2] for note in turn.notes]


def read(name: str, text: str, start: str = "content", reason: str = "stop") -> Turn:
    return parse(resolve(name), text, TOOLS, Start(start), reason)


def envelope(name: str = "edit", **arguments) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


EDIT = ("call", "edit", {"path": "a"})
LS = ("call", "ls", {})

# ------------------------------------------------------------------------------------------------------ families

FAMILIES = [
    ("hermes", f"<tool_call>{envelope(path='a')}</tool_call><tool_call>{envelope('ls')}</tool_call>", [EDIT, LS]),
    ("hermes", f"<tool_call> {envelope(path='a')} </tool_call>\n after", [EDIT, ("text", " after")]),
    ("hermes", '<tool_call>{"arguments": {"path": "a"}, "name": "edit"}</tool_call>', [EDIT]),
    ("hermes", f"<tool_call>[{envelope(path='a')}, {envelope('ls')}]</tool_call>", [EDIT, LS]),
    ("hermes", '<tool_call>{"name": "edit", "arguments": "{\\"path\\": \\"a\\"}"}</tool_call>', [EDIT]),
    ("hermes", '<tool_call>{"name": "edit", "arguments": "{\\"path\\": \\"\\\\u00e9\\\\n \\u00e9\\ud83d\\ude42\\"}"}</tool_call>',
     [("call", "edit", {"path": "é\n é🙂"})]),
    ("hermes", '<tool_call>{"name": "ls", "arguments": " "}</tool_call>', [LS]),
    ("hermes", '<tool_call>{"name": "edit", "parameters": {"path": "a"}}</tool_call>', [EDIT]),
    ("hermes", '<tool_call>{"name": "ls"}</tool_call>', [LS]),
    ("hermes", '<tool_call>{"name": "ls", "arguments": null}</tool_call>', [LS]),
    ("hermes", '<tool_call>{"type": "function", "function": {"name": "ls", "arguments": {}}}</tool_call>', [LS]),
    ("hermes", "<tool_call>{'name': 'edit', 'arguments': {'path': 'a', 'deep': True}}</tool_call>",
     [("call", "edit", {"path": "a", "deep": True})]),
    ("hermes", '<tool_call>{"name": "edit", "arguments": {"path": "a\nb\tc"}}</tool_call>',
     [("call", "edit", {"path": "a\nb\tc"})]),
    ("hermes", '<tool_call>\n```json\n{"name": "ls", "arguments": {}}\n```\n</tool_call>', [LS]),
    ("granite4", f"<tool_call>\n{envelope('ls')}\n</tool_call>", [LS]),
    ("longcat", f"<longcat_tool_call>{envelope('ls')}</longcat_tool_call>", [LS]),
    ("ernie45", f"x\n</think>\n\n<response>\nhi\n</response>\n<tool_call>\n{envelope('ls')}\n</tool_call>\n",
     [("text", "x\nhi"), LS]),
    ("internlm2", '<|action_start|><|plugin|>\n{"name": "ls", "parameters": {}}\n<|action_end|>\n', [LS]),
    ("minimax_m1", f"<tool_calls>\n{envelope(path='a')}\n{envelope('ls')}\n</tool_calls>", [EDIT, LS]),
    ("nemotron_deci", f"<TOOLCALL>[{envelope(path='a')}, {envelope('ls')}]</TOOLCALL>", [EDIT, LS]),
    ("nemotron_deci", f"<TOOLCALL>[{envelope(path='a')}", [EDIT]),
    ("jamba", f" hi<tool_calls>[\n {envelope(path='a')}\n]</tool_calls>", [("text", " hi"), EDIT]),
    ("hunyuan_a13b", f"<think>\nhm\n</think>\n<answer>\nok<tool_calls>[{envelope('ls')}]</tool_calls>\n</answer>",
     [("reasoning", "hm"), ("text", "ok"), LS]),
    ("hunyuan_a13b", f"<think>\nhm <tool_calls>[{envelope('ls')}]</tool_calls>\n</think>\n<answer>\nno\n</answer>",
     [("reasoning", f"hm <tool_calls>[{envelope('ls')}]</tool_calls>"), ("text", "no")]),
    ("granite", "Here is my thought process: hm\n\nHere is my response: ok", [("reasoning", " hm"), ("text", " ok")]),
    ("granite", f"<|tool_call|>[{envelope(path='a')}]", [EDIT]),
    ("granite", f"<tool_call>[{envelope(path='a')}]", [EDIT]),
    ("granite_20b_fc", f"<function_call> {envelope(path='a')}\n<function_call> {envelope('ls')}", [EDIT, LS]),
    ("phi4_mini", f"functools[{envelope(items=['a]', 'b'], path='a')}]",
     [("call", "edit", {"items": ["a]", "b"], "path": "a"})]),
    ("phi4_mini", "functools is a module", [("text", "functools is a module")]),
    ("llama3_json", '{"name": "edit", "parameters": {"path": "a"}}; {"name": "ls", "parameters": {}}', [EDIT, LS]),
    ("llama3_json", f"<|python_tag|>{envelope('ls')}<|eom_id|>", [LS]),
    ("llama3_json", f"Sure: {envelope(path='a;b')}", [("text", "Sure:"), ("call", "edit", {"path": "a;b"})]),
    ("llama3_json", '{"name": "Alice", "age": 3}', [("text", '{"name": "Alice", "age": 3}')]),
    ("llama3_json", '{"answer": {"name": "x", "parameters": {}}}',
     [("text", '{"answer": {"name": "x", "parameters": {}}}')]),
    ("llama3_json", f'{{"answer": 1}} {envelope("ls")}', [("text", '{"answer": 1}'), LS]),
    ("llama3_json", "use {braces} and [brackets]", [("text", "use {braces} and [brackets]")]),
    ("plain_json", f"{envelope('ls')}", [LS]),
    ("mistral", f"[TOOL_CALLS] [{envelope(path='a')}, {envelope('ls')}]", [EDIT, LS]),
    ("mistral", '[TOOL_CALLS]edit[CALL_ID]abc123def[ARGS]{"path": "a"}[TOOL_CALLS]ls[ARGS]{}', [EDIT, LS]),
    ("mistral", '[TOOL_CALLS]edit{"path": "a"}</s>', [EDIT]),
    ("mistral", "[THINK]hm[/THINK]ok[TOOL_CALLS]ls[ARGS]{}", [("reasoning", "hm"), ("text", "ok"), LS]),
    ("mistral", "The token [TOOL_CALLS] starts calls.", [("text", "The token [TOOL_CALLS] starts calls.")]),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.web-search.v2:3<|tool_call_argument_begin|>"
     '{"q": "x"}<|tool_call_end|><|tool_calls_section_end|>', [("call", "web-search.v2", {"q": "x"})]),
    ("kimi_vl", "◁think▷hm◁/think▷ok", [("reasoning", "hm"), ("text", "ok")]),
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>edit\n```json\n{\n  \"path\": \"a\"\n}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ls\n{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", [EDIT, LS]),
    ("deepseek_v3_1", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>{\n"path": "a"\n}<｜tool▁call▁end｜>'
     "<｜tool▁call▁begin｜>ls<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", [EDIT, LS]),
    ("deepseek_v3_2", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="edit">\n<｜DSML｜parameter name="path" string="true">a'
     '</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name="ls"/>\n</｜DSML｜function_calls>', [EDIT, LS]),
    ("deepseek_v4", '<|DSML|tool_calls>\n<|DSML|invoke name="edit">\n<|DSML|parameter name="path" string="true">a'
     "</|DSML|parameter>\n</|DSML|invoke>\n</|DSML|tool_calls>", [EDIT]),
    ("deepseek_v4", '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="edit">{"path": "a"}</｜DSML｜invoke>\n</｜DSML｜tool_calls>', [EDIT]),
    ("deepseek_v4_1", '<｜DSML｜ calls>\n<｜DSML｜ invoke name="edit">\n<｜DSML｜ parameter name="path" string="true">a'
     "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", [EDIT]),
    ("glm45", "<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n<tool_call>ls\n</tool_call>",
     [EDIT, LS]),
    ("glm47", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value></tool_call><tool_call>ls</tool_call>", [EDIT, LS]),
    ("glm45", "<tool_call>edit\\n<arg_key>path</arg_key>\\n<arg_value>a</arg_value>\\n</tool_call>", [EDIT]),
    ("poolside_v1", "<tool_call>ls\n</tool_call></assistant>", [LS]),
    ("hy_v3", "<tool_calls:opensource>\n<tool_call:opensource>edit<tool_sep:opensource>\n<arg_key:opensource>path"
     "</arg_key:opensource>\n<arg_value:opensource>a</arg_value:opensource>\n</tool_call:opensource>\n"
     "</tool_calls:opensource>", [EDIT]),
    ("minimax_m2", "<minimax:tool_call>\n<invoke name='edit'>\n<parameter name=path>a</parameter>\n</invoke>\n"
     '<invoke name="ls">\n</invoke>\n</minimax:tool_call>', [EDIT, LS]),
    ("seed_oss", "<seed:think>hm</seed:think><seed:tool_call>\n<function=edit>\n<parameter=path>a</parameter>\n</function>\n"
     "</seed:tool_call>", [("reasoning", "hm"), EDIT]),
    ("mimo", "<tool_call>\n<function=edit>\n<parameter=path>a\n</parameter>\n</function>\n</tool_call>",
     [("call", "edit", {"path": "a\n"})]),
    ("step3p5", "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n", [EDIT]),
    ("qwen3_coder", "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n<function=ls>\n"
     "</function>\n</tool_call>", [EDIT, LS]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "blocks"), FAMILIES)
def test_families(name, text, blocks):
    assert told(read(name, text)) == blocks


def test_native_ids_are_kept():
    kimi = read("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:4<|tool_call_argument_begin|>{}"
                "<|tool_call_end|><|tool_calls_section_end|>")  # fmt: skip
    assert kimi.blocks[0].call_id == "functions.ls:4"
    assert read("mistral", "[TOOL_CALLS]ls[CALL_ID]abc123def[ARGS]{}").blocks[0].call_id == "abc123def"
    assert (
        read("mistral", '[TOOL_CALLS][{"id": "abc123def", "name": "ls", "arguments": {}}]').blocks[0].call_id
        == "abc123def"
    )
    assert read("hermes", f"<tool_call>{envelope('ls')}</tool_call>").blocks[0].call_id == ""


# -------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("path", " 007 ", " 007 "),
        ("path", "null", "null"),
        ("path", "    if x:\n", "    if x:\n"),
        ("path", "&lt;b&gt; <b> & 'q'", "&lt;b&gt; <b> & 'q'"),
        ("path", "", ""),
        ("path", "ends in 2>&1", "ends in 2>&1"),
        ("path", "a</arg_valu", "a</arg_valu"),
        ("path", "\x00\x1f\u2028", "\x00\x1f\u2028"),
        ("count", "12", 12),
        ("count", " 12\n", 12),
        ("count", "-0", 0),
        ("count", "99999999999999999999999", 99999999999999999999999),
        ("count", "twelve", "twelve"),
        ("ratio", "1e5", 1e5),
        ("ratio", "5.", 5.0),
        ("ratio", "NaN", "NaN"),
        ("deep", "true", True),
        ("deep", "False", False),
        ("items", '["a", "b"]', ["a", "b"]),
        ("items", "['a', 'b']", ["a", "b"]),
        ("items", "", []),
        ("options", '{"x": 1}', {"x": 1}),
        ("options", "{'x': None}", {"x": None}),
        ("options", "{broken", "{broken"),
        ("options", "", {}),
        ("mode", "none", "none"),
        ("note", "null", None),
        ("note", "nullable", "nullable"),
        ("note", "nul", "nul"),
        ("either", "5", 5),
        ("either", "five", "five"),
        ("limit", "null", None),
        ("limit", "5", 5),
        ("unheard", '{"a": 1}', '{"a": 1}'),
    ],
)
@pytest.mark.parametrize("name", ["glm47", "minimax_m2"])
def test_values_follow_the_schema_exactly(name, key, written, value):
    shapes = {
        "glm47": "<tool_call>edit<arg_key>{}</arg_key><arg_value>{}</arg_value></tool_call>",
        "minimax_m2": '<minimax:tool_call>\n<invoke name="edit">\n<parameter name="{}">{}</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
    }
    assert told(read(name, shapes[name].format(key, written))) == [("call", "edit", {key: value})]


def test_streamed_numbers_and_words_are_never_half_right():
    for whole, value in (("true", True), ("108.25", 108.25), ("-1", -1), ("1e5", 1e5)):
        key = "deep" if value is True else "ratio"
        text = f"<tool_call>edit<arg_key>{key}</arg_key><arg_value>{whole}</arg_value></tool_call>"
        assert told(read("glm47", text)) == [("call", "edit", {key: value})]


def test_dsml_types_come_from_the_tag_and_yield_to_the_schema():
    def value(key: str, string: str, text: str) -> object:
        turn = read(
            "deepseek_v3_2",
            '<｜DSML｜function_calls>\n<｜DSML｜invoke name="edit">\n'
            f'<｜DSML｜parameter name="{key}" string="{string}">{text}</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
            "</｜DSML｜function_calls>",
        )
        return json.loads(turn.blocks[0].text)[key]

    assert value("path", "true", "12") == "12"
    assert value("count", "false", "12") == 12
    assert value("unheard", "false", '{"a": [1]}') == {"a": [1]}
    assert value("unheard", "true", '{"a": [1]}') == '{"a": [1]}'
    assert value("count", "true", "12") == 12
    assert value("path", "false", "12") == "12"


def test_wrapped_arguments_are_unwrapped_only_if_they_fit():
    def wrapped(key: str, inner: str) -> Turn:
        return read(
            "deepseek_v3_2",
            '<｜DSML｜function_calls>\n<｜DSML｜invoke name="edit">\n'
            f'<｜DSML｜parameter name="{key}" string="false">{inner}</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
            "</｜DSML｜function_calls>",
        )

    turn = wrapped("arguments", '{"path": "a"}')
    assert told(turn) == [EDIT]
    assert codes(turn) == ["rescue.unwrapped_arguments"]
    assert told(wrapped("arguments", '{"nope": 1}')) == [("call", "edit", {"arguments": {"nope": 1}})]
    assert told(wrapped("other", '{"path": "a"}')) == [("call", "edit", {"other": {"path": "a"}})]


# -------------------------------------------------------------------------------------------------------- rescues

RESCUES = [
    # Kimi's headers
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>", [LS], []),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functionsls5<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>", [LS], ["rescue.header"]),
    ("kimi_k2", '<|tool_calls_section_begin|><|tool_call_begin|>3<|tool_call_argument_begin|>{"q": "x"}<|tool_call_end|>'
     "<|tool_calls_section_end|>", [("call", "web-search.v2", {"q": "x"})], ["call.id_inferred"]),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0\n<|tool_call_argument_begin|> {} "
     "<|tool_call_end|><|tool_calls_section_end|>", [LS], []),
    ("kimi_k2", "<|tool_call_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_call_section_end|>", [LS], []),
    ("kimi_k2", "<|tool_calls_section_begin|>!!!!!<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>", [LS], ["section.noise"]),
    ("kimi_k2", "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>", [LS],
     ["rescue.missing_wrapper"]),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|>", [LS], []),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|><|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>ok", [("text", "ok")], ["call.unnamed"]),
    # wrappers and closers
    ("hermes", f"<tool_call>{envelope('ls')}", [LS], []),
    ("hermes", '<tool_call>{"name": "edit", "arguments": {"path": "a"}</tool_call>', [EDIT], ["rescue.missing_closer"]),
    ("hermes", f"<tool_call>{envelope('ls')}}}</tool_call>", [LS], ["rescue.duplicate_closer"]),
    ("hermes", f"<tool_call>{envelope('ls')}</tool_call>\n</tool_call></tool_call>ok", [LS, ("text", "ok")],
     ["rescue.duplicate_closer"] * 2),
    ("hermes", "<tool_call></tool_call>ok", [("text", "ok")], ["call.unnamed"]),
    ("hermes", f"<tool_call>{envelope('nosuch')}</tool_call><tool_call>{envelope('ls')}</tool_call>",
     [("call", "nosuch", {}), LS], ["call.unknown_tool"]),
    ("hermes", '<tool_call>{"name": "edit", "arguments": {"path": }}</tool_call>ok',
     [("call", "edit", '{"path": }'), ("text", "ok")], ["call.malformed"]),
    ("hermes", '<tool_call>{"name": "ls", "arguments": "plain text {"}</tool_call>', [("call", "ls", "plain text {")],
     ["rescue.string_arguments", "call.malformed"]),
    ("hermes", '<tool_call>{"name": "edit", "arguments": 5}</tool_call>', [("call", "edit", "5")], ["call.malformed"]),
    ("minimax_m2", '<invoke name="edit">\n<parameter name="path">a</parameter>\n</invoke>', [EDIT],
     ["rescue.missing_wrapper"]),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="edit">\n<parameter name="path">a\n</invoke>\n</minimax:tool_call>',
     [EDIT], ["rescue.missing_closer"]),
    ("glm47", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</tool_call>", [EDIT], ["rescue.missing_closer"]),
    ("glm47", "<tool_call>edit<arg_key>path</arg_key><arg_value>a<arg_key>count</arg_key><arg_value>3</arg_value></tool_call>",
     [("call", "edit", {"path": "a", "count": 3})], ["rescue.missing_closer"]),
    ("glm47", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value></arg_value></tool_call>", [EDIT],
     ["rescue.duplicate_closer"]),
    ("glm47", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>path</arg_key><arg_value>b</arg_value>"
     "</tool_call>", [("call", "edit", {"path": "b"})], ["call.duplicate_argument"]),
    ("qwen3_coder", "<tool_call>\n<function=edit>\n<parameter=path\na\n</parameter>\n</function>\n</tool_call>", [EDIT],
     ["rescue.missing_closer"]),
    ("qwen3_coder", "<tool_call>\n<functionls>\n</function>\n</tool_call>", [LS], []),
    ("qwen3_coder", "ok\n<function=ls>\n</function>", [("text", "ok"), LS], ["rescue.missing_wrapper"]),
    # calls in thoughts
    ("kimi_k2", "<think>hm<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>", [("reasoning", "hm"), LS], ["rescue.call_in_reasoning"]),
    ("hermes", f"<think>I go.\n<tool_call>\n{envelope('ls')}\n</tool_call>", [("reasoning", "I go."), LS],
     ["rescue.call_in_reasoning"]),
    ("mistral", "[THINK]hm.[TOOL_CALLS]ls[ARGS]{}", [("reasoning", "hm."), LS], ["rescue.call_in_reasoning"]),
    ("trinity", f"<think>hm\n<tool_call>{envelope('ls')}</tool_call>\nmore</think>ok",
     [("reasoning", "hm"), LS, ("reasoning", "more"), ("text", "ok")], []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "blocks", "notes"), RESCUES)
def test_rescues(name, text, blocks, notes):
    turn = read(name, text)
    assert told(turn) == blocks
    assert codes(turn) == notes


# ---------------------------------------------------------------------------------------------- what is not a call

PROSE = [
    ("hermes", "To call a tool I write <tool_call> and then JSON."),
    ("hermes", "Write `<tool_call>{\"name\": \"ls\"}</tool_call>` for that."),
    ("hermes", '{"name": "ls", "arguments": {}}'),
    ("hermes", '```json\n{"name": "ls", "arguments": {}}\n```'),
    ("qwen3_coder", "Like this:\n```xml\n<tool_call>\n<function=get_weather>\n</function>\n</tool_call>\n```"),
    ("qwen3_coder", "Like this:\n```xml\n<function=ls>\n</function>\n```"),
    ("qwen3_coder", "Then I use <function=ls> to list."),
    ("qwen3_coder", "a<b and <tool_call"),
    ("minimax_m2", "In XSLT one writes <invoke name=\"ls\"> inline."),
    ("glm47", "The tag <tool_call> wraps a name."),
    ("glm47", "The tag </tool_call> ends it."),
    ("mistral", "[1, 2] and [TOOL"),
    ("qwen3", "Close thoughts with `</think>` please."),
    ("deepseek_v3_2", "｜DSML｜ is a token."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), PROSE)
def test_prose_stays_prose(name, text):
    assert told(read(name, text)) == [("text", text)]


def test_a_thought_that_speaks_of_calls_goes_on():
    text = f"I think about <tool_call>\n{envelope('ls')}</tool_call> hm\n</think>\n\n<tool_call>\n{envelope('ls')}\n</tool_call>"
    turn = read("hermes", text, "reasoning")
    assert [b.kind for b in turn.blocks] == ["reasoning", "tool_call"]
    assert turn.blocks[0].text.endswith("hm")


def test_markup_inside_a_json_string_is_data():
    path = '</tool_call><tool_call>{"name": "ls"}<think>'
    assert told(read("hermes", f"<tool_call>{envelope(path=path)}</tool_call>")) == [("call", "edit", {"path": path})]


def test_a_reasoning_opener_inside_a_value_is_data():
    text = "<tool_call>edit<arg_key>path</arg_key><arg_value><think>x</think></arg_value></tool_call>"
    assert told(read("glm47", text)) == [("call", "edit", {"path": "<think>x</think>"})]


FENCED = [
    ('```json\n{"name": "edit", "arguments": {"path": "a"}}\n```', [EDIT]),
    (
        'Sure.\n\n```json\n{\n  "name": "edit",\n  "arguments": {\n    "path": "a"\n  }\n}\n```',
        [("text", "Sure."), EDIT],
    ),
    ('{"name": "edit", "arguments": {"path": "a"}}', [EDIT]),
    ('```\n[{"name": "edit", "arguments": {"path": "a"}}, {"name": "ls", "arguments": {}}]\n```', [EDIT, LS]),
    ('<tools>\n{"name": "ls", "arguments": {}}\n</tools>', [LS]),
    ('<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', [LS]),
]


@pytest.mark.parametrize(("text", "blocks"), FENCED)
def test_fenced_json_is_a_call_for_models_that_write_so(text, blocks):
    turn = read("qwen2_5_coder", text)
    assert told(turn) == blocks
    assert parse(resolve("hermes", fenced=True), text, TOOLS) == turn


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "nosuch", "arguments": {}}\n```',
        '```json\n{"name": "edit", "arguments": {"file": "a"}}\n```',
        '```json\n{"name": "edit", "arguments": {"path": 5}}\n```',
        '```json\n{"name": "edit", "arguments": {}}\n```',
        '```json\n{"name": "ls"}\n```',
        '```python\nprint({"name": "ls", "arguments": {}})\n```',
        'For example {"name": "ls", "arguments": {}} would list.',
        '{"title": "ls"}',
    ],
)
def test_fenced_json_that_does_not_fit_is_text(text):
    assert told(read("qwen2_5_coder", text)) == [("text", text)]


# ------------------------------------------------------------------------------------------------------ reasoning

THOUGHTS = [
    ("qwen3", "content", "<think>\nhm\n</think>\n\nok", [("reasoning", "hm"), ("text", "ok")]),
    ("qwen3", "reasoning", "hm\n</think>\n\nok", [("reasoning", "hm"), ("text", "ok")]),
    ("qwen3", "reasoning", "<think>\nhm</think>ok", [("reasoning", "hm"), ("text", "ok")]),
    ("qwen3", "content", "ok", [("text", "ok")]),
    ("qwen3", "content", "\n</think>\n\nok", [("text", "ok")]),
    ("qwen3", "content", "<think>\n\n</think>\n\nok", [("text", "ok")]),
    ("qwen3", "reasoning", "never closed", [("reasoning", "never closed")]),
    ("qwen3", "reasoning", "never closed<|im_end|>", [("reasoning", "never closed")]),
    ("qwen3", "content", "a <think>b</think> c", [("text", "a"), ("reasoning", "b"), ("text", " c")]),
    ("qwen3", "content", "ok<|im_end|>\n", [("text", "ok")]),
    ("qwen3", "content", "the marker <|im_end|> ends turns", [("text", "the marker <|im_end|> ends turns")]),
    ("qwen3", "content", "  indented\n  more\n", [("text", "  indented\n  more\n")]),
    ("qwen3", "content", "\n\n  x", [("text", "  x")]),
    ("qwen3", "content", "", []),
    ("qwen3", "content", " \n ", []),
    ("qwen3", "reasoning", "a </thin", [("reasoning", "a </thin")]),
    ("deepseek_r1", "reasoning", "<think>\nhm\n</think>\n\nok", [("reasoning", "hm"), ("text", "ok")]),
    ("deepseek_v4", "reasoning", "answer<｜end▁of▁sentence｜>", [("reasoning", "answer")]),
    ("mistral", "content", "[THINK]a[/THINK]b", [("reasoning", "a"), ("text", "b")]),
    ("plain", "content", "<think>a</think>b", [("text", "<think>a</think>b")]),
]


@pytest.mark.parametrize(("name", "start", "text", "blocks"), THOUGHTS)
def test_thoughts_and_whitespace(name, start, text, blocks):
    assert told(read(name, text, start)) == blocks


# ----------------------------------------------------------------------------------------------------- truncation


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("hermes", f'<tool_call>{envelope("ls")}</tool_call><tool_call>{{"name": "edit", "arguments": {{"pa', ["ls"]),
        ("hermes", "<tool_call>", []),
        ("hermes", 'ok <tool_call>\n{"na', []),
        ("qwen3_coder", "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n", []),
        ("qwen3_coder", "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>", ["edit"]),
        ("qwen3_coder", "<tool_call>\n<function=edit>\n<parameter=path>\nthe end is\n</tool_call>", []),
        ("glm47", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_val", []),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{", []),
        ("nemotron_deci", f'<TOOLCALL>[{envelope("ls")}, {{"name"', ["ls"]),
    ],
)
def test_a_cut_call_is_never_complete(name, text, names):
    turn = read(name, text, reason="length")
    assert turn.reason == "length"
    assert [b.name for b in turn.of("tool_call") if not b.malformed] == names
    assert "call" not in turn.text("text")


def test_finish_reasons():
    call = f"<tool_call>{envelope('ls')}</tool_call>"
    assert read("hermes", call).reason == "tool_calls"
    assert read("hermes", call, reason="length").reason == "length"
    assert read("hermes", "ok").reason == "stop"
    assert read("hermes", '<tool_call>{"name": "edit", "arguments": {"pa').reason == "stop"
    assert read("hermes", "ok", reason="abort").reason == "abort"


def test_two_calls_of_one_tool_stay_two():
    call = "<tool_call>edit<arg_key>path</arg_key><arg_value>{}</arg_value></tool_call>"
    turn = read("glm47", call.format("a") + call.format("b"))
    assert told(turn) == [("call", "edit", {"path": "a"}), ("call", "edit", {"path": "b"})]


def test_a_wrong_dialect_ends_in_text():
    text = "<tool_call>\n<function=ls>\n</function>\n</tool_call>"
    assert told(read("kimi_k2", text)) == [("text", text)]
    assert told(read("hermes", text)) == [("text", text)]


def test_no_tools_offered_still_parses_and_says_so():
    text = f"<tool_call>{envelope('ls')}</tool_call>"
    turn = parse(resolve("hermes"), text)
    assert [b.name for b in turn.of("tool_call")] == ["ls"]
    assert codes(turn) == ["call.unknown_tool"]
