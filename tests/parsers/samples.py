"""For each dialect, outputs as its model writes them: a thought, text, two calls, text, another thought."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.parsers import Dialect
from turnwire.turns import Tool

TOOLS = [
    Tool(
        name="edit",
        schema={
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "count": {"type": "integer"},
                "deep": {"type": "boolean"},
                "options": {"type": "object"},
                "note": {"type": ["string", "null"]},
            },
            "required": ["path"],
        },
    ),
    Tool(name="ls", schema={"type": "object", "properties": {}}),
]


# Words that stand in the headers and tags of routed families.
ROUTED = (
    "analysis", "commentary", "final", "assistant", "assistantfinal", "analysisWe", " to=functions.edit", " to=edit",
    " to=self", " to=user", " to=python", " json", "all\n", "edit\n", "think", "response", "tools", "call", "argument",
    "json", "message", ' tool="edit"', ' key="path" type="string"', ' key="count" type="number"', "<|open|>tools<|sep|>",
    '<|open|>call tool="edit"<|sep|>', '<|open|>argument key="path"<|sep|>', "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>", "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "{\"path\": \"x",
)  # fmt: skip


# Fields of a table that are not markers.
SKIPPED = ("name", "aliases", "reasoning_aliases", "turns", "header", "writes", "no_form", "known_by", "ids")


def markers(dialect: Dialect) -> list[str]:
    """Every literal of a dialect's tables."""
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, str):
            if 1 < len(value) < 40 and not value.isidentifier() and "\\" not in value[:2]:
                found.add(value)
        elif isinstance(value, tuple):
            for item in value:
                walk(item)
        elif isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                if name not in SKIPPED:
                    walk(getattr(value, name))

    walk(dialect)
    return sorted(found.union(ROUTED if dialect.router is not None else ()))


QWEN = (
    'Plan it.\n</think>\n\nOn it.\n\n<tool_call>\n<function=edit>\n<parameter=path>\nsrc/a "b".py\n</parameter>\n'
    "<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=ls>\n</function>\n"
    "</tool_call>\n<think>\nagain\n</think>\nDone."
)
HERMES = (
    '<think>\nPlan.\n</think>\n\nOn it.\n<tool_call>\n{"name": "edit", "arguments": {"path": "a \\"b\\" {c}", '
    '"count": 3}}\n</tool_call>\n<tool_call>\n{"arguments": {}, "name": "ls"}\n</tool_call>\nDone.'
)
GLM = (
    "<think>Plan.</think>On it.<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a < b</arg_value>\n<arg_key>count"
    "</arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>ls</tool_call>Done."
)
LIST = '[{"name": "edit", "arguments": {"path": "a]b", "count": 3}}, {"name": "ls", "arguments": {}}]'
V3 = (
    "<think>Plan.</think>On it.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>edit\n```json\n"
    '{"path": "a", "count": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ls\n```json\n{}\n```'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>Done.<｜end▁of▁sentence｜>"
)
V31 = (
    "<think>Plan.</think>On it.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>"
    '{"path": "a", "count": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>ls<｜tool▁sep｜>{}<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜>Done."
)


def dsml(block: str, space: str = "") -> str:
    tag = f"｜DSML｜{space}"
    return (
        f'<think>Plan.</think>On it.\n\n<{tag}{block}>\n<{tag}invoke name="edit">\n<{tag}parameter name="path" '
        f'string="true">ls 2>&1</{tag}parameter>\n<{tag}parameter name="count" string="false">3</{tag}parameter>\n'
        f'</{tag}invoke>\n<{tag}invoke name="ls">\n</{tag}invoke>\n</{tag}{block}>\nDone.'
    )


KIMI = (
    "<think>Plan.</think>On it.<|tool_calls_section_begin|><|tool_call_begin|>functions.edit:0"
    '<|tool_call_argument_begin|>{"path": "a", "count": 3}<|tool_call_end|><|tool_call_begin|>functions.ls:1'
    "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>Done."
)
INVOKE = (
    'Plan.\n</think>\n\nOn it.\n<minimax:tool_call>\n<invoke name="edit">\n<parameter name="path">a</parameter>\n'
    '<parameter name="count">3</parameter>\n</invoke>\n<invoke name="ls">\n</invoke>\n</minimax:tool_call>\nDone.'
)

ACTION = (
    '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "edit", "parameters": {"path": "a", "count": 3}},\n'
    '    {"tool_call_id": "1", "tool_name": "ls", "parameters": {}}\n]<|END_ACTION|>'
)

SAMPLES: dict[str, str] = {
    "qwen3_coder": QWEN,
    "nemotron_v3": QWEN,
    "step3p5": QWEN,
    "mimo": QWEN.replace(">\n", ">").replace("\n</parameter", "</parameter"),
    "seed_oss": QWEN.replace("tool_call>", "seed:tool_call>").replace("think>", "seed:think>"),
    "hermes": HERMES,
    "qwen3": HERMES,
    "qwen3_thinking": HERMES.removeprefix("<think>\n"),
    "qwen2_5_coder": HERMES,
    "trinity": HERMES,
    "longcat": HERMES.replace("tool_call>", "longcat_tool_call>").replace("think>", "longcat_think>"),
    "ernie45": HERMES.removeprefix("<think>\n").replace("Done.", "<response>\nDone.\n</response>\n"),
    "internlm2": (
        'On it.<|action_start|><|plugin|>\n{"name": "edit", "parameters": {"path": "a", "count": 3}}\n<|action_end|>'
        '<|action_start|> <|plugin|>\n{"name": "ls", "parameters": {}}<|action_end|>Done.'
    ),
    "minimax_m1": (
        '<think>Plan.</think>On it.<tool_calls>\n{"name": "edit", "arguments": {"path": "a", "count": 3}}\n'
        '{"name": "ls", "arguments": {}}\n</tool_calls>Done.'
    ),
    "nemotron_deci": f"<think>Plan.</think>On it.<TOOLCALL>{LIST}</TOOLCALL>Done.",
    "jamba": f"On it.<tool_calls>{LIST}</tool_calls>Done.",
    "hunyuan_a13b": f"<think>\nPlan.\n</think>\n<answer>\nOn it.<tool_calls>{LIST}</tool_calls>Done.\n</answer>",
    "granite": f"Here is my thought process: Plan. Here is my response: On it.\n<|tool_call|>{LIST}Done.",
    "granite_20b_fc": (
        'On it.<function_call> {"name": "edit", "arguments": {"path": "a", "count": 3}}\n'
        '<function_call> {"name": "ls", "arguments": {}}Done.'
    ),
    "phi4_mini": f"On it. functools{LIST} Done.",
    "llama3_json": (
        'On it. {"name": "edit", "parameters": {"path": "a;b", "count": 3}}; {"name": "ls", "parameters": {}} Done.'
        "<|eot_id|>"
    ),
    "plain_json": f"On it. {LIST} Done.",
    "glm45": GLM,
    "glm47": GLM.replace("\n", ""),
    "ling3": GLM,
    "poolside_v1": GLM,
    "hy_v3": (
        "<think>Plan.</think>On it.<tool_calls>\n<tool_call>edit<tool_sep>\n<arg_key>path</arg_key>\n<arg_value>a"
        "</arg_value>\n<arg_key>count</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>ls<tool_sep>\n"
        "</tool_call>\n</tool_calls>Done."
    ),
    "deepseek_r1": V3,
    "deepseek_v3": V3,
    "deepseek_v3_1": V31,
    "deepseek_v3_2": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "deepseek_v4_1": dsml("calls", " "),
    "kimi_k2": KIMI,
    "kimi_k2_5": KIMI,
    "mistral": (
        '[THINK]Plan.[/THINK]On it.[TOOL_CALLS]edit[CALL_ID]abcdefghi[ARGS]{"path": "a", "count": 3}'
        "[TOOL_CALLS]ls[ARGS]{}Done."
    ),
    "minimax_m2": INVOKE,
    "minimax_m2_append_think": INVOKE,
    "kimi_vl": "◁think▷Plan.◁/think▷On it. Done.",
    "harmony": (
        "<|channel|>analysis<|message|>Plan.<|end|><|start|>assistant<|channel|>commentary<|message|>On it.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.edit <|constrain|>json<|message|>"
        '{"path": "a", "count": 3}<|call|><|start|>assistant to=functions.ls<|channel|>commentary json<|message|>{}'
        "<|call|><|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    ),
    "muse_glimmer": (
        " to=self<|message|>Plan.<|eom|><|start|>assistant to=user<|message|>On it.<|eom|><|start|>assistant to=edit"
        '<|message|><atem:function_calls>\n<atem:invoke name="edit">\n<atem:parameter name="path">src/a'
        '</atem:parameter>\n<atem:parameter name="count">3</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
        '<|eom|><|start|>assistant to=ls<|message|><atem:function_calls>\n<atem:invoke name="ls.ls">\n</atem:invoke>\n'
        "</atem:function_calls><|eom|><|start|>assistant to=user<|message|>Done.<|eot|>"
    ),
    "inkling": (
        "<|content_thinking|>Plan.<|end_message|><|message_model|><|content_text|>On it.<|end_message|>"
        '<|message_model|>edit<|content_invoke_tool_json|>{"name": "edit", "args": {"path": "a", "count": 3}}'
        '<|end_message|><|message_model|>ls<|content_invoke_tool_json|>{"name": "ls", "args": {}}<|end_message|>'
        "<|message_model|><|content_text|>Done.<|content_model_end_sampling|>"
    ),
    "solar_open": (
        "<|think|>Plan.<|end|><|begin|>assistant<|content|>On it.<|end|><|begin|>assistant<|tool_calls|>"
        '<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>edit<|tool_call:args|>{"path": "a", "count": 3}'
        "<|tool_call:end|><|tool_call:begin|>f6g7h8i9j0<|tool_call:name|>ls<|tool_call:args|>{}<|tool_call:end|>"
        "<|calls|><|begin|>assistant<|content|>Done.<|end|>"
    ),
    "kimi_k3": (
        "<|open|>think<|sep|>Plan.<|close|>think<|sep|><|open|>response<|sep|>On it.<|close|>response<|sep|>"
        '<|open|>tools<|sep|><|open|>call tool="edit" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>'
        'src/a<|close|>argument<|sep|><|open|>argument key="count" type="number"<|sep|>3<|close|>argument<|sep|>'
        '<|close|>call<|sep|><|open|>call tool="ls" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
        "<|open|>response<|sep|>Done.<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"
    ),
    "functionary_v3_2": ('all\nOn it.>>>edit\n{"path": "a", "count": 3}>>>ls\n{}>>>all\nDone.<|eot_id|>'),
    "functionary_v3_1": (
        'On it. <function=edit>{"path": "a", "count": 3}</function><function=ls>{}</function> Done.<|eom_id|>'
    ),
    "gigachat3": (
        'On it.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "edit", "arguments": {"path": "a", "count": 3}}'
        '<|function_call|>{"name": "ls", "arguments": {}}Done.</s>'
    ),
    "gigachat3_1": (
        'On it.<|function_call|>{"name": "edit", "arguments": {"path": "a", "count": 3}}<|message_sep|>\n\nfunction call'
        '<|role_sep|>\n{"name": "ls", "arguments": {}}Done.</s>'
    ),
    "glm4v": "<think>Plan.</think><answer>On it. Done.</answer>",
    "cohere_command3": f"<|START_THINKING|>Plan.<|END_THINKING|><|START_RESPONSE|>On it.<|END_RESPONSE|>{ACTION}Done.",
    "cohere_command4": f"Plan.<|END_THINKING|><|START_TEXT|>On it.<|END_TEXT|>{ACTION}Done.<|END_OF_TURN_TOKEN|>",
    "command_r_plus": (
        'On it.\nAction:\n```json\n[\n    {\n        "tool_name": "edit",\n        "parameters": {"path": "a", '
        '"count": 3}'
        '\n    },\n    {"tool_name": "ls", "parameters": {}}\n]```\nDone.'
    ),
    "apertus": (
        '<|inner_prefix|>Plan.<|inner_suffix|>On it.<|tools_prefix|>[{"edit": {"path": "a", "count": 3}}, {"ls": {}}]'
        "<|tools_suffix|>Done.<|assistant_end|>"
    ),
    "apriel_1_5": f"<thinking>Plan.</thinking>On it.\n<tool_calls>{LIST}</tool_calls>Done.",
    "apriel_1_6": f"Plan.\n[BEGIN FINAL RESPONSE]\nOn it.\n<tool_calls>{LIST}</tool_calls>Done.",
    "think": "<think>Plan.</think>On it. Done.",
    "plain": "On it. Done.",
    "pythonic": 'On it.\n[edit(path="a", count=3), ls()]\nDone.',
    "llama4_pythonic": 'On it.<|python_start|>[edit(path="a", count=3), ls()]<|python_end|>Done.<|eot|>',
    "olmo3": (
        'Plan.</think>On it.<function_calls>edit(path="a", count=3, options={1: ({2},)})\nls()</function_calls>Done.'
    ),
    "lfm2": '<think>Plan.</think>On it.<|tool_call_start|>[edit(path="a", count=3), ls()]<|tool_call_end|>Done.',
    "gemma4": (
        '<|channel>thought\nPlan.<channel|>On it.<|tool_call>call:edit{path:<|"|>a}<|"|>,count:3,options:{x:[1,<|"|>b'
        '<|"|>]}}<tool_call|><|tool_call>call:ls{}<tool_call|>Done.<turn|>'
    ),
    "functiongemma": (
        "On it.<start_function_call>call:edit{path:<escape>a<escape>,count:3}<end_function_call><start_function_call>"
        "call:ls{}<end_function_call>Done.<end_of_turn>"
    ),
    "minimax_m3": (
        "<mm:think>Plan.</mm:think>On it.#<tool_call>\n#<invoke name='edit'>#<path>a#</path>#<count>3#</count>#<options>"
        "#<x>#<item>1#</item>#<item>b#</item>#</x>#</options>#</invoke>\n#<invoke name='ls'>#</invoke>\n#</tool_call>Done."
    ).replace("#", "]<]minimax[>["),
    "step3": (
        "Plan.</think>On it.<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="edit"><steptml:parameter name="path">a</steptml:parameter><steptml:parameter '
        'name="count">3</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_call_begin｜>function<｜tool_sep｜>'
        '<steptml:invoke name="ls"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>Done.'
    ),
    "minicpm5": (
        '<think>Plan.</think>On it.<function name="edit"><param name="path"><![CDATA[a</param>]]></param><param '
        'name="count">3</param></function>\n<function name="ls"></function>Done.'
    ),
    "dots": INVOKE.replace("minimax:tool_call", "dots_function_call"),
    "xlam": f"<think>Plan.</think>On it.\n```json\n{LIST}\n```\nDone.",
    "sarashina": "On it.<|tool_calls|>" + LIST.replace('"', "'") + "Done.",
}
