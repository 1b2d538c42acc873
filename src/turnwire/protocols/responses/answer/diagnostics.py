"""Prefix reuse as the Responses API phrases it: the `prompt_cache_diagnostics` object of an answer.

Promise: it says no more than the API defines; a cause it has no term for becomes `input_changed`.
"""

from __future__ import annotations

from typing import Any

from turnwire.protocols.prefix import PrefixVerdict

__all__ = ["diagnostics"]

_REASONS = {
    "model_changed": "model_changed",
    "tool_order": "tools_changed",
    "tools_changed": "tools_changed",
    "settings_changed": "reasoning_effort_changed",
    "compaction": "context_compacted",
}


def diagnostics(verdict: PrefixVerdict) -> dict[str, Any]:
    """The object for an answer."""
    if not verdict.found:
        return {"type": "comparison_response_not_found"}
    if verdict.state == "held":
        return {"type": "cache_hit"}
    if verdict.state != "broken":
        return {"type": "unavailable"}
    return {
        "type": "cache_miss",
        "reason": _REASONS.get(verdict.cause or "", "input_changed"),
        "cache_missed_tokens": verdict.lost,
        "comparison_reusable_tokens": verdict.shared,
    }
