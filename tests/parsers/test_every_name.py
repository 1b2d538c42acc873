"""Every name by which vLLM, SGLang, Dynamo and smg know a parser resolves, alone and as the pairs they document."""

import pytest

from turnwire.parsers import Parser, resolve

# Tool parsers and the reasoning parsers that go with them, as the registries spell them.
PAIRS = """
    hermes: qwen3 deepseek_r1 | qwen25: qwen3 qwen3-thinking | qwen: qwen3 qwen3_thinking | trinity: qwen3
    qwen3_coder: qwen3 nemotron_v3 nemotron_3 nemotron_deci | qwen3_xml: qwen3 | qwen_xml: qwen3 nano_v3
    qwen_coder: qwen3 | nemotron_deci: nemotron_deci | nemotron_nano: nemotron_nano nemotron3 nemotron_v3
    deepseek_v3: deepseek_r1 deepseek_v3 | deepseekv3: deepseek-r1 deepseek-v3 | deepseek: deepseek_r1
    deepseek_v31: deepseek_v3 | deepseekv31: deepseek-v3 | deepseek_v3_1: deepseek_v3_1 | deepseek31: deepseek_v31
    deepseek_v32: deepseek_v3 | deepseekv32: deepseek-v3 | deepseek_v3_2: deepseek_v3_2 | deepseek32:
    deepseek_v4: deepseek_v4 | deepseekv4: deepseek-v4 | deepseek-v4: deepseekv4 | deepseek_v41:
    kimi_k2: kimi_k2 kimi_k25 | kimik2: kimi_thinking kimi_k25 | kimi_k3: kimi_k3 kimi-k3 | kimi-k3: kimi_k3
    glm45: glm45 | glm: glm45 | glm45_moe: glm45 | glm47: glm47 glm45 | glm47_moe: glm45 | ling3: ling3
    minimax_m2: minimax_m2 minimax | minimax-m2: minimax
    minimax_m3: minimax_m3 | minimax-m3: minimax-m3 | minimax_m3_nom: minimax_m3
    openai: openai_gptoss | gpt-oss: gpt-oss | harmony: gpt_oss
    llama3_json: | llama4_json: | llama3: | llama: | json: | llama4_pythonic: | pythonic:
    mistral: mistral | granite: granite | granite4: | granite-20b-fc: | phi4_mini_json: | phi4: | jamba:
    cohere_command3: cohere_command3 | cohere_command4: cohere_command4 | cohere: cohere_cmd
    seed_oss: seed_oss | step3: step3 | step3p5: step3p5 | ernie45: ernie45 | hunyuan_a13b: hunyuan_a13b
    hy_v3: hy_v3 | hunyuan: hunyuan | gemma4: gemma4 | gemma-4: gemma-4 | functiongemma: | olmo3: olmo3
    internlm: | interns1: interns1 | longcat: | xlam: | lfm2: qwen3 | gigachat3: | apertus: | apertus2509: apertus2509
    mimo: mimo qwen3 | poolside_v1: poolside_v1 | minicpm5: | dots: dots | inkling: inkling
    muse_glimmer: muse_glimmer | muse: muse | sarashina:
"""
CELLS = [cell.partition(":") for line in PAIRS.splitlines() for cell in line.split("|") if cell.strip()]
# Names that only mean reasoning, or a variant of it.
ALONE = "kimi holo2 basic minimax_m2_append_think minimax-append-think minimax_append_think qwen3_thinking"
# Families that only llama.cpp reads.
OTHERS = """
    functionary_v3_1 functionary_v3_2 firefunction_v2 apriel_1_5 apriel_1_6 solar reka_edge bielik smollm3 rwkv exaone
    minimax_m1 command_r_plus
"""


@pytest.mark.parametrize(("tool", "reasoning"), [(tool.strip(), names.split()) for tool, _, names in CELLS])
def test_every_pair_of_a_registry_resolves(tool, reasoning):
    dialect = resolve(tool)
    assert dialect.calls or dialect.router is not None
    for name in reasoning:
        both = resolve(tool, name)
        assert both.calls == dialect.calls
        assert both.reasoning is not None or both.router is not None
        Parser(both).finish()


@pytest.mark.parametrize("name", [*ALONE.split(), *OTHERS.split()])
def test_other_names_resolve(name):
    resolve(name)
