"""Prefix reuse as the Messages API phrases it: the `diagnostics` object of an answer.

Promise: it says no more than the API defines; a cause it has no term for becomes the nearest that is true.
"""

from __future__ import annotations

from typing import Any

from turnwire.protocols.prefix import PrefixVerdict

__all__ = ["diagnostics"]

_REASONS = {
    "model_changed": "model_changed",
    "billing_line": "system_changed",
    "system_changed": "system_changed",
    "tool_order": "tools_changed",
    "tools_changed": "tools_changed",
    "settings_changed": "unavailable",
}


def diagnostics(verdict: PrefixVerdict) -> dict[str, Any] | None:
    """The object for an answer; None is its "no divergence"."""
    if not verdict.found:
        return {"cache_miss_reason": {"type": "previous_message_not_found"}}
    if verdict.state != "broken":
        return None
    other = "system_changed" if verdict.section == "system" else "messages_changed"
    kind = _REASONS.get(verdict.cause or "", other)
    reason: dict[str, Any] = {"type": kind}
    if kind != "unavailable":
        reason["cache_missed_input_tokens"] = verdict.lost
    return {"cache_miss_reason": reason}
