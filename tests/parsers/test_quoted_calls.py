"""Calls that a thought weighs are not run, whatever the family; a thought that ends with its call is a call."""

from __future__ import annotations

import json

import pytest
from running import parse
from samples import SAMPLES, TOOLS

from turnwire.parsers import Dialect, Start, dialects, resolve

# Whose thoughts hold calls by design, or whose messages each have a header, so that no thought goes on after one.
PAUSED = {d.name for d in dialects() if d.reasoning is not None and d.reasoning.calls == "pause"}
THINKING = [
    pytest.param(d, id=d.name)
    for d in dialects()
    if d.reasoning is not None and d.calls and d.reasoning.calls == "end" and d.name not in {"granite", "xlam"}
]


def calls_of(dialect: Dialect) -> str:
    """The part of a family's sample from its first call to its last."""
    text = SAMPLES[dialect.name]
    calls = text[text.index("On it.") + len("On it.") : text.rindex("Done.")]
    opener = dialect.reasoning.open[0] if dialect.reasoning is not None else ""
    return calls.split(opener)[0].removesuffix("<response>\n").strip()


@pytest.mark.parametrize("dialect", THINKING)
@pytest.mark.parametrize("after", [".\nBut that is dangerous.\n", "\n", "\n\nNo."])
def test_a_call_that_the_thought_goes_on_after_is_thought(dialect, after):
    assert dialect.reasoning is not None
    calls = calls_of(dialect)
    close = dialect.reasoning.close[0]
    turn = parse(dialect, f"I could run this:\n{calls}{after}{close}Answer.", TOOLS, Start("reasoning"))
    assert turn.of("tool_call") == []
    assert turn.text("text") == "Answer."
    assert calls in turn.text("reasoning")


@pytest.mark.parametrize("dialect", THINKING)
def test_a_thought_that_ends_with_its_calls_runs_them(dialect):
    calls = calls_of(dialect)
    turn = parse(dialect, f"I run this:\n{calls}\n", TOOLS, Start("reasoning"))
    assert [(c.name, c.malformed) for c in turn.of("tool_call")] == [("edit", False), ("ls", False)]
    assert any(note.endswith("rescue.call_in_reasoning") for note in turn.notes)
    cut = parse(dialect, f"I run this:\n{calls}\n", TOOLS, Start("reasoning"), "length")
    assert cut.of("tool_call") == [], "more of the thought may have been coming"


def test_families_whose_thoughts_hold_calls_keep_them():
    assert {"apertus", "trinity"} == PAUSED
    turn = parse(resolve("trinity"), '<think>a\n<tool_call>{"name": "ls"}</tool_call>\nb</think>c', TOOLS)
    assert [b.kind for b in turn.blocks] == ["reasoning", "tool_call", "reasoning", "text"]


def test_a_call_in_a_code_fence_of_a_thought_is_thought():
    text = "Like so:\n```\n<tool_call>\n<function=ls>\n</function>\n</tool_call>\n```"
    turn = parse(resolve("nemotron_v3"), text, TOOLS, Start("reasoning"))
    assert [(b.kind, b.text) for b in turn.blocks] == [("reasoning", text)]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Use the <think> tag.", ["text"]),
        ("Use <think>, then </think>.", ["text"]),
        ('The "<think>" marker.', ["text"]),
        ("Between `<think>` and `</think>`.", ["text"]),
        ("a <think>b</think> c", ["text", "reasoning", "text"]),
        ("First.\n<think>\nhm\n</think>\nThen.", ["text", "reasoning", "text"]),
    ],
)
@pytest.mark.parametrize("name", ["qwen3_coder", "hermes", "glm47", "deepseek_v4", "kimi_k2", "minimax_m2", "step3p5"])
def test_an_answer_that_speaks_of_thoughts_is_not_hidden(name, text, kinds):
    turn = parse(resolve(name), text, TOOLS, Start())
    assert [b.kind for b in turn.blocks] == kinds
    if kinds == ["text"]:
        assert turn.text("text") == text


def test_a_quoted_message_marker_stays_in_the_answer():
    text = '<|content_text|>The token "<|message_model|>" begins a message.<|end_message|>'
    turn = parse(resolve("inkling"), text, TOOLS, Start("header"))
    assert turn.text("text") == 'The token "<|message_model|>" begins a message.'


def test_the_turn_marker_of_command_r_is_not_shown():
    turn = parse(resolve("command_r_plus"), "<|CHATBOT_TOKEN|>Hello.", TOOLS)
    assert [(b.kind, b.text) for b in turn.blocks] == [("text", "Hello.")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.edit:0<|tool_call_argument_begin|>{}"),
        ("deepseek_v3_1", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>{"path": "a"}'),
        ("functionary_v3_1", '<function=edit>{"path": "a"}'),
        ("glm47", "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value>"),
        ("hermes", '<tool_call>{"name": "edit", "arguments": {"path": "a"}'),
    ],
)
def test_complete_arguments_without_a_closer_are_reported(name, text):
    turn = parse(resolve(name), text, TOOLS)
    (call,) = turn.of("tool_call")
    assert not call.malformed
    assert isinstance(json.loads(call.text), dict)
    assert [note.partition(":")[2] for note in turn.notes] == ["rescue.missing_closer"]
