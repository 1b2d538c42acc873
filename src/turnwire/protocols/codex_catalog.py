"""The model list that serves every client at once, and the catalog file for Codex.

Promise: one body holds OpenAI's list, Anthropic's page and Codex's `models`; the ETag changes when, and only when, what
Codex reads changes; an entry that its decoder would refuse is found here and not in the client, where one bad entry
rejects the whole list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.protocols.models import ModelRow, claude_aliases

__all__ = [
    "alias_entries",
    "catalog_etag",
    "catalog_file",
    "catalog_problems",
    "like",
    "matching_slug",
    "merged_model",
    "merged_models",
]

Entry = Mapping[str, Any]

_NAMESPACE = re.compile(r"[A-Za-z0-9_-]+/([^/]+)")

REQUIRED: Mapping[str, type | tuple[type, ...]] = {
    "slug": str,
    "display_name": str,
    "supported_reasoning_levels": list,
    "shell_type": str,
    "visibility": str,
    "supported_in_api": bool,
    "priority": int,
    "support_verbosity": bool,
    "truncation_policy": dict,
    "experimental_supported_tools": list,
    # required by clients up to 0.142, ignored later
    "supports_parallel_tool_calls": bool,
    "supports_reasoning_summaries": bool,
}
"""Fields without which a client of some version refuses the entry, and their JSON types."""

ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "shell_type": ("unified_exec", "default", "local", "shell_command", "disabled"),
    "visibility": ("list", "hide", "none"),
    "apply_patch_tool_type": (None, "freeform"),
    "web_search_tool_type": (None, "text", "text_and_image"),
    "default_verbosity": (None, "low", "medium", "high"),
    "default_reasoning_summary": (None, "auto", "concise", "detailed", "none"),
}


def merged_models(rows: Sequence[ModelRow], entries: Sequence[Entry], page: bytes) -> bytes:
    """The body of `GET /v1/models`: the Anthropic page, each of its models with the fields that OpenAI's clients and
    self-hosted discovery read, and Codex's catalog beside it."""
    body: dict[str, Any] = msgspec.json.decode(page)
    owners = {name: row for row in rows for name in (row.id, *row.aliases)}
    for model in body.get("data", ()):
        row = owners.get(model["id"])
        if row is None:
            row = next((row for row in rows if model["id"].endswith(row.id.rsplit("/", 1)[-1])), rows[0])
        model.update(_openai_fields(row))
    return msgspec.json.encode({"object": "list", **body, "models": list(entries)})


def merged_model(row: ModelRow, model: bytes) -> bytes:
    """The body of `GET /v1/models/{id}`: the Anthropic object with OpenAI's fields."""
    return msgspec.json.encode({**msgspec.json.decode(model), **_openai_fields(row)})


def _openai_fields(row: ModelRow) -> dict[str, Any]:
    return {
        "object": "model",
        "created": row.created,
        "owned_by": row.owner,
        "context_window": row.window,
        "context_length": row.window,
        "max_model_len": row.window,
        "max_output_tokens": row.max_output,
        "aliases": [*row.aliases, *claude_aliases(row.id)],
        "input_modalities": list(row.input_modalities),
        "roles": list(row.roles),
        "hosted_tools": list(row.hosted),
        "supported_parameters": [
            name for name, has in (("tools", row.tools), ("reasoning", row.reasoning), ("temperature", True)) if has
        ],
    }


def alias_entries(entry: Entry, aliases: Sequence[str]) -> list[dict[str, Any]]:
    """The entry under its own slug and, unlisted, under every further id: an id such as `openai/openai/x` matches no
    slug but its own, and one that starts with a bundled slug would take the bundled entry."""
    further = dict.fromkeys(alias for alias in aliases if alias != entry["slug"])
    return [dict(entry), *({**entry, "slug": alias, "visibility": "hide"} for alias in further)]


OWN_FIELDS = frozenset(
    {
        *("slug", "display_name", "description", "visibility", "supported_in_api", "priority", "availability_nux"),
        *("upgrade", "context_window", "max_context_window", "auto_compact_token_limit", "input_modalities"),
        *("supports_image_detail_original", "supports_search_tool", "use_responses_lite", "support_verbosity"),
        *("default_verbosity", "supports_parallel_tool_calls"),
    }
)
"""What an entry says of the served model and its gateway, whatever record it is made like."""

REASONING_FIELDS = frozenset(
    {
        *("supported_reasoning_levels", "default_reasoning_level", "supports_reasoning_summaries"),
        *("supports_reasoning_summary_parameter", "default_reasoning_summary"),
    }
)


def like(base: Entry, entry: Entry) -> dict[str, Any]:
    """The entry of a served model, made like a record of Codex's own: its instructions, tools, truncation and levels,
    except where the served model differs."""
    thinks = bool(entry.get("supports_reasoning_summaries"))
    # A model that thinks without levels of its own keeps the record's: the gateway maps them as it can.
    keeps_levels = thinks and not entry.get("supported_reasoning_levels")
    taken = OWN_FIELDS if keeps_levels else OWN_FIELDS | REASONING_FIELDS
    return {**base, **{name: value for name, value in entry.items() if name in taken}}


def matching_slug(model: str, slugs: Sequence[str]) -> str | None:
    """The slug that Codex takes for a configured model: the longest that is a prefix of it, else the same once a
    single leading namespace is gone."""
    stripped = _NAMESPACE.fullmatch(model)
    for name in (model, stripped.group(1) if stripped else None):
        if name is not None:
            found = [slug for slug in slugs if name.startswith(slug)]
            if found:
                return max(found, key=len)
    return None


def catalog_etag(entries: Sequence[Entry]) -> str:
    """A tag for `ETag` and `X-Models-Etag`: the same catalog always has the same one."""
    return f'"{hashlib.sha256(msgspec.json.encode(list(entries), order="deterministic")).hexdigest()[:20]}"'


def catalog_file(entries: Sequence[Entry]) -> bytes:
    """The content of a file for Codex's `model_catalog_json`."""
    return msgspec.json.format(msgspec.json.encode({"models": list(entries)}), indent=2) + b"\n"


def catalog_problems(catalog: Any) -> list[str]:
    """Why Codex would refuse a catalog; empty when it would not."""
    models = catalog.get("models") if isinstance(catalog, dict) else None
    if not isinstance(models, list) or not models:
        return ["the catalog has no `models` list, or an empty one"]
    problems: list[str] = []
    slugs: set[str] = set()
    for number, entry in enumerate(models):
        if not isinstance(entry, dict):
            problems.append(f"models[{number}] is not an object")
            continue
        name = str(entry.get("slug", f"models[{number}]"))
        problems += [f"{name}: {problem}" for problem in _entry_problems(entry)]
        if name in slugs:
            problems.append(f"{name}: the slug is there twice")
        slugs.add(name)
    return problems


def _entry_problems(entry: Entry) -> list[str]:
    problems = []
    for field, kind in REQUIRED.items():
        value = entry.get(field)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            problems.append(f"`{field}` is missing or of the wrong type")
    for field, allowed in ALLOWED.items():
        if entry.get(field) not in allowed:
            problems.append(f"`{field}` is {entry.get(field)!r}; allowed: {', '.join(map(str, allowed))}")
    template = entry.get("model_messages")
    if not entry.get("base_instructions") and not (
        isinstance(template, dict) and template.get("instructions_template")
    ):
        problems.append("neither `base_instructions` nor `model_messages.instructions_template` is there")
    policy = entry.get("truncation_policy")
    if isinstance(policy, dict) and (
        policy.get("mode") not in ("bytes", "tokens") or not _positive(policy.get("limit"))
    ):
        problems.append("`truncation_policy` needs a mode (bytes or tokens) and a limit")
    levels = entry.get("supported_reasoning_levels")
    if isinstance(levels, list) and not all(map(_is_level, levels)):
        problems.append("each of `supported_reasoning_levels` needs an effort and a description")
    return problems + [
        f"`{field}` must be a positive whole number or null"
        for field in ("context_window", "max_context_window", "auto_compact_token_limit")
        if entry.get(field) is not None and not _positive(entry[field])
    ]


def _is_level(level: Any) -> bool:
    return isinstance(level, dict) and all(isinstance(level.get(name), str) for name in ("effort", "description"))


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
