"""Detection: the template decides, the id helps, and doubt is answered with None."""

import pytest
from model_ids import MODEL_IDS, UNKNOWN
from tests.shared_data import needs_shared, shared_folder

from turnwire.parsers import detect, dialects, resolve
from turnwire.parsers.lookup.detect import signatures


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
    assert detect("my-model").dialect is None
    shared = detect("my-model", "", ["<tool_call>", "</tool_call>", "<think>"])
    assert shared.dialect is None
    assert {"hermes", "qwen3_coder"} <= set(shared.candidates)
    assert detect("Qwen3-Coder-30B", "", ["<tool_call>"]).dialect.name == "qwen3_coder"


def test_an_id_alone_is_taken_with_a_warning():
    found = detect("zai-org/GLM-4.7-Flash")
    assert found.dialect.name == "glm47"
    assert "no template" in found.why


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


@needs_shared("templates")
@pytest.mark.parametrize(("stem", "name"), TEMPLATES.items())
def test_real_templates(stem, name):
    place = shared_folder("templates")
    assert place is not None
    found = detect("", (place / f"{stem}.jinja").read_text(encoding="utf-8"))
    assert found.dialect is not None
    assert found.dialect.name == name


@needs_shared("templates")
def test_no_real_template_is_refused():
    place = shared_folder("templates")
    assert place is not None
    for path in place.glob("*.jinja"):
        assert detect("", path.read_text(encoding="utf-8")).dialect is not None, path.name


@pytest.mark.parametrize(("name", "model"), [(name, model) for name, ids in MODEL_IDS.items() for model in ids])
def test_a_model_is_known_by_its_id_alone(name, model):
    found = detect(model)
    assert found.dialect is not None
    assert found.dialect.name == name


@pytest.mark.parametrize("model", UNKNOWN)
def test_an_id_that_only_looks_like_one_is_not_known(model):
    assert detect(model).dialect is None


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages }}",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
        "### Instruction:\n{{ messages[0].content }}\n### Response:\n",
    ],
)
def test_a_plain_chat_template_serves_as_plain_text_with_a_warning(template):
    found = detect("acme/chat", template)
    assert found.dialect == resolve("plain")
    assert "name its dialect" in found.warning
    assert detect("acme/qwen3-8b-tuned", template).dialect == resolve("qwen3"), "an id that is known decides"


@pytest.mark.parametrize(
    ("model", "template", "name"),
    [
        ("arcee-ai/Trinity-Mini", "<tool_call>{'name': tool_call.name}", "trinity"),
        ("stepfun-ai/Step-3.5-Flash", "<tool_call><function= <parameter=", "step3p5"),
        ("XiaomiMiMo/MiMo-V2-Flash", "<tool_call><function= <parameter=", "mimo"),
        ("deepseek-ai/DeepSeek-R1", "<｜tool▁sep｜>```json", "deepseek_r1"),
        ("moonshotai/Kimi-K2.5", "<|tool_calls_section_begin|>", "kimi_k2_5"),
        ("zai-org/GLM-4.6", "<arg_key><arg_value>clear_thinking", "glm47"),
        ("Team-ACE/ToolACE-2-Llama-3.1-8B", "<|python_tag|>", "pythonic"),
        ("Salesforce/Llama-xLAM-2-8b-fc-r", '"parameters": {"name": ', "xlam"),
        ("Qwen/Qwen2.5-7B-Instruct", "<function= <parameter=", "qwen3_coder"),
        ("ai21labs/Jamba-1.5", "<tool_calls>", "jamba"),
        ("", "<tool_calls> <|extra_0|>", "hunyuan_a13b"),
        ("", "[func_name1(params_name1=params_value1)]", "pythonic"),
        ("", '[{"name": "tool_call_name", "arguments": {}}]', "xlam"),
    ],
)
def test_the_id_tells_apart_families_that_write_alike(model, template, name):
    assert detect(model, template).dialect == resolve(name)


def test_every_family_can_be_found():
    """By a template's marks or by an id; the few that are neither are asked for by name."""
    hidden = {d.name for d in dialects() if not d.known_by and not d.ids}
    assert hidden == {"minimax_m2_append_think", "plain_json"}


def test_no_two_families_have_the_same_signature():
    seen = [(signature.texts, signature.never) for signature, _ in signatures()]
    assert len(seen) == len(set(seen))
    ids = [pattern for dialect in dialects() for pattern in dialect.ids]
    assert len(ids) == len(set(ids))
