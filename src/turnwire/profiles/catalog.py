"""A model's entry in the catalog that Codex asks for.

Promise: every entry decodes in all client versions that were tried; without an entry, the client falls back to a
byte-counted output cap, a foreign prompt and no patch tool.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from turnwire.profiles.profile import Profile

__all__ = ["codex_entry"]

_EFFORT_WORDS = {
    "none": "Answers without thinking first",
    "minimal": "Hardly any thought",
    "low": "Short thought, fast",
    "medium": "Balanced",
    "high": "Thorough thought",
    "xhigh": "Very thorough thought",
    "max": "As much thought as it takes",
}
_TOOL_OUTPUT_TOKENS = 10_000


@cache
def _instructions() -> str:
    return resources.files("turnwire.profiles").joinpath("data/codex_instructions.md").read_text(encoding="utf-8")


def codex_entry(
    profile: Profile | None,
    slug: str,
    *,
    window: int | None = None,
    title: str | None = None,
    priority: int = 1,
    images: bool = False,
) -> dict[str, Any]:
    """The entry for a model served as `slug`. `window` is what the engine really has, where it reports one, and
    `images` whether it sees them; a model without a profile gets an entry that claims nothing it may not have."""
    efforts = profile.efforts if profile is not None else ()
    known = window or (profile.window if profile is not None else None)
    thinks = bool(efforts) or (profile is not None and profile.thinking.default != "never")
    return {
        "slug": slug,
        "display_name": title or (profile.title if profile is not None else slug),
        "description": profile.description if profile is not None and profile.description else "Served by Turnwire.",
        "default_reasoning_level": profile.default_effort if profile is not None else None,
        "supported_reasoning_levels": [{"effort": name, "description": _EFFORT_WORDS[name]} for name in efforts],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": _instructions(),
        "model_messages": None,
        "supports_reasoning_summaries": thinks,
        "supports_reasoning_summary_parameter": thinks,
        "default_reasoning_summary": "auto" if thinks else "none",
        # Nothing here shortens or lengthens an answer, so the client is not offered the choice.
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "web_search_tool_type": "text",
        "truncation_policy": {"mode": "tokens", "limit": _TOOL_OUTPUT_TOKENS},
        "supports_parallel_tool_calls": profile.parallel_calls if profile is not None else True,
        "supports_image_detail_original": False,
        "context_window": known,
        "max_context_window": known,
        "auto_compact_token_limit": None,
        "effective_context_window_percent": 95,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"] if images else ["text"],
        "supports_search_tool": False,
        "use_responses_lite": False,
        "tool_mode": None,
        "multi_agent_version": None,
    }
