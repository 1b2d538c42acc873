"""Where implementations disagree: the lines of the table in docs/parsers.md, each under its number, in every cut."""
# ruff: noqa: E501

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from running import cut, events_of, merge, parse, random_cut
from test_cases import EDIT, LS, TOOLS, codes, envelope, told
from test_vectors import dialect_of, start_of, tools_of
from tests.shared_data import needs_shared, shared_folder

from turnwire.parsers import Start, resolve

HERMES_LS = f"<tool_call>{envelope('ls')}</tool_call>"
MINIMAX_LS = '<minimax:tool_call>\n<invoke name="ls">\n</invoke>\n</minimax:tool_call>'
K3_LS = '<|open|>tools<|sep|><|open|>call tool="ls" index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
NOSUCH = ("call", "nosuch", {})
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>{}<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"

# Line of the table, dialect, start, finish reason, text, blocks, notes.
POLICY = [
    (1, "hermes", "content", "stop", f"<tool_call>{envelope('nosuch')}</tool_call>", [NOSUCH], ["call.unknown_tool"]),
    (1, "gemma4", "content", "stop", "<|tool_call>call:nosuch{}<tool_call|>", [NOSUCH], ["call.unknown_tool"]),
    (1, "lfm2", "content", "stop", "<|tool_call_start|>[nosuch()]<|tool_call_end|>", [NOSUCH], ["call.unknown_tool"]),
    (1, "pythonic", "content", "stop", "[ls(), nosuch()]", [LS, NOSUCH], ["call.unknown_tool"]),
    (1, "glm47", "content", "stop", "<tool_call>nosuch</tool_call><tool_call>ls</tool_call>", [NOSUCH, LS], ["call.unknown_tool"]),
    (2, "pythonic", "content", "stop", "See [nosuch(a=1)] there.", [("text", "See [nosuch(a=1)] there.")], []),
    (2, "minicpm5", "content", "stop", '<function name="nosuch"></function>', [("text", '<function name="nosuch"></function>')], []),
    (2, "qwen3_coder", "content", "stop", "Or\n<function=nosuch>\n</function>", [("text", "Or\n<function=nosuch>\n</function>")], []),
    (2, "hermes", "content", "stop", f"`{HERMES_LS}`", [("text", f"`{HERMES_LS}`")], []),
    (3, "hermes", "content", "length", '<tool_call>{"name": "edit", "arguments": {"path": "a', [("call", "edit", '{"path": "a')], ["call.truncated"]),
    (3, "pythonic", "content", "stop", '[edit(path="a', [("call", "edit", '{"path": "a')], ["call.truncated"]),
    (3, "qwen3_coder", "content", "stop", "<tool_call>\n<function=edit>\n<parameter=path>\na", [("call", "edit", '{"path": "a')], ["call.truncated"]),
    (3, "gemma4", "content", "length", '<|tool_call>call:edit{path:<|"|>a', [("call", "edit", '{"path": "a')], ["call.truncated"]),
    (4, "hermes", "content", "length", f"<tool_call>{envelope('ls')}", [LS], []),
    (4, "pythonic", "content", "stop", '[edit(path="a"), ls()', [EDIT, LS], []),
    (4, "gemma4", "content", "length", "<|tool_call>call:ls{}", [LS], []),
    (4, "nemotron_deci", "content", "stop", f"<TOOLCALL>[{envelope(path='a')}, {envelope('ls')}", [EDIT, LS], []),
    (5, "glm47", "content", "stop", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value>", [EDIT], ["rescue.missing_closer"]),
    (5, "hermes", "content", "stop", '<tool_call>{"name": "edit", "arguments": {"path": "a"}', [EDIT], ["rescue.missing_closer"]),
    (6, "glm47", "content", "length", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value>", [("call", "edit", '{"path": "a"')], ["call.truncated"]),
    (7, "hermes", "content", "stop", f"a{HERMES_LS}b{HERMES_LS}c", [("text", "a"), LS, ("text", "b"), LS, ("text", "c")], []),
    (7, "mistral", "content", "stop", f"a[TOOL_CALLS][{envelope('ls')}]b", [("text", "a"), LS, ("text", "b")], []),
    (7, "pythonic", "content", "stop", "a [ls()] b", [("text", "a"), LS, ("text", " b")], []),
    (8, "hermes", "content", "stop", '<tool_call>{"name": "ls", "arguments": {x y}}</tool_call>', [("call", "ls", "{x y}")], ["call.malformed"]),
    (8, "hermes", "content", "stop", '<tool_call>{"name": "ls", "arguments": {"v": NaN}}</tool_call>', [("call", "ls", '{"v": NaN}')], ["call.malformed"]),
    (8, "lfm2", "content", "stop", "<|tool_call_start|>[ls(x=1 + 2)]<|tool_call_end|>", [("call", "ls", '{"x": 1+2}')], ["call.malformed"]),
    (9, "hermes", "content", "stop", '<tool_call>{"name": "ls"}</tool_call>', [LS], []),
    (9, "deepseek_v3_1", "content", "stop", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ls<｜tool▁call▁end｜><｜tool▁calls▁end｜>", [LS], []),
    (9, "pythonic", "content", "stop", "[ls( )]", [LS], []),
    (9, "gemma4", "content", "stop", "<|tool_call>call:ls<tool_call|>", [LS], []),
    (10, "hermes", "content", "stop", "<tool_call></tool_call>ok", [("text", "ok")], ["call.unnamed"]),
    (10, "lfm2", "content", "stop", "<|tool_call_start|>[]<|tool_call_end|>ok", [("text", "ok")], ["call.unnamed"]),
    (10, "gemma4", "content", "stop", "<|tool_call>{a:1}<tool_call|>ok", [("text", "ok")], ["call.unnamed"]),
    (11, "hermes", "content", "stop", "<tool_call>garbage</tool_call>", [("text", "<tool_call>garbage</tool_call>")], []),
    (11, "mistral", "content", "stop", "[TOOL_CALLS] [not json]", [("text", "[TOOL_CALLS] [not json]")], []),
    (11, "gemma4", "content", "stop", "<|tool_call>nonsense<tool_call|>", [("text", "<|tool_call>nonsense<tool_call|>")], []),
    (12, "qwen3", "reasoning", "stop", f"I go.\n{HERMES_LS}", [("reasoning", "I go."), LS], ["rescue.call_in_reasoning"]),
    (12, "minimax_m2", "reasoning", "stop", 'I go.\n<minimax:tool_call>\n<invoke name="ls">\n</invoke>\n</minimax:tool_call>', [("reasoning", "I go."), LS], ["rescue.call_in_reasoning"]),
    (13, "qwen3", "reasoning", "stop", f"I write {HERMES_LS} then</think>ok", [("reasoning", f"I write {HERMES_LS} then"), ("text", "ok")], []),
    (14, "deepseek_v4", "content", "stop", "a</think>b", [("text", "ab")], ["reasoning.stray_closer"]),
    (14, "gemma4", "content", "stop", "a<channel|>b", [("text", "ab")], ["reasoning.stray_closer"]),
    (14, "minimax_m3", "content", "stop", "\n</mm:think>b", [("text", "b")], ["reasoning.stray_closer"]),
    (15, "kimi_k2", "content", "stop", "<think>a</think>b<think>c</think>d", [("reasoning", "a"), ("text", "b"), ("reasoning", "c"), ("text", "d")], []),
    (15, "hermes", "content", "stop", f"{HERMES_LS}<think>c</think>d", [LS, ("reasoning", "c"), ("text", "d")], []),
    (16, "deepseek_r1", "reasoning", "stop", "never closed", [("reasoning", "never closed")], []),
    (17, "hermes", "content", "stop", f"{HERMES_LS}</tool_call>ok", [LS, ("text", "ok")], ["rescue.duplicate_closer"]),
    (17, "kimi_k2", "content", "stop", KIMI.format("functions.ls:0", "{}") + "<|tool_calls_section_end|>", [LS], ["rescue.duplicate_closer"]),
    (17, "gemma4", "content", "stop", "<|tool_call>call:ls{}</tool_call>", [LS], ["rescue.wrong_closer"]),
    (18, "minimax_m2", "content", "stop", '<minimax:tool_call>\n<invoke name="edit">\n<parameter name="path">a</parameter>b</parameter>\n</invoke>\n</minimax:tool_call>', [("call", "edit", {"path": "a</parameter>b"})], ["rescue.quoted_closer"]),
    (18, "lfm2", "content", "stop", "<|tool_call_start|>[edit(path='sed '1p' x')]<|tool_call_end|>", [("call", "edit", {"path": "sed '1p' x"})], ["rescue.quoted_closer"]),
    (19, "glm47", "content", "stop", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>path</arg_key><arg_value>b</arg_value></tool_call>", [("call", "edit", {"path": "b"})], ["call.duplicate_argument"]),
    (20, "glm47", "content", "stop", "<tool_call>ls<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>", [("call", "ls", {"x": "1"})], []),
    (20, "minicpm5", "content", "stop", '<function name="edit"><param name="path">a</param><param name="x">1</param></function>', [("call", "edit", {"path": "a", "x": "1"})], []),
    (21, "glm47", "content", "stop", '<tool_call>edit<arg_key>path</arg_key><arg_value>"a"</arg_value></tool_call>', [("call", "edit", {"path": '"a"'})], []),
    (22, "granite", "content", "stop", "x Here is my thought process: y", [("text", "x Here is my thought process: y")], []),
    (23, "lfm2", "content", "stop", "<|tool_call_start|>[ls()]<|tool_call_end|>[ls()]<|tool_call_end|>", [LS], ["call.echo"]),
    (24, "kimi_k2", "content", "stop", KIMI.format("0", '{"q": "x"}'), [("call", "web-search.v2", {"q": "x"})], ["call.id_inferred"]),
    (25, "qwen3", "reasoning", "stop", f"I could\n{HERMES_LS}\nbut no.</think>ok", [("reasoning", f"I could\n{HERMES_LS}\nbut no."), ("text", "ok")], []),
    (25, "minimax_m2", "reasoning", "stop", f"So\n{MINIMAX_LS}\n</think>ok", [("reasoning", f"So\n{MINIMAX_LS}"), ("text", "ok")], []),
    (25, "kimi_k3", "reasoning", "stop", f"So {K3_LS} no<|close|>think<|sep|>", [("reasoning", f"So {K3_LS} no")], []),
    (26, "qwen3", "content", "stop", "Use the <think> tag, closed by </think>. Done.", [("text", "Use the <think> tag, closed by </think>. Done.")], []),
    (26, "deepseek_v4", "content", "stop", 'Write "<think>" and "</think>" there.', [("text", 'Write "<think>" and "</think>" there.')], []),
    (27, "glm47", "content", "stop", "<tool_call>edit<arg_key>path</arg_key><arg_value>a <tool_call> b <arg_key> c</arg_value><arg_key>count</arg_key><arg_value>3</arg_value></tool_call>", [("call", "edit", {"path": "a <tool_call> b <arg_key> c", "count": 3})], []),
    (28, "glm47", "content", "stop", "<tool_call>edit<arg_key>path</arg_key><arg_value><tool_call>ls</tool_call></arg_value></tool_call>", [("call", "edit", {"path": "<tool_call>ls</tool_call>"})], []),
    (29, "minimax_m2", "content", "stop", '<minimax:tool_call>\n<invoke name="edit">\n<parameter name="path">a</parameter>.\n</invoke>\n</minimax:tool_call>', [EDIT], ["call.noise"]),
    (29, "minimax_m2", "content", "stop", '<minimax:tool_call>\n<invoke name="edit">\n<parameter name="path">a</parameter> oh\n<parameter name="count">3</parameter>\n</invoke>\n</minimax:tool_call>', [("call", "edit", {"path": "a", "count": 3})], ["call.noise"]),
    (30, "gemma4", "content", "stop", '<|tool_call>call:edit{path:<|"|>a<|"|> count:3}<tool_call|>', [("call", "edit", {"path": "a", "count": 3})], ["rescue.missing_comma"]),
    (30, "gemma4", "content", "stop", '<|tool_call>call:edit{count:3 path:<|"|>a<|"|>}<tool_call|>', [("call", "edit", {"count": 3, "path": "a"})], ["rescue.missing_comma"]),
    (24, "kimi_k2", "content", "stop", KIMI.format("0", '{"zzz": 1}'), [("call", "0", {"zzz": 1})], ["call.unknown_tool"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "start", "reason", "text", "blocks", "notes"),
    [pytest.param(*case[1:], id=f"{case[0]}-{case[1]}") for case in POLICY],
)
def test_policy(name, start, reason, text, blocks, notes):
    turn = parse(resolve(name), text, TOOLS, Start(start), reason)
    assert told(turn) == blocks
    assert codes(turn) == notes
    if reason == "length":
        assert turn.reason == "length"


def test_every_line_of_the_table_is_pinned():
    page = (Path(__file__).parents[2] / "docs" / "parsers.md").read_text(encoding="utf-8")
    lines = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert lines == list(range(1, len(lines) + 1))
    assert {case[0] for case in POLICY} == set(lines)


@needs_shared("vectors")
def test_inputs_on_which_peers_disagree_are_read_alike_in_every_cut():
    """Whatever was decided for them, it is decided in every cut."""
    place = shared_folder("vectors")
    assert place is not None
    rows = (place / "_divergent.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, rows):
        stage = row.get("stage")
        tool = row["family"] if stage == "tool" else row.get("parser_tool")
        thought = row["family"] if stage not in (None, "tool") else row.get("parser_reasoning")
        vector = {**row, "parser_tool": tool, "parser_reasoning": thought, "init": {"starts_in": row.get("starts_in")}}
        dialect = dialect_of(vector)
        text, tools, start = row["text"], tools_of(vector), start_of(vector, dialect)
        whole = merge(events_of(dialect, [text], tools, start), text)
        for pieces in (cut(text, 1), cut(text, 3), random_cut(text, 1), row.get("chunks") or [text]):
            if "".join(pieces) == text:
                assert merge(events_of(dialect, pieces, tools, start), text) == whole, row["id"]
