"""Which profile an id finds, and how a user's file changes that."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.profiles import ProfileError, builtin_book, find_profile, load_book
from turnwire.profiles.book import normalise

FOUND = {
    "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF": "qwen2.5-coder",
    "qwen2.5-coder:7b": "qwen2.5-coder",
    "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M": "qwen2.5-coder",
    "Qwen/Qwen2.5-72B-Instruct-AWQ": "qwen2.5",
    "Qwen/Qwen3-8B": "qwen3",
    "/srv/models/Qwen3-8B/": "qwen3",
    "C:\\models\\Qwen3-8B-Q8_0.gguf": "qwen3",
    "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8": "qwen3-2507-instruct",
    "Qwen/Qwen3-Next-80B-A3B-Thinking": "qwen3-2507-thinking",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-coder",
    "Qwen/Qwen3-Coder-Next": "qwen3-coder-next",
    "Qwen3.5-4B": "qwen3.5",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": "nemotron-3-super",
    "nvidia/nemotron-3-super": "nemotron-3-super",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8": "nemotron-3-nano",
    "nvidia/nemotron-3-ultra": "nemotron-3-ultra",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron-nano-v2",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5": "llama-nemotron",
    "openai/gpt-oss-20b": "gpt-oss",
    "hosted/openai/gpt-oss-120b": "gpt-oss",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "deepseek-r1-distill",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.1-Terminus": "deepseek-v3.1",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-v3.1",
    "deepseek-ai/DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai/DeepSeek-V4-Flash-0731": "deepseek-v4",
    "unsloth/GLM-4.7-Flash-UD-Q4_K_XL.gguf": "glm-4.7",
    "zai-org/GLM-4.5-Air-FP8": "glm-4.5",
    "zai-org/GLM-4.5V": "glm-4.5v",
    "zai-org/GLM-5.1": "glm-5",
    "moonshotai/Kimi-K2-Instruct-0905": "kimi-k2",
    "moonshotai/Kimi-K2-Thinking": "kimi-k2-thinking",
    "kimi-k2.5": "kimi-k2.5",
    "moonshotai/Kimi-K3": "kimi-k3",
    "MiniMaxAI/MiniMax-M2.1": "minimax-m2",
    "MiniMaxAI/MiniMax-M3": "minimax-m3",
    "SmolLM2-135M-Instruct.Q4_1": "smollm2",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3",
    "llama3.2:3b": "llama-3",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama-4-scout",
    "mistralai/Devstral-Small-2-24B-Instruct-2512": "devstral-2",
    "mistralai/Devstral-Small-2507": "devstral-small",
    "mistralai/Ministral-3-14B-Reasoning-2512": "ministral-3-reasoning",
    "google/gemma-4-E4B-it": "gemma-4-small",
    "google/gemma-3-270m-it": "gemma-3-1b",
    "ibm-granite/granite-4.0-h-tiny": "granite-4",
    "stepfun-ai/Step-3.5-Flash": "step-3.5",
    "stepfun-ai/step3": "step-3",
    "allenai/Olmo-3-7B-Think": "olmo-3-think",
    "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed-oss",
    "upstage/Solar-Open-100B": "solar-open",
    "ServiceNow-AI/Apriel-1.6-15b-Thinker": "apriel-1.6",
    "meetkai/functionary-medium-v3.2": "functionary-3.2",
    "CohereLabs/c4ai-command-r7b-12-2024": "command-r7b",
    "CohereLabs/c4ai-command-r-plus": "command-r-plus",
    "gpt-4o": None,
    "openai/openai/gpt-5.5": None,
    "claude-sonnet": None,
    "": None,
}


@pytest.mark.parametrize(("model_id", "name"), FOUND.items())
def test_an_id_finds_its_family(model_id: str, name: str | None) -> None:
    profile = find_profile(model_id)
    assert (profile.name if profile else None) == name


def test_normalising_keeps_what_names_the_model() -> None:
    assert normalise("unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M") == "qwen3-coder-30b-a3b-instruct"
    assert normalise("cyankiwi/Model-AWQ-4bit") == "model"
    assert normalise("Model-BF16-00001-of-00003.gguf") == "model"


def test_every_own_id_finds_its_own_profile() -> None:
    book = builtin_book()
    assert len({profile.name for profile in book.profiles}) == len(book.profiles) >= 70
    for profile in book.profiles:
        assert book.named(profile.name) is profile
        for model_id in profile.ids:
            assert book.find(model_id) is profile, model_id


def test_a_users_file_adds_extends_replaces_and_renames(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        """
        [[profile]]
        name = "house-model"
        title = "House Model"
        extends = "qwen3-coder"
        patterns = ["house-*"]
        window = 65536

        [[profile]]
        name = "smollm2"
        title = "My SmolLM"
        patterns = ["smollm2*"]
        dialect = "hermes"

        [aliases]
        "openai/openai/gpt-5.5" = "nvidia/nemotron-3-super"
        "gpt-5.5" = "gpt-oss"
        "loop" = "loop"
        """
    )
    book = load_book(file)
    house = book.find("ours/House-7B-FP8")
    assert house is not None
    assert (house.name, house.dialect, house.window, house.sampling.top_k) == ("house-model", "qwen3_coder", 65536, 20)
    assert book.find("Qwen/Qwen3-Coder-30B-A3B-Instruct").name == "qwen3-coder"  # type: ignore[union-attr]
    assert book.find("SmolLM2-135M").title == "My SmolLM"  # type: ignore[union-attr]
    assert book.find("openai/openai/gpt-5.5").name == "nemotron-3-super"  # type: ignore[union-attr]
    assert book.find("gpt-5.5").name == "gpt-oss"  # type: ignore[union-attr]
    assert book.find("loop") is None
    assert find_profile("gpt-5.5", book) is book.find("gpt-5.5")
    assert load_book(None) is builtin_book()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[profile]]\nname = 'x'\ntitle = 'X'", "dialect"),
        ("[[profile]]\nname = 'x'\ntitle = 'X'\ndialect = 'hermes'\nwindw = 3", "windw"),
        ("[[profile]]\ntitle = 'X'", "needs a name"),
        ("[[profile]]\nname = 'x'\nextends = 'qwen33'", "Did you mean qwen3"),
        ("[[profile]]\nname = 'x'\nextends = 'qwen3'\neffort = { lots = {} }", "lots"),
        ("[profiles]\nx = 1", "profiles"),
        ("[aliases]\nx = 1", "aliases"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ProfileError, match=words):
        load_book(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        load_book(tmp_path / "none.toml")
