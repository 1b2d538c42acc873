"""Families with their own special markers around JSON calls: Cohere, Functionary 3.1, FireFunction, GigaChat, Apertus, Apriel."""
# ruff: noqa: E501

from __future__ import annotations

import pytest
from test_cases import EDIT, LS, codes, envelope, read, told

R, T = "reasoning", "text"
ACTIONS = '[\n    {"tool_call_id": "0", "tool_name": "edit", "parameters": {"path": "a"}},\n    {"tool_call_id": "1", "tool_name": "ls", "parameters": {}}\n]'
ACTION = f"<|START_ACTION|>{ACTIONS}<|END_ACTION|>"
ROLE = "<|message_sep|>\n\nfunction call<|role_sep|>\n"

PLAIN = [
    ("cohere_command3", f"<|START_THINKING|>hm<|END_THINKING|>{ACTION}", [(R, "hm"), EDIT, LS]),
    ("cohere_command3", "<|START_RESPONSE|>Hi<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", [(T, "Hi")]),
    ("cohere_command3", '<|START_ACTION|>{"tool_name": "edit", "parameters": {"path": "a"}}<|END_ACTION|>', [EDIT]),
    (
        "cohere_command3",
        '<|START_ACTION|>[{"tool_name": "edit", "parameters": {"path": "]<|END_ACTION|>"}}]<|END_ACTION|>',
        [("call", "edit", {"path": "]<|END_ACTION|>"})],
    ),
    (
        "cohere_command3",
        "<|START_RESPONSE|>As <co>said</co: 0:[0]>.<|END_RESPONSE|>",
        [(T, "As <co>said</co: 0:[0]>.")],
    ),
    (
        "cohere_command3",
        f"<|START_THINKING|>hm<|START_RESPONSE|>Hi<|END_RESPONSE|>{ACTION}",
        [(R, "hm"), (T, "Hi"), EDIT, LS],
    ),
    (
        "cohere_command4",
        f"<|START_THINKING|>a<|END_THINKING|><|START_TEXT|>b<|END_TEXT|>{ACTION}c",
        [(R, "a"), (T, "b"), EDIT, LS, (T, "c")],
    ),
    ("command_r_plus", f"Let me.\nAction:\n```json\n{ACTIONS}\n```", [(T, "Let me."), EDIT, LS]),
    ("command_r_plus", "Action: none needed.", [(T, "Action: none needed.")]),
    (
        "functionary_v3_1",
        'Hm. <function=edit>{"path": "a"}</function><function=ls>{}</function>',
        [(T, "Hm."), EDIT, LS],
    ),
    (
        "functionary_v3_1",
        '<function=edit>{"path": "</function>"}</function>',
        [("call", "edit", {"path": "</function>"})],
    ),
    ("functionary_v3_1", "<function=ls></function><|eom_id|>", [LS]),
    ("functionary_v3_1", "as in <function=x y> or <function=ls> so", [(T, "as in <function=x y> or <function=ls> so")]),
    ("firefunction_v2", f" functools[{envelope(path='a')}, {envelope('ls')}]", [EDIT, LS]),
    ("gigachat3", f"Hi.{ROLE}{envelope(path='a')}</s>", [(T, "Hi."), EDIT]),
    ("gigachat3", f"<|function_call|>{envelope('ls')}", [LS]),
    ("gigachat3", "A function call is made.<|message_sep|>", [(T, "A function call is made.")]),
    ("apertus", 'Hi.<|tools_prefix|>[{"edit": {"path": "a"}}, {"ls": {}}]<|tools_suffix|>', [(T, "Hi."), EDIT, LS]),
    (
        "apertus",
        '<|inner_prefix|>a<|tools_prefix|>[{"ls": {}}]<|tools_suffix|>b<|inner_suffix|>c<|assistant_end|>',
        [(R, "a"), LS, (R, "b"), (T, "c")],
    ),
    (
        "apriel_1_5",
        "Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\nHi\n[END FINAL RESPONSE]",
        [(R, "hm"), (T, "Hi")],
    ),
    (
        "apriel_1_5",
        f"Hi.<thinking>hm</thinking>\n<tool_calls>[{envelope(path='a')}]</tool_calls>",
        [(T, "Hi."), (R, "hm"), EDIT],
    ),
    (
        "apriel_1_6",
        f"Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{envelope('ls')}]</tool_calls>",
        [(R, "hm"), LS],
    ),
]


@pytest.mark.parametrize(("name", "text", "blocks"), PLAIN)
def test_plain_output(name, text, blocks):
    turn = read(name, text)
    assert told(turn) == blocks
    assert codes(turn) == []


@pytest.mark.parametrize(
    ("name", "text", "blocks", "code"),
    [
        ("cohere_command3", f"<|START_THINKING|>hm{ACTION}", [(R, "hm"), EDIT, LS], "rescue.call_in_reasoning"),
        ("cohere_command3", ACTION.removesuffix("]<|END_ACTION|>"), [EDIT, LS], ""),
        (
            "cohere_command3",
            ACTION.replace('"edit"', '"nosuch"'),
            [("call", "nosuch", {"path": "a"}), LS],
            "call.unknown_tool",
        ),
        (
            "gigachat3",
            f'{ROLE}{{"name": "edit", "arguments": "no object"}}',
            [("call", "edit", "no object")],
            "call.malformed",
        ),
        ("gigachat3", f"function call<|role_sep|>\n{envelope('ls')}", [LS], ""),
        ("apertus", '<|tools_prefix|>[{"ls": {}}', [LS], ""),
        ("functionary_v3_1", '<function=edit>{"path": "a"}', [EDIT], ""),
    ],
)
def test_broken_output_is_rescued(name, text, blocks, code):
    turn = read(name, text)
    assert told(turn) == blocks
    assert code in codes(turn) or not code


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cohere_command3", '<|START_ACTION|>[{"tool_name": "edit", "parameters": {"path": "a'),
        ("gigachat3", '<|function_call|>{"name": "edit", "arguments": {"path": "a'),
        ("apertus", '<|tools_prefix|>[{"edit": {"path": "a'),
        ("apriel_1_6", '[BEGIN FINAL RESPONSE]<tool_calls>[{"name": "edit", "arguments": {"path": "a'),
        ("functionary_v3_1", '<function=edit>{"path": "a'),
    ],
)
def test_a_cut_call_is_not_dispatched(name, text):
    turn = read(name, text, reason="length")
    assert [(b.name, b.malformed) for b in turn.blocks] == [("edit", True)]
    assert turn.reason == "length"
    assert "call.truncated" in codes(turn)


def test_ids_in_the_format_are_kept():
    assert [block.call_id for block in read("cohere_command4", ACTION, "content").blocks] == ["0", "1"]
