"""Seventy ways in which parsers of other servers failed, one or more cases for each, in every cut."""
# ruff: noqa: E501

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from running import Turn, cut, events_of, merge, parse
from samples import SAMPLES
from samples import TOOLS as SAMPLE_TOOLS
from test_cases import EDIT, LS, TOOLS, codes, envelope, told

from turnwire.parsers import Dialect, Parser, Start, dialects, resolve, start_state
from turnwire.turns import BlockDelta, BlockOpened, Tool, ToolCallClosed

CALLING = [pytest.param(d, id=d.name) for d in dialects() if d.calls or d.router is not None]
HERMES_LS = f"<tool_call>\n{envelope('ls')}\n</tool_call>"


def read(name: str, text: str, start: str = "content", reason: str = "stop", tools: Sequence[Tool] = TOOLS) -> Turn:
    return parse(resolve(name), text, tools, Start(start), reason)


def edit(value: object, key: str = "path") -> tuple:
    return ("call", "edit", {key: value})


def glm(*pairs: tuple[str, str], name: str = "edit") -> str:
    inner = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in pairs)
    return f"<tool_call>{name}{inner}</tool_call>"


def m2(*values: str) -> str:
    calls = "".join(
        f'<invoke name="edit">\n<parameter name="path">{value}</parameter>\n</invoke>\n' for value in values
    )
    return f"<minimax:tool_call>\n{calls}</minimax:tool_call>"


def dsml(value: str, bar: str = "｜") -> str:
    tag = f"{bar}DSML{bar}"
    return (
        f'<{tag}tool_calls>\n<{tag}invoke name="edit">\n<{tag}parameter name="path" string="true">{value}</{tag}parameter>\n'
        f"</{tag}invoke>\n</{tag}tool_calls>"
    )


def qwen(body: str, name: str = "edit") -> str:
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def param(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


def kimi(header: str, arguments: str = "{}", end: str = "<|tool_calls_section_end|>") -> str:
    return f"<|tool_calls_section_begin|><|tool_call_begin|>{header}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>{end}"


def harmony(header: str, body: str, end: str = "<|call|>") -> str:
    return f"{header}<|message|>{body}{end}"


def sample(dialect: Dialect, pieces: list[str]) -> Turn:
    text = SAMPLES[dialect.name]
    start = Start("reasoning") if text.startswith("Plan") else None
    return merge(events_of(dialect, pieces, SAMPLE_TOOLS, start), text)


# ------------------------------------------------------------------------------- A. the same text, cut in another way


@pytest.mark.parametrize("dialect", CALLING)
def test_1_to_7_and_13_any_delivery_gives_the_same_turn(dialect):
    """One delta with everything; deltas that end anywhere; deltas that span the end of one thing and the next."""
    text = SAMPLES[dialect.name]
    whole = sample(dialect, [text])
    assert [c.name for c in whole.of("tool_call") if not c.malformed] == ["edit", "ls"]
    for size in (1, 2, 3, 4, 5, 7, 16, 28, 64):
        assert sample(dialect, cut(text, size)) == whole
    for at in range(0, len(text), 3):
        assert sample(dialect, [text[:at], text[at:]]) == whole


def test_3_values_do_not_cross_over():
    assert told(read("minimax_m2", m2("Paris", "São Paulo"))) == [edit("Paris"), edit("São Paulo")]
    assert told(read("deepseek_v31", "<｜tool▁calls▁begin｜>" + "".join(
        f'<｜tool▁call▁begin｜>edit<｜tool▁sep｜>{{"path": "{v}"}}<｜tool▁call▁end｜>' for v in "ab") + "<｜tool▁calls▁end｜>")) == [edit("a"), edit("b")]  # fmt: skip


@pytest.mark.parametrize(
    "pieces", [["a</think>b<tool_call>", "\n"], ["a</thi", "nk>b<tool_call>\n"], ["a</think>", "b<tool_call>\n"]]
)
def test_5_a_delta_spans_thought_text_and_call(pieces):
    text = "".join(pieces) + HERMES_LS[len("<tool_call>\n") :]
    turn = merge(events_of(resolve("hermes"), [*pieces, text[len("".join(pieces)) :]], TOOLS, Start("reasoning")), text)
    assert told(turn) == [("reasoning", "a"), ("text", "b"), LS]


@pytest.mark.parametrize(("key", "written", "value"), [("deep", "true", True), ("ratio", "108.2", 108.2), ("count", "-1", -1), ("ratio", "1e5", 1e5)])  # fmt: skip
def test_8_half_a_literal_is_never_sent(key, written, value):
    assert told(read("glm47", glm((key, written)))) == [edit(value, key)]
    assert told(read("gemma4", f"<|tool_call>call:edit{{{key}:{written}}}<tool_call|>")) == [edit(value, key)]
    assert told(read("pythonic", f"[edit({key}={written})]")) == [edit(value, key)]


def test_9_half_a_delimiter_is_never_sent_as_value():
    assert told(read("gemma4", '<|tool_call>call:edit{path:<|"|>a <|<|" b<|"|>}<tool_call|>')) == [edit('a <|<|" b')]
    assert told(read("deepseek_v4", dsml("ls 2>&1"))) == [edit("ls 2>&1")]


@pytest.mark.parametrize("dialect", CALLING)
def test_10_and_11_streamed_arguments_are_a_prefix_of_the_whole(dialect):
    start = Start("reasoning") if SAMPLES[dialect.name].startswith("Plan") else None
    said: dict[int, str] = {}
    for event in events_of(dialect, cut(SAMPLES[dialect.name], 1), SAMPLE_TOOLS, start):
        if isinstance(event, BlockDelta):
            said[event.index] = said.get(event.index, "") + event.text
        elif isinstance(event, ToolCallClosed):
            assert said[event.index] == event.arguments
            assert isinstance(json.loads(event.arguments), dict)


def test_12_characters_of_many_bytes():
    assert told(read("kimi_vl", "◁think▷é◁/think▷日🙂")) == [("reasoning", "é"), ("text", "日🙂")]
    assert told(read("glm47", glm(("path", "日🙂👩‍👩‍👧")))) == [edit("日🙂👩‍👩‍👧")]


def test_13_order_is_kept_within_one_delta():
    text = " to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>b<|eot|>"
    assert [k for k, _ in told(read("muse_glimmer", text, "header"))] == ["reasoning", "text"]


@pytest.mark.parametrize("tail", ["<", "<tool", "</thi", "<tool_call"])
def test_14_what_was_held_back_is_released_once(tail):
    assert told(read("hermes", f"a {tail}")) == [("text", f"a {tail}")]


# --------------------------------------------------------------------------------------- B. no arguments, empty values


def test_15_no_arguments():
    for name, text in (
        ("glm47", glm(name="ls")),
        ("step3", SAMPLES["step3"]),
        ("hermes", HERMES_LS),
        ("minimax_m3", SAMPLES["minimax_m3"]),
    ):
        assert told(read(name, text))[-1 if name in ("glm47", "hermes") else -2] == LS


def test_16_no_arguments_then_some():
    assert told(read("glm47", glm(name="ls") + glm(("path", "a")))) == [LS, EDIT]
    assert told(read("xlam", f"[{envelope('ls')}, {envelope(path='a')}]")) == [LS, EDIT]
    assert told(read("hunyuan_a13b", f"<tool_calls>[{envelope('ls')}, {envelope(path='a')}]</tool_calls>")) == [
        LS,
        EDIT,
    ]


@pytest.mark.parametrize(("key", "value"), [("path", ""), ("items", []), ("options", {})])
def test_17_empty_values(key, value):
    assert told(read("glm47", glm((key, "")))) == [edit(value, key)]
    assert told(read("qwen3_coder", qwen(param(key, "")))) == [edit(value, key)]


# ------------------------------------------------------------------------------------------------ C. values as written

CODE = "    if x < 1:\n\treturn 'a' & \"b\"  \n"


@pytest.mark.parametrize("value", [CODE, " 007 ", "true", "null", '{"a": 1}', "&lt;", "a\\nb", "</arg", "[x]"])
@pytest.mark.parametrize(
    "name", ["glm47", "minimax_m2", "qwen3_coder", "deepseek_v4", "step3", "dots", "seed_oss", "gemma4", "minimax_m3"]
)
def test_18_19_26_27_strings_are_kept_byte_for_byte(name, value):
    mark = "]<]minimax[>["
    texts = {
        "glm47": glm(("path", value)),
        "minimax_m2": m2(value),
        "qwen3_coder": qwen(param("path", value)),
        "deepseek_v4": dsml(value),
        "step3": f'<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="edit"><steptml:parameter name="path">{value}'
        "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        "dots": f'<dots_function_call><invoke name="edit"><parameter name="path">{value}</parameter></invoke></dots_function_call>',
        "seed_oss": f"<seed:tool_call><function=edit><parameter=path>{value}</parameter></function></seed:tool_call>",
        "gemma4": f'<|tool_call>call:edit{{path:<|"|>{value}<|"|>}}<tool_call|>',
        "minimax_m3": f'{mark}<tool_call>{mark}<invoke name="edit">{mark}<path>{value}{mark}</path>{mark}</invoke>{mark}</tool_call>',
    }
    assert told(read(name, texts[name])) == [edit(value)]


def test_20_21_typed_values_by_their_schema():
    assert told(read("step3", '<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="edit"><steptml:parameter name="options">'
                     '{"x": 1}</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>')) == [edit({"x": 1}, "options")]  # fmt: skip
    assert told(read("gemma4", "<|tool_call>call:edit{count:3,deep:true}<tool_call|>")) == [
        ("call", "edit", {"count": 3, "deep": True})
    ]
    assert told(read("glm47", glm(("either", "5")))) == [edit(5, "either")]
    assert told(read("glm47", glm(("options", '{"x": 1}')))) == [edit({"x": 1}, "options")]


def test_22_none_is_a_word():
    assert told(read("minimax_m2", m2("x").replace("path", "mode").replace(">x<", ">none<"))) == [edit("none", "mode")]


def test_23_other_alphabets_are_not_escaped():
    (call,) = read("hermes", f"<tool_call>{envelope(path='é日')}</tool_call>").blocks
    assert "é日" in call.text
    assert "é日" in read("glm47", glm(("path", "é日"))).blocks[0].text


def test_24_a_value_may_hold_its_own_closer():
    assert told(read("qwen3_coder", qwen(param("path", "a</parameter>b")))) == [edit("a</parameter>b")]
    assert told(read("hermes", f"<tool_call>{envelope(path='<tool_call>x</tool_call>')}</tool_call>")) == [
        edit("<tool_call>x</tool_call>")
    ]
    assert told(read("gemma4", '<|tool_call>call:edit{path:<|"|>}<tool_call|><|"|>}<tool_call|>')) == [
        edit("}<tool_call|>")
    ]


def test_25_brackets_in_strings():
    assert told(read("phi4_mini", f"functools[{envelope(items=['a]', '}b'])}]")) == [edit(["a]", "}b"], "items")]
    assert told(read("pythonic", '[edit(path="a]b)c")]')) == [edit("a]b)c")]


def test_28_json_over_many_lines():
    arguments = '{\n  "path": "a"\n}'
    assert told(
        read(
            "deepseek_v3",
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>edit\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        )
    ) == [EDIT]
    assert told(read("kimi_k2", kimi("functions.edit:0\n", arguments))) == [EDIT]


def test_29_arguments_encoded_twice():
    assert told(read("granite4", '<tool_call>{"name": "edit", "arguments": "{\\"path\\": \\"a\\"}"}</tool_call>')) == [
        EDIT
    ]


def test_30_numbers_keep_their_digits():
    digits = "9007199254740993123"
    assert digits in read("glm47", glm(("count", digits))).blocks[0].text
    assert digits in read("pythonic", f"[edit(count={digits})]").blocks[0].text
    assert told(read("glm47", glm(("ratio", "NaN")))) == [edit("NaN", "ratio")]


# ------------------------------------------------------------------------------------------------- D. broken but clear


def test_31_to_34_tags_and_spaces():
    assert told(read("qwen3_coder", qwen("<parameter=path>\na</parameter>\n"))) == [EDIT]
    turn = read("qwen3_coder", qwen("<parameter=path>\na\n</parameter>\n</parameter>\n"))
    assert (told(turn), codes(turn)) == ([EDIT], ["rescue.duplicate_closer"])
    assert told(read("qwen3_coder", qwen(param("count", "3") + param("path", "a")))) == [
        ("call", "edit", {"count": 3, "path": "a"})
    ]
    assert told(read("hermes", f"<tool_call> {envelope('ls')} </tool_call>\n")) == [LS]


def test_35_text_before_a_call():
    for name, text in (
        ("pythonic", "[ls()]"),
        ("llama4", "<|python_start|>[ls()]<|python_end|>"),
        ("olmo3", "<function_calls>ls()</function_calls>"),
        ("llama3_json", '{"name": "ls", "parameters": {}}'),
    ):
        assert told(read(name, f"So: {text}")) == [("text", "So:"), LS]


def test_36_37_the_wrapper_or_its_end_is_missing():
    assert told(read("qwen3_coder", "<function=ls>\n</function>")) == [LS]
    assert told(read("minimax_m2", '<invoke name="ls">\n</invoke>')) == [LS]
    assert told(read("kimi_k2", kimi("functions.ls:0").replace("tool_calls_section", "tool_call_section"))) == [LS]
    assert told(read("kimi_k2", kimi("functions.ls:0", end=""), reason="length")) == [LS]


def test_38_a_wrong_closer():
    assert told(read("qwen3_coder", qwen("<parameter=path>\na\n</param>\n" + param("count", "3")))) == [
        ("call", "edit", {"path": "a", "count": 3})
    ]


@pytest.mark.parametrize("header", ["ls:0", "functionsls5", " functions.ls:0 \n"])
def test_39_kimi_headers(header):
    assert told(read("kimi_k2", kimi(header))) == [LS]


def test_39_a_long_section_is_no_problem():
    value = "x" * 20000
    assert told(read("kimi_k2", kimi("functions.edit:0", json.dumps({"path": value})))) == [edit(value)]


def test_40_kimi_k3_skips_the_end_of_its_thought():
    text = 'hm<|open|>tools<|sep|><|open|>call tool="ls" index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>'
    assert told(read("kimi_k3", text, "reasoning")) == [("reasoning", "hm"), LS]


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.ls <|constrain|>json",
        " to=functions.ls<|channel|>commentary json",
        "<|channel|>analysis to=functions.ls code",
        "<|channel|>commentary<|channel|>commentary to=functions.ls",
        "<|channel|>––commentary to=functions.ls",
        "<|channel|>commentary to=functions.ls<|channel|>commentary",
    ],
)
def test_41_harmony_headers(header):
    assert told(read("harmony", harmony(header, "{}"), "header")) == [LS]


def test_41_bare_text_without_a_channel_is_text():
    assert told(read("harmony", "Just an answer.", "header")) == [("text", "Just an answer.")]


def test_42_an_unknown_tool_disturbs_nobody():
    turn = read("glm47", glm(("x", "1"), name="nosuch") + glm(name="ls"))
    assert told(turn) == [("call", "nosuch", {"x": "1"}), LS]
    assert codes(turn) == ["call.unknown_tool"]


def test_43_ascii_bars():
    assert told(read("deepseek_v4", dsml("a", "|"))) == [EDIT]


def test_44_python_in_json_and_json_in_python():
    assert told(read("hermes", "<tool_call>{'name': 'edit', 'arguments': {'deep': True}}</tool_call>")) == [
        edit(True, "deep")
    ]
    assert told(read("pythonic", "[edit(deep=true, note=null)]")) == [("call", "edit", {"deep": True, "note": None})]


@pytest.mark.parametrize("dialect", CALLING)
def test_45_the_wrong_parser_ends_in_a_turn(dialect):
    for name in ("gemma4", "kimi_k2", "qwen3_coder", "harmony", "pythonic"):
        text = SAMPLES[name]
        merge(events_of(dialect, cut(text, 7), SAMPLE_TOOLS), text)


# ------------------------------------------------------------------------------------- E. thoughts and text, who is who


def test_46_a_call_in_an_open_thought():
    assert told(read("qwen3", f"hm.\n{HERMES_LS}", "reasoning")) == [("reasoning", "hm."), LS]
    assert told(read("minimax_m2", "hm.\n" + m2("a"), "reasoning")) == [("reasoning", "hm."), EDIT]


@pytest.mark.parametrize(
    ("name", "tail", "state"),
    [
        ("qwen3_coder", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "content"),
        ("qwen3_coder", "<|im_start|>assistant\n<think>\n", "reasoning"),
        ("qwen3_coder", "<|im_start|>tool\n</think><|im_end|>\n<|im_start|>assistant\n<think>\n", "reasoning"),
        ("deepseek_v4", "<｜User｜>what is <think>?<｜Assistant｜></think>", "content"),
        ("gemma4", "<|turn>model\n<|tool_response>a<channel|><tool_response|><|channel>thought\n", "reasoning"),
    ],
)
def test_47_48_49_the_prompt_says_where_the_turn_starts(name, tail, state):
    assert start_state(tail, resolve(name)) == Start(state)


def test_50_no_end_of_thought_at_all():
    assert told(read("deepseek_v4", "answer<｜end▁of▁sentence｜>", "reasoning")) == [("reasoning", "answer")]


def test_51_a_second_thought():
    assert told(read("qwen3_coder", qwen("", "ls") + "<think>b</think>c")) == [LS, ("reasoning", "b"), ("text", "c")]
    assert told(read("gemma4", "a<|channel>thought\nb<channel|>c")) == [
        ("text", "a"),
        ("reasoning", "b"),
        ("text", "c"),
    ]


def test_52_text_behind_the_last_call():
    assert told(read("kimi_k2", kimi("functions.ls:0") + "bye")) == [LS, ("text", "bye")]


def test_53_end_tokens_do_not_leak():
    assert told(read("hermes", "ok<|im_end|>")) == [("text", "ok")]
    assert told(read("minimax_m3", "<mm:think>a</mm:think>b[e~[")) == [("reasoning", "a"), ("text", "b")]


def test_54_gemma_without_its_label():
    assert told(read("gemma4", "hi <|channel>a<channel|>b")) == [("text", "hi"), ("reasoning", "a"), ("text", "b")]
    assert told(read("gemma4", "thought\na<channel|>b", "reasoning")) == [("reasoning", "a"), ("text", "b")]


def test_55_a_preamble_is_said_once():
    text = harmony("<|channel|>commentary", "On it: ", "<|end|>") + harmony(
        "<|start|>assistant<|channel|>commentary to=functions.ls", "{}"
    )
    assert told(read("harmony", text, "header")) == [("text", "On it:"), LS]


def test_56_structured_output_is_text_where_the_prompt_closed_the_thought():
    start = start_state("<|im_start|>assistant\n<think>\n\n</think>\n\n", resolve("qwen3"))
    assert told(parse(resolve("qwen3"), '{"a": 1}', (), start)) == [("text", '{"a": 1}')]


def test_57_no_tools_offered_changes_no_text():
    assert told(read("hermes", "plain text", tools=())) == [("text", "plain text")]


# -------------------------------------------------------------------------------------- F. indexes, ids, how it ended


def test_59_60_every_call_has_an_index_of_its_own():
    events = events_of(resolve("gemma4"), ["<|tool_call>call:ls{}<tool_call|>" * 3], TOOLS)
    assert [e.index for e in events if isinstance(e, BlockOpened)] == [0, 1, 2]
    events = events_of(resolve("mistral"), [f"[TOOL_CALLS][{envelope('ls')}][TOOL_CALLS][{envelope('ls')}]"], TOOLS)
    assert [e.index for e in events if isinstance(e, BlockOpened)] == [0, 1]


def test_61_native_ids_come_back():
    assert read("kimi_k2", kimi("functions.ls:7")).blocks[0].call_id == "functions.ls:7"


@pytest.mark.parametrize("text", ['<tool_call>{"name": "edit", "arguments": {"pa', "<tool_ca", '<tool_call>{"na'])
def test_62_63_a_cut_stays_a_cut(text):
    turn = read("hermes", text, reason="length")
    assert turn.reason == "length"
    assert not [b for b in turn.of("tool_call") if not b.malformed]


def test_64_a_forced_call_is_read_like_any_other():
    assert told(read("glm47", glm(name="ls") + "\n" * 50)) == [LS]


def test_65_json_answers_are_text():
    for name in ("hermes", "llama3_json", "qwen3", "xlam"):
        assert told(read(name, '{"title": "x", "n": [1]}')) == [("text", '{"title": "x", "n": [1]}')]


# --------------------------------------------------------------------------------------------------- G. cost and safety


def test_66_67_hostile_text_costs_no_more_than_any_other():
    for text in ("[" + "a(b=" * 2000, "[f(" + "a=1," * 3000, "<tool_call>" * 3000, '{"name": ' * 2000, "'" * 5000):
        for dialect in dialects():
            merge(events_of(dialect, [text], TOOLS), text)


def test_68_nothing_is_evaluated_and_depth_is_no_danger():
    (call,) = read("lfm2", "<|tool_call_start|>[ls(x=__import__('os'))]<|tool_call_end|>").blocks
    assert call.malformed
    for opener in ("[", "{", "("):
        text = "[edit(x=" + opener * 10000
        merge(events_of(resolve("pythonic"), [text], TOOLS), text)


@pytest.mark.parametrize("dialect", CALLING)
def test_69_an_argument_is_on_its_way_while_it_is_written(dialect):
    """As soon as the first string value has begun, the call is open and something of it was sent."""
    text = SAMPLES[dialect.name]
    parser = Parser(dialect, SAMPLE_TOOLS, Start("reasoning") if text.startswith("Plan") else None)
    kinds: list[str] = []
    for piece in cut(text[: text.index("3", text.index("count"))], 1):
        kinds += [e.kind for e in parser.feed(piece) if isinstance(e, BlockOpened)]
    assert "tool_call" in kinds


def test_70_long_thoughts_have_no_limit():
    text = "thought " * 100_000
    turn = merge(events_of(resolve("qwen3"), cut(text, 4096), TOOLS, Start("reasoning")), text)
    assert turn.text("reasoning") == text
