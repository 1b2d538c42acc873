"""Qwen3-Coder's calls and the families that share them: the project's own cases."""

import json

import pytest
from running import parse

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
                "options": {"type": "object"},
                "note": {"type": ["string", "null"]},
            },
        },
    ),
    Tool(name="ls", schema={"type": "object", "properties": {}}),
]
QWEN = resolve("qwen3_coder")


def call(*parameters: tuple[str, str], name: str = "edit") -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def test_thought_text_and_two_calls_keep_their_order():
    text = f"Look first.\n</think>\n\nOn it.\n\n{call(('path', 'a.py'))}\n{call(name='ls')}\nDone."
    turn = parse(QWEN, text, TOOLS, Start("reasoning"))
    assert [(b.kind, b.name, b.text) for b in turn.blocks] == [
        ("reasoning", "", "Look first."),
        ("text", "", "On it."),
        ("tool_call", "edit", '{"path": "a.py"}'),
        ("tool_call", "ls", "{}"),
        ("text", "", "Done."),
    ]
    assert turn.reason == "tool_calls"
    assert turn.notes == []


def test_a_thought_after_a_call_is_a_thought():
    turn = parse(QWEN, f"{call(name='ls')}\n<think>\nagain\n</think>\n{call(name='ls')}", TOOLS)
    assert [b.kind for b in turn.blocks] == ["tool_call", "reasoning", "tool_call"]
    assert turn.blocks[1].text == "again"


@pytest.mark.parametrize(
    ("key", "written", "expected"),
    [
        ("path", "007", "007"),
        ("path", "true", "true"),
        ("path", '{"a": 1}', '{"a": 1}'),
        ("path", "    if x:\n", "    if x:\n"),
        ("path", "", ""),
        ("path", 'a "quoted" \\ back\tslash', 'a "quoted" \\ back\tslash'),
        ("path", "1 < 2 && <b>", "1 < 2 && <b>"),
        ("path", "日本 🙂", "日本 🙂"),
        ("count", "42", 42),
        ("count", "123456789012345678901234567890", 123456789012345678901234567890),
        ("count", "many", "many"),
        ("options", '{"deep": [1, 2]}', {"deep": [1, 2]}),
        ("options", "{'deep': True, 'x': None}", {"deep": True, "x": None}),
        ("note", "null", None),
        ("note", "none", "none"),
        ("unknown", "5", "5"),
    ],
)
def test_values_are_typed_by_the_schema(key, written, expected):
    turn = parse(QWEN, call((key, written)), TOOLS)
    assert json.loads(turn.blocks[0].text) == {key: expected}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>", "rescue.missing_wrapper"),
        ("<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>", None),
        ("<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</tool_call>", "rescue.missing_closer"),
        ("<tool_call>\n<function=edit>\n<parameter=path>\na\n</function>\n</tool_call>", "rescue.missing_closer"),
        ("<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>", "rescue.missing_closer"),
        ("<tool_call>\n<function=edit>\n<parameter=path>\na</parameter>\n</function>\n</tool_call>", None),
        (
            "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</parameter>\n</function>\n</tool_call>",
            "rescue.duplicate_closer",
        ),
        ("<tool_call>\n<function=edit>\n<parameter=path>\na\n</param>\n</function></tool_call>", "rescue.wrong_closer"),
        ("<tool_call> <function edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>", None),
    ],
)
def test_near_misses_are_rescued_and_reported(text, code):
    turn = parse(QWEN, text, TOOLS)
    assert [(b.kind, b.name, b.text) for b in turn.blocks] == [("tool_call", "edit", '{"path": "a"}')]
    if code:
        assert any(note.endswith(code) for note in turn.notes)


def test_a_forgotten_closer_ends_at_the_next_known_parameter():
    text = call(("path", "a"), ("count", "3")).replace("</parameter>\n", "", 1)
    turn = parse(QWEN, text, TOOLS)
    assert json.loads(turn.blocks[0].text) == {"path": "a", "count": 3}


@pytest.mark.parametrize(
    "value",
    [
        "print('</parameter>') # still code",
        "a </function> b",
        "say </tool_call> twice",
        "<tool_call>\n<function=ls>\n<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>\nas an example",
    ],
)
def test_a_value_may_hold_its_own_markup(value):
    turn = parse(QWEN, call(("path", value)), TOOLS)
    assert [json.loads(b.text) for b in turn.of("tool_call")] == [{"path": value}]


@pytest.mark.parametrize(
    "text",
    [
        "Write <tool_call> around it.",
        "Use `<function=edit>` if you must <function=nosuch>.",
        "a < b and <tool_ca",
    ],
)
def test_prose_about_markup_stays_prose(text):
    turn = parse(QWEN, text, [TOOLS[1]])
    assert [(b.kind, b.text) for b in turn.blocks] == [("text", text)]


def test_a_call_inside_an_open_thought_ends_it():
    turn = parse(QWEN, f"I should look.\n{call(name='ls')}", TOOLS, Start("reasoning"))
    assert [b.kind for b in turn.blocks] == ["reasoning", "tool_call"]
    assert turn.notes == ["1:rescue.call_in_reasoning"]


def test_a_call_cut_inside_a_value_is_not_complete():
    text = "<tool_call>\n<function=edit>\n<parameter=path>\nsrc/ma"
    turn = parse(QWEN, text, TOOLS, reason="length")
    assert turn.reason == "length"
    assert turn.blocks[0].malformed
    assert turn.notes == ["1:call.truncated"]
