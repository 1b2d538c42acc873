"""A verdict in the forms that people read: a response header, and a sentence for the log.

Promise: a header is ASCII and its fields keep their order; a sentence says what happened and what helps.
"""

from __future__ import annotations

from turnwire.continuity.verdict import Verdict

__all__ = ["header", "sentence"]


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
