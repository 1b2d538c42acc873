"""Detection: the template decides, the id helps, and doubt is answered with None."""

import os
from pathlib import Path

import pytest

from turnwire.parsers import detect


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{'<tool_call>\\n<function=' ~ name}}<parameter=", "qwen3_coder"),
        ("<function=, <parameter=, truncate_history_thinking", "nemotron_v3"),
        ('<tool_call>{"name": ', "hermes"),
        ("<tool_call>{{name}}<arg_key><arg_value>", "glm45"),
        ("<arg_key><arg_value> clear_thinking", "glm47"),
        ("<｜tool▁calls▁begin｜>function<｜tool▁sep｜>```json", "deepseek_v3"),
        ("<｜tool▁sep｜>", "deepseek_v3_1"),
        ("{% set dsml_token = '｜DSML｜' %}function_calls>", "deepseek_v3_2"),
        ("{% set dsml_token = '｜DSML｜' %}tool_calls>", "deepseek_v4"),
        ("<|tool_calls_section_begin|>", "kimi_k2"),
        ("[TOOL_CALLS]", "mistral"),
        ("<minimax:tool_call>", "minimax_m2"),
        ("<seed:tool_call>", "seed_oss"),
        ("<TOOLCALL>", "nemotron_deci"),
        ("only </think> here", "think"),
    ],
)
def test_a_template_is_recognised_by_what_it_writes(template, name):
    found = detect("", template)
    assert found.dialect is not None
    assert found.dialect.name == name
    assert "template" in found.why


def test_a_disagreeing_id_is_mentioned():
    found = detect("org/GLM-4.6-distill", "<function= <parameter=")
    assert found.dialect is not None
    assert found.dialect.name == "qwen3_coder"
    assert "glm45" in found.why


def test_doubt_is_not_guessed_away():
    assert detect("", "{{ messages }}").dialect is None
    assert detect("my-model").dialect is None
    shared = detect("my-model", "", ["<tool_call>", "</tool_call>", "<think>"])
    assert shared.dialect is None
    assert {"hermes", "qwen3_coder"} <= set(shared.candidates)
    assert detect("Qwen3-Coder-30B", "", ["<tool_call>"]).dialect.name == "qwen3_coder"


def test_an_id_alone_is_taken_with_a_warning():
    found = detect("zai-org/GLM-4.7-Flash")
    assert found.dialect.name == "glm47"
    assert "no template" in found.why


SHARED = Path(os.environ.get("TURNWIRE_SHARED") or Path(__file__).resolve().parents[3] / "shared") / "templates"
TEMPLATES = {
    "GLM-4.6": "glm45", "GLM-4.7-Flash": "glm47", "Kimi-K2-Thinking": "kimi_k2", "MiniMax-M1": "minimax_m1",
    "MiniMax-M2": "minimax_m2", "Mistral-Small-3.2-24B-Instruct-2506": "mistral", "Qwen3-Coder": "qwen3_coder",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron_v3", "NVIDIA-Nemotron-Nano-v2": "nemotron_deci",
    "Qwen-Qwen3-0.6B": "hermes", "deepseek-ai-DeepSeek-V3.1": "deepseek_v3_1", "tencent-Hy3": "hy_v3",
    "deepseek-ai-DeepSeek-V3.2": "deepseek_v3_2", "deepseek-ai-DeepSeek-V4": "deepseek_v4",
    "ibm-granite-granite-3.3-2B-Instruct": "granite", "ibm-granite-granite-4.0": "hermes",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3_json", "poolside-Laguna-XS.2": "poolside_v1",
    "google-gemma-4-31B-it": "gemma4", "MiniMax-M3": "minimax_m3", "openbmb-MiniCPM5-1B": "minicpm5",
    "LFM2-8B-A1B": "lfm2", "ByteDance-Seed-OSS": "seed_oss", "fireworks-ai-llama-3-firefunction-v2": "phi4_mini",
}  # fmt: skip


def test_real_templates_where_they_are_at_hand():
    for stem, name in TEMPLATES.items():
        path = SHARED / f"{stem}.jinja"
        if path.exists():
            found = detect("", path.read_text(encoding="utf-8"))
            assert found.dialect is not None, stem
            assert found.dialect.name == name, stem
