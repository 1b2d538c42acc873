"""A verdict in the forms that others read: a response header, and the vendors' own diagnostics.

Promise: each form says no more than its vendor defines; what it cannot say it maps to the nearest that is true.
"""

from __future__ import annotations

from typing import Any

from turnwire.continuity.verdict import Cause, Verdict

__all__ = ["anthropic_diagnostics", "header", "responses_diagnostics", "sentence"]

_ANTHROPIC: dict[Cause, str] = {
    "model_changed": "model_changed",
    "billing_line": "system_changed",
    "system_changed": "system_changed",
    "tool_order": "tools_changed",
    "tools_changed": "tools_changed",
    "settings_changed": "unavailable",
}
_RESPONSES: dict[Cause, str] = {
    "model_changed": "model_changed",
    "tool_order": "tools_changed",
    "tools_changed": "tools_changed",
    "settings_changed": "reasoning_effort_changed",
    "compaction": "context_compacted",
}


def header(verdict: Verdict) -> str:
    """For `x-turnwire-prefix`: the state first, then what is known, in ASCII."""
    if verdict.state in ("first", "unseen"):
        return verdict.state
    parts = [verdict.state, f"shared={verdict.shared}", f"of={verdict.expected}"]
    if verdict.state == "broken":
        if verdict.section is not None:
            parts.append(f"section={verdict.section}:{verdict.index}")
        parts.append(f"cause={verdict.cause}")
    elif verdict.cause is not None:
        parts += (f"cached={verdict.cached}", f"cause={verdict.cause}")
    if verdict.turn:
        parts.append(f"turn={verdict.turn}")
    return "; ".join(parts)


def sentence(verdict: Verdict, *, quoting: bool = False) -> str:
    """For the log and the console; only with `quoting` does it repeat words of the prompt."""
    if verdict.state == "first":
        return "the first turn of its session here"
    if verdict.state == "unseen":
        return "the model's own server writes the prompt, so its prefix cannot be seen from here"
    words = verdict.words
    if verdict.state == "held" and words is not None:
        return f"the prefix held, but {verdict.cached} of {verdict.shared} tokens were cached: {words.what}"
    if verdict.state == "held":
        return f"the prefix held: {verdict.shared} tokens"
    assert words is not None
    where = f" in {verdict.section} {verdict.index}" if verdict.section is not None else ""
    detail = f" ({verdict.detail})" if quoting and verdict.detail else ""
    return (
        f"the prefix broke at token {verdict.shared} of {verdict.expected}{where}: {words.what}{detail}. "
        f"What helps: {words.fix}."
    )


def anthropic_diagnostics(verdict: Verdict) -> dict[str, Any] | None:
    """The `diagnostics` object of a Messages answer; None is its "no divergence"."""
    if not verdict.found:
        return {"cache_miss_reason": {"type": "previous_message_not_found"}}
    if verdict.state != "broken":
        return None
    kind = _ANTHROPIC.get(verdict.cause, "") if verdict.cause else ""
    if not kind:
        kind = "system_changed" if verdict.section == "system" else "messages_changed"
    reason: dict[str, Any] = {"type": kind}
    if kind != "unavailable":
        reason["cache_missed_input_tokens"] = verdict.lost
    return {"cache_miss_reason": reason}


def responses_diagnostics(verdict: Verdict) -> dict[str, Any]:
    """The `prompt_cache_diagnostics` object of a Responses answer."""
    if not verdict.found:
        return {"type": "comparison_response_not_found"}
    if verdict.state in ("first", "unseen"):
        return {"type": "unavailable"}
    if verdict.state == "held":
        return {"type": "cache_hit"}
    return {
        "type": "cache_miss",
        "reason": _RESPONSES.get(verdict.cause, "input_changed") if verdict.cause else "input_changed",
        "cache_missed_tokens": verdict.lost,
        "comparison_reusable_tokens": verdict.shared,
    }
