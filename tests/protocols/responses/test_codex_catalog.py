"""The merged model list and the Codex catalog: every client finds its own; a bad entry is found before Codex does."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from turnwire.profiles import builtin_book, codex_entry
from turnwire.protocols import anthropic
from turnwire.protocols.codex_catalog import (
    alias_entries,
    catalog_etag,
    catalog_file,
    catalog_problems,
    matching_slug,
    merged_models,
)
from turnwire.protocols.models import ModelRow

ROW = ModelRow(
    id="nvidia/nemotron-3-super",
    display_name="Nemotron",
    created=1_700_000_000,
    window=262_144,
    max_output=32_768,
    aliases=("openai/openai/gpt-5.5",),
    reasoning=True,
)
ENTRY = codex_entry(builtin_book().find("nvidia/nemotron-3-super"), "nvidia/nemotron-3-super", window=262_144)


def test_one_body_for_all_three() -> None:
    entries = alias_entries(ENTRY, ROW.aliases)
    body = msgspec.json.decode(merged_models([ROW], entries, anthropic.models_page([ROW], limit=100)))
    assert body["object"] == "list"
    first = body["data"][0]
    assert (first["id"], first["object"], first["type"]) == (ROW.id, "model", "model")
    assert (first["created"], first["owned_by"], first["display_name"]) == (1_700_000_000, "turnwire", "Nemotron")
    for name in ("context_window", "context_length", "max_model_len", "max_input_tokens"):
        assert first[name] == 262_144
    assert first["max_output_tokens"] == 32_768
    assert "reasoning" in first["supported_parameters"]
    assert all(model["owned_by"] == "turnwire" for model in body["data"])
    assert (body["has_more"], body["first_id"]) == (False, ROW.id)
    assert [entry["slug"] for entry in body["models"]] == [ROW.id, "openai/openai/gpt-5.5"]
    assert catalog_problems(body) == []


def test_every_profile_gives_an_entry_that_codex_takes() -> None:
    entries = [
        codex_entry(profile, profile.ids[0] if profile.ids else profile.name) for profile in builtin_book().profiles
    ]
    assert len(entries) > 20
    for entry in entries:
        assert catalog_problems({"models": [entry]}) == [], entry["slug"]
        assert entry["truncation_policy"] == {"mode": "tokens", "limit": 10_000}
        assert entry["apply_patch_tool_type"] == "freeform"
    assert catalog_problems({"models": [codex_entry(None, "who/knows")]}) == []


@pytest.mark.parametrize(
    ("model", "slug"),
    [
        ("nemotron-3", "nemotron-3"),
        ("nemotron-3-super-fp8", "nemotron-3-super"),
        ("nvidia/nemotron-3-super", "nemotron-3-super"),
        ("NVIDIA/nemotron-3", "nemotron-3"),
        ("Nemotron-3", None),
        ("a/b/nemotron-3", None),
        ("nvidia.x/nemotron-3", None),
        ("openai/openai/gpt-5.5", None),
    ],
)
def test_codex_matches_slugs_so(model: str, slug: str | None) -> None:
    assert matching_slug(model, ["nemotron-3", "nemotron-3-super"]) == slug


def test_an_alias_has_an_entry_of_its_own_and_is_not_listed() -> None:
    entries = alias_entries(ENTRY, ["openai/openai/gpt-5.5", ENTRY["slug"], "openai/openai/gpt-5.5"])
    assert [(e["slug"], e["visibility"]) for e in entries] == [
        (ENTRY["slug"], "list"),
        ("openai/openai/gpt-5.5", "hide"),
    ]
    assert {k: v for k, v in entries[1].items() if k not in ("slug", "visibility")} == {
        k: v for k, v in ENTRY.items() if k not in ("slug", "visibility")
    }
    assert matching_slug("openai/openai/gpt-5.5", [e["slug"] for e in entries]) == "openai/openai/gpt-5.5"


def test_the_tag_changes_with_the_catalog_and_only_then() -> None:
    tag = catalog_etag([ENTRY])
    assert tag == catalog_etag([dict(reversed(ENTRY.items()))])
    assert tag != catalog_etag([{**ENTRY, "context_window": 1}])
    assert tag.startswith('"')
    assert tag.endswith('"')


def test_the_file_is_the_catalog() -> None:
    assert msgspec.json.decode(catalog_file([ENTRY])) == {"models": [ENTRY]}


DAMAGE: dict[str, Any] = {
    "slug": None,
    "display_name": None,
    "supported_reasoning_levels": [{"effort": "low"}],
    "shell_type": "bash",
    "visibility": "shown",
    "supported_in_api": None,
    "priority": True,
    "base_instructions": "",
    "support_verbosity": None,
    "truncation_policy": {"mode": "lines", "limit": 3},
    "experimental_supported_tools": None,
    "supports_parallel_tool_calls": None,
    "supports_reasoning_summaries": None,
    "apply_patch_tool_type": "function",
    "context_window": -1,
    "default_verbosity": "loud",
}


@pytest.mark.parametrize("field", DAMAGE)
def test_each_damage_is_found(field: str) -> None:
    entry = copy.deepcopy(ENTRY)
    entry[field] = DAMAGE[field]
    assert catalog_problems({"models": [entry]})


@pytest.mark.parametrize("catalog", [{}, {"models": []}, {"models": ["x"]}, {"models": [ENTRY, ENTRY]}, []])
def test_a_catalog_that_is_none_is_found(catalog: Any) -> None:
    assert catalog_problems(catalog)
