"""Names: every registry's spelling resolves, parts combine, and an unknown name is answered with the nearest."""

import pytest

from turnwire.parsers import Start, UnknownDialect, dialect_names, dialects, resolve, start_state

# Canonical name: spellings of vLLM, SGLang, Dynamo and smg (tool parsers, or both).
SPELLINGS = {
    "hermes": "hermes qwen25 qwen granite4",
    "qwen3": "qwen3 Qwen-3",
    "qwen3_thinking": "qwen3-thinking qwen3_thinking",
    "trinity": "trinity",
    "qwen3_coder": "qwen3_coder qwen3_xml qwen_xml qwen_coder Qwen3-Coder qwen3.5",
    "nemotron_deci": "nemotron_deci",
    "nemotron_v3": "nemotron_v3 nemotron_3 nemotron_nano nemotron3 nano_v3",
    "deepseek_r1": "deepseek_r1 deepseek-r1",
    "deepseek_v3": "deepseek_v3 deepseekv3 deepseek-v3 deepseek",
    "deepseek_v3_1": "deepseek_v31 deepseekv31 deepseek_v3_1 deepseek31",
    "deepseek_v3_2": "deepseek_v32 deepseekv32 deepseek_v3_2 deepseek32",
    "deepseek_v4": "deepseek_v4 deepseekv4 deepseek-v4",
    "deepseek_v4_1": "deepseek_v41",
    "kimi_vl": "kimi",
    "kimi_k2": "kimi_k2 kimik2",
    "kimi_k2_5": "kimi_k25",
    "glm45": "glm45 glm glm45_moe GLM-4.5",
    "glm47": "glm47 glm47_moe GLM-4.7",
    "ling3": "ling3",
    "minimax_m1": "minimax_m1",
    "minimax_m2": "minimax_m2 minimax-m2",
    "minimax_m2_append_think": "minimax_m2_append_think minimax-append-think minimax_append_think",
    "llama3_json": "llama3_json llama4_json llama3 llama",
    "plain_json": "json",
    "mistral": "mistral",
    "granite": "granite",
    "granite_20b_fc": "granite-20b-fc",
    "phi4_mini": "phi4_mini_json phi4",
    "jamba": "jamba",
    "seed_oss": "seed_oss",
    "step3p5": "step3p5",
    "ernie45": "ernie45",
    "hunyuan_a13b": "hunyuan_a13b",
    "hy_v3": "hy_v3 hunyuan",
    "internlm2": "internlm interns1",
    "longcat": "longcat",
    "mimo": "mimo",
    "poolside_v1": "poolside_v1",
    "think": "holo2 basic",
}
REASONING = {
    "minimax": "<think>",
    "kimi_thinking": "<think>",
    "nemotron_deci": "<think>",
    "granite": "Here is my thought process:",
    "kimi": "◁think▷",
    "mistral": "[THINK]",
    "seed_oss": "<seed:think>",
    "deepseek_v31": "<think>",
    "hunyuan_a13b": "<think>",
    "glm45": "<think>",
}


@pytest.mark.parametrize(("name", "spelling"), [(n, s) for n, all_ in SPELLINGS.items() for s in all_.split()])
def test_every_spelling_resolves(name, spelling):
    assert resolve(spelling).name == name
    assert resolve(spelling.upper().replace("_", "-")).name == name


def test_every_dialect_resolves_by_its_own_name():
    for dialect in dialects():
        assert resolve(dialect.name) is dialect
    assert len(set(dialect_names())) == len(dialect_names())


@pytest.mark.parametrize(("name", "opener"), REASONING.items())
def test_reasoning_combines_with_any_calls(name, opener):
    mixed = resolve("qwen3_coder", name)
    assert mixed.reasoning is not None
    assert opener in mixed.reasoning.open
    assert mixed.calls == resolve("qwen3_coder").calls


def test_reasoning_can_be_off():
    assert resolve("qwen3_coder", "none").reasoning is None


def test_an_unknown_name_says_what_is_near():
    with pytest.raises(UnknownDialect, match="qwen3_coder"):
        resolve("qwen3_codr")
    with pytest.raises(UnknownDialect, match="reasoning dialect"):
        resolve("hermes", "nosuch")


@pytest.mark.parametrize(
    ("dialect", "tail", "state"),
    [
        ("qwen3_coder", "<|im_start|>assistant\n<think>\n", "reasoning"),
        ("qwen3_coder", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "content"),
        ("qwen3_coder", "<|im_start|>assistant\n", "content"),
        ("qwen3_coder", "<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", "content"),
        ("qwen3_coder", "<think>\nold</think>\nx<|im_end|>\n<|im_start|>assistant\n<think>\nI was", "reasoning"),
        ("deepseek_v4", "<｜User｜>hi<｜Assistant｜></think>", "content"),
        ("deepseek_v4", "say </think><｜Assistant｜><think>", "reasoning"),
        ("mistral", "[INST]a[/INST][THINK]", "reasoning"),
        ("kimi_k2_5", "<|im_assistant|>assistant<|im_middle|><think></think>", "content"),
        ("minimax_m2", "]~b]ai\n<think>\n", "reasoning"),
        ("seed_oss", "<seed:bos>assistant\n", "content"),
        ("hy_v3", "<｜hy_Assistant:opensource｜><think:opensource>", "reasoning"),
        ("granite_20b_fc", "<think>", "content"),
        ("hermes", "assistant: <think>\n", "reasoning"),
        ("hermes", "user: what is <think>?\nassistant:", "content"),
    ],
)
def test_the_prompt_tail_says_where_the_turn_starts(dialect, tail, state):
    assert start_state(tail, resolve(dialect)) == Start(state)
