"""What a profile says: parsers that exist, thinking wishes as template arguments, the Codex entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from turnwire.cli.models import models
from turnwire.parsers import resolve
from turnwire.profiles import Profile, builtin_book, codex_entry, find_profile
from turnwire.turns import Thinking

PROFILES = [pytest.param(profile, id=profile.name) for profile in builtin_book().profiles]


def profile(name: str) -> Profile:
    found = builtin_book().named(name)
    assert found is not None
    return found


@pytest.mark.parametrize("known", PROFILES)
def test_its_dialect_exists(known: Profile) -> None:
    assert resolve(known.dialect, known.reasoning)


@pytest.mark.parametrize("known", PROFILES)
def test_it_is_consistent(known: Profile) -> None:
    assert known.patterns
    assert known.vendor
    assert known.window is None or known.window >= 8192
    assert known.thinking.default in ("never", "always") or known.thinking.on or not known.thinking.off
    if known.thinking.default == "never":
        assert not known.effort
        assert known.thinking.on == known.thinking.off == {}
    if known.reasoning == "none":
        assert known.thinking.default == "never"
    if "none" in known.effort:
        assert known.thinking.off
    temperature = known.sampling.temperature
    assert temperature is None or 0 <= temperature <= 2


WISHES: list[tuple[str, Thinking, dict[str, Any]]] = [
    ("qwen3", Thinking(), {}),
    ("qwen3", Thinking(mode="off"), {"enable_thinking": False}),
    ("qwen3", Thinking(mode="on", budget=2000), {"enable_thinking": True}),
    ("qwen3", Thinking(effort="none"), {"enable_thinking": False}),
    ("qwen3", Thinking(effort="minimal"), {"enable_thinking": True}),
    ("qwen3", Thinking(effort="xhigh"), {"enable_thinking": True}),
    ("qwen3", Thinking(effort="unheard-of"), {}),
    ("qwen3", Thinking(mode="off", effort="high"), {"enable_thinking": False}),
    ("gpt-oss", Thinking(effort="none"), {"reasoning_effort": "low"}),
    ("gpt-oss", Thinking(effort="max"), {"reasoning_effort": "high"}),
    ("gpt-oss", Thinking(effort="medium"), {"reasoning_effort": "medium"}),
    ("kimi-k3", Thinking(effort="medium"), {"thinking": True, "thinking_effort": "low"}),
    ("kimi-k3", Thinking(effort="max"), {"thinking": True, "thinking_effort": "max"}),
    ("minimax-m3", Thinking(mode="adaptive"), {"thinking_mode": "adaptive"}),
    ("seed-oss", Thinking(mode="on", budget=512), {"thinking_budget": 512}),
    ("seed-oss", Thinking(mode="off", budget=512), {"thinking_budget": 0}),
    ("nemotron-3-super", Thinking(effort="low"), {"enable_thinking": True, "low_effort": True}),
    ("nemotron-3-super", Thinking(history="keep"), {"truncate_history_thinking": False}),
    ("glm-4.7", Thinking(mode="on", history="keep"), {"enable_thinking": True, "clear_thinking": False}),
    ("deepseek-v4", Thinking(effort="high", history="drop"), {"thinking": True, "reasoning_effort": "high"}),
    ("qwen2.5-coder", Thinking(mode="on", effort="high", budget=5), {}),
]


@pytest.mark.parametrize(("name", "thinking", "args"), WISHES)
def test_a_wish_for_thinking_in_the_templates_words(name: str, thinking: Thinking, args: dict[str, Any]) -> None:
    assert profile(name).template_args(thinking) == args


def test_the_default_effort_is_what_the_model_does_unasked() -> None:
    assert profile("qwen3").default_effort == "medium"
    assert profile("deepseek-v3.1").default_effort == "none"
    assert profile("gpt-oss").default_effort == "medium"
    assert profile("kimi-k3").default_effort == "max"
    assert profile("qwen2.5-coder").default_effort is None


REQUIRED = {
    "slug": str,
    "display_name": str,
    "supported_reasoning_levels": list,
    "shell_type": str,
    "visibility": str,
    "supported_in_api": bool,
    "priority": int,
    "base_instructions": str,
    "support_verbosity": bool,
    "truncation_policy": dict,
    "experimental_supported_tools": list,
    "supports_parallel_tool_calls": bool,
    "supports_reasoning_summaries": bool,
}


@pytest.mark.parametrize("known", [*PROFILES, pytest.param(None, id="unknown")])
def test_a_codex_entry_has_what_every_client_version_needs(known: Profile | None) -> None:
    entry = codex_entry(known, "served-name", window=50_000)
    for field, kind in REQUIRED.items():
        assert isinstance(entry[field], kind), field
    assert entry["slug"] == "served-name"
    assert entry["context_window"] == entry["max_context_window"] == 50_000
    assert entry["truncation_policy"] == {"mode": "tokens", "limit": 10_000}
    assert entry["apply_patch_tool_type"] == "freeform"
    assert entry["use_responses_lite"] is False
    levels = [level["effort"] for level in entry["supported_reasoning_levels"]]
    assert entry["default_reasoning_level"] in [*levels, None]
    assert all(level["description"] for level in entry["supported_reasoning_levels"])
    json.dumps(entry)


def test_codex_entries_differ_where_models_do() -> None:
    seeing = find_profile("Qwen3.5-4B")
    blind = codex_entry(find_profile("gpt-oss-20b"), "b")
    assert codex_entry(seeing, "a", images=True)["input_modalities"] == ["text", "image"]
    assert codex_entry(seeing, "a")["input_modalities"] == ["text"], "an engine that drops images"
    assert blind["input_modalities"] == ["text"]
    assert (blind["support_verbosity"], blind["default_verbosity"]) == (False, None)
    assert blind["context_window"] == 131_072
    assert [level["effort"] for level in blind["supported_reasoning_levels"]] == ["low", "medium", "high"]
    assert codex_entry(find_profile("Llama-3.3-70B-Instruct"), "c")["supports_parallel_tool_calls"] is False


def test_the_models_command(tmp_path: Path) -> None:
    listed = CliRunner().invoke(models, [], env={"COLUMNS": "160"})
    assert listed.exit_code == 0
    assert "qwen2.5-coder" in listed.output
    assert "smollm2-135m" in listed.output
    every = json.loads(CliRunner().invoke(models, ["--json"]).output)
    assert {entry["name"] for entry in every} == {known.name for known in builtin_book().profiles}
    (one,) = json.loads(CliRunner().invoke(models, ["nvidia/nemotron-3-super", "--json"]).output)
    assert one["dialect"] == "nemotron_v3"
    assert "131072" in CliRunner().invoke(models, ["gpt-oss-20b"]).output
    unknown = CliRunner().invoke(models, ["no-such"])
    assert unknown.exit_code == 1
    assert "--dialect" in unknown.output
    wrong = CliRunner().invoke(models, ["--profiles", str(tmp_path / "none.toml")])
    assert wrong.exit_code == 1
    assert "cannot be read" in wrong.output
