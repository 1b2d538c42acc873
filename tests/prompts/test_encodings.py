"""The encodings of models without a template."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from turnwire.prompts.templates.encodings import DeepSeekEncoding, HarmonyEncoding
from turnwire.prompts.templates.encodings.typescript import declared
from turnwire.prompts.templates.template import TemplateFailure

TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}]


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


STORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": "Looking.",
        "reasoning_content": "hm",
        "tool_calls": [call("1", "look", {"path": 'a"b', "deep": True, "n": [1, None]}), call("2", "stat", "{}")],
    },
    {"role": "tool", "tool_call_id": "1", "content": "one"},
    {"role": "tool", "tool_call_id": "2", "content": "two"},
]


def test_deepseek_v4() -> None:
    text = DeepSeekEncoding("v4").render(STORY, args={"thinking": True})
    assert text == (
        "<｜begin▁of▁sentence｜>Be kind.<｜User｜>Hi<｜Assistant｜><think>hm</think>Looking."
        '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="look">\n'
        '<｜DSML｜parameter name="path" string="true">a"b</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="deep" string="false">true</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="n" string="false">[1, null]</｜DSML｜parameter>\n'
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="stat">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls><｜end▁of▁sentence｜>'
        "<｜User｜><tool_result>one</tool_result>\n\n<tool_result>two</tool_result><｜Assistant｜><think>"
    )
    assert DeepSeekEncoding("v4").render(STORY[:2]).endswith("<｜User｜>Hi<｜Assistant｜></think>")


def test_deepseek_v4_keeps_thoughts_with_tools_and_drops_them_without() -> None:
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "deep"},
        {"role": "user", "content": "c"},
    ]
    encoding = DeepSeekEncoding("v4")
    assert "deep" not in encoding.render(chat, args={"thinking": True})
    assert "deep" in encoding.render(chat, args={"thinking": True, "drop_thinking": False})
    assert "deep" in encoding.render(chat, tools=TOOLS, args={"thinking": True})
    assert "deep" not in encoding.render(chat, tools=TOOLS)
    assert encoding.render(chat, args={"thinking": True, "reasoning_effort": "max"}).startswith(
        "<｜begin▁of▁sentence｜>Think as long"
    )


def test_deepseek_v32() -> None:
    text = DeepSeekEncoding("v3.2").render(STORY, tools=TOOLS, args={"thinking": True})
    assert '<｜DSML｜function_calls>\n<｜DSML｜invoke name="look">' in text
    assert text.endswith(
        "</｜DSML｜function_calls><｜end▁of▁sentence｜>\n\n<function_results>\n<result>one</result>\n"
        "<result>two</result>\n</function_results>\n\n<think>"
    )
    assert DeepSeekEncoding("v3.2").render(STORY[:2]).endswith("<｜Assistant｜><think></think>")


def test_harmony() -> None:
    encoding = HarmonyEncoding(clock=lambda: datetime(2026, 1, 2), identity="You are Test.")
    text = encoding.render(STORY, tools=TOOLS, args={"reasoning_effort": "high"})
    assert text.startswith(
        "<|start|>system<|message|>You are Test.\nCurrent date: 2026-01-02\n\nReasoning: high\n\n# Valid channels: "
    )
    assert "<|start|>developer<|message|># Instructions\n\nBe kind.\n\n# Tools\n\n## functions\n\nnamespace" in text
    assert text.endswith(
        "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>hm<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>Looking.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
        '{"path": "a\\"b", "deep": true, "n": [1, null]}<|call|>'
        "<|start|>assistant<|channel|>commentary to=functions.stat <|constrain|>json<|message|>{}<|call|>"
        "<|start|>functions.look to=assistant<|channel|>commentary<|message|>one<|end|>"
        "<|start|>functions.stat to=assistant<|channel|>commentary<|message|>two<|end|><|start|>assistant"
    )


def test_harmony_drops_analysis_once_a_final_answer_came() -> None:
    after = [*STORY, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "More"}]
    encoding = HarmonyEncoding()
    assert "analysis<|message|>hm" not in encoding.render(after)
    assert "analysis<|message|>hm" in encoding.render(after, args={"preserve_thinking": True})
    assert "<|channel|>final<|message|>Done.<|end|>" in encoding.render(after)


def test_tools_are_declared_in_typescript() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where.\nAbsolute."},
            "kind": {"enum": ["a", 1]},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "limit": {"type": ["integer", "null"], "default": 3},
            "map": {"type": "object"},
            "deep": {"type": "object", "properties": {"x": {"type": "number", "nullable": True}}, "required": ["x"]},
            "odd": True,
        },
        "required": ["path"],
    }
    assert declared({"name": "look", "description": "Looks\naround.", "parameters": schema}) == (
        "// Looks\n// around.\ntype look = (_: {\n// Where.\n// Absolute.\npath: string,\n"
        'kind?: "a" | 1,\ntags?: (string | null)[],\nlimit?: number | null, // default: 3\nmap?: object,\n'
        "deep?: {\nx: number | null,\n},\nodd?: any,\n}) => any;"
    )
    assert declared({"name": "now"}) == "type now = () => any;"
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(50):
        nested = {"type": "object", "properties": {"x": nested}}
    assert "any" in declared({"name": "deep", "parameters": nested})


@pytest.mark.parametrize("encoding", [DeepSeekEncoding(), HarmonyEncoding()])
@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"role": "user", "content": 5},
    ],
)
def test_what_cannot_be_encoded_is_refused(encoding: Any, message: dict[str, Any]) -> None:
    with pytest.raises(TemplateFailure):
        encoding.render([{"role": "user", "content": "a"}, message])
