"""Models that only write text, and the plain thought in tags.

Promise: text without markers passes as it is.
"""

from __future__ import annotations

from turnwire.parsers.dialect import Dialect, Reasoning, Signature

__all__ = ["DIALECTS", "PLAIN"]

IDS = (
    "gemma-1",
    "gemma-2",
    "gemma-[27]b",
    "phi-3",
    "phi-3.5",
    "phi-4",
    "phi-2",
    "moonlight",
    "glm-4-9b",
    "glm-4-32b",
    "glm-4-0414",
    "glm-z1",
    "glm-4:",
    "chatglm",
    "llama-2",
    "codellama",
    "tinyllama",
    "vicuna",
    "zephyr",
    "yi-",
    "falcon",
    "olmo-2",
    "olmoe",
    "smollm-2",
    "smollm",
    "aya",
    "exaone-3",
    "stablelm",
    "starcoder",
    "deepseek-coder",
    "deepseek-llm",
    "deepseek-v2",
    "baichuan",
    "dbrx",
    "solar-10.7b",
    "gpt-2",
)  # fmt: skip
PLAIN = Dialect(
    name="plain",
    aliases=("none", "text", "passthrough"),
    turns=("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    ids=IDS,
)

DIALECTS = (
    PLAIN,
    Dialect(
        name="think",
        reasoning=Reasoning(),
        aliases=("basic", "exaone", "holo2", "rwkv"),
        known_by=(Signature(("</think>",), weight="thought"),),
        ids=("phi-4-reasoning", "holo2", "rwkv", "openthinker", "k2-think", "sky-t1", "deepscaler", "skywork-or1"),
    ),
    Dialect(
        name="glm4v",
        reasoning=Reasoning(),
        wrappers=("<answer>", "</answer>", "<|begin_of_box|>", "<|end_of_box|>"),
        ends=("<|user|>", "<|endoftext|>"),
        aliases=("glm4_1v",),
        ids=("glm-4.1v",),
    ),
)
