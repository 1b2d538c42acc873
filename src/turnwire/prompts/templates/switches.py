"""The names under which chat templates take their switches, as tables that probing walks through.

Promise: only these names are tried, and only these (with the harmless ones below) may come from a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ALLOWED_ARGUMENTS", "EFFORTS", "HISTORY_SWITCHES", "THINKING_SWITCHES"]

THINKING_SWITCHES: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
    ({"enable_thinking": True}, {"enable_thinking": False}),
    ({"thinking": True}, {"thinking": False}),
    ({"thinking_mode": "enabled"}, {"thinking_mode": "disabled"}),
    ({"thinking_mode": "thinking"}, {"thinking_mode": "chat"}),
    ({"reasoning": True}, {"reasoning": False}),
    ({"reasoning_effort": "high"}, {"reasoning_effort": "none"}),
    ({"reasoning_effort": "high"}, {"reasoning_effort": "no_think"}),
    ({"reasoning_effort": "high"}, {"reasoning_effort": "minimal"}),
    ({"thinking_budget": -1}, {"thinking_budget": 0}),
)
"""(arguments for on, arguments for off); the first pair that changes the prompt is the template's switch."""

HISTORY_SWITCHES: tuple[Mapping[str, Any], ...] = (
    {"truncate_history_thinking": False},
    {"clear_thinking": False},
    {"preserve_thinking": True},
    {"preserved_thinking": True},
    {"drop_thinking": False},
    {"think_render_option": "all"},
    {"keep_past_thinking": True},
    {"interleaved_thinking": True},
    {"skip_thinking": False},
    {"add_thoughts": True},
)
"""Arguments that make a template keep earlier thoughts; the one that keeps most wins."""

EFFORTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reasoning_effort", ("low", "medium", "high", "xhigh", "max")),
    ("thinking_effort", ("low", "medium", "high", "xhigh", "max")),
    ("reasoning_strength", ("low", "medium", "high", "xhigh", "max")),
)
"""Arguments that say how hard to think, with the values clients use."""

ALLOWED_ARGUMENTS: frozenset[str] = frozenset(
    {name for pair in THINKING_SWITCHES for switch in pair for name in switch}
    | {name for switch in HISTORY_SWITCHES for name in switch}
    | {name for name, _ in EFFORTS}
    | {"low_effort", "force_nonempty_content", "add_vision_id", "builtin_tools", "enable_citations", "grounding"}
)
"""What a request may set; everything else stays out of the template and is noted."""
