"""What continuity says of a turn: whether the prefix held, and if not, where it broke, why, and what to do.

Promise: every cause has words for a person and a remedy; the words are here and nowhere else.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

__all__ = ["CAUSES", "Cause", "Verdict", "Words"]

Cause: TypeAlias = Literal[
    "billing_line",
    "date",
    "system_changed",
    "tool_order",
    "tools_changed",
    "settings_changed",
    "model_changed",
    "reasoning_dropped_by_client",
    "reasoning_dropped_by_template",
    "arguments_rewritten",
    "turn_rewritten",
    "message_edited",
    "message_moved",
    "compaction",
    "rerendered",
    "template_clock",
    "evicted",
    "elsewhere",
]


class Words(msgspec.Struct, frozen=True):
    """A cause in a sentence, and what to change."""

    what: str
    fix: str


CAUSES: dict[Cause, Words] = {
    "billing_line": Words(
        "a billing line in the system text changed",
        "let the gateway drop it, or set CLAUDE_CODE_ATTRIBUTION_HEADER=0 in the client",
    ),
    "date": Words(
        "a date or time in the text changed",
        "put dates at the end of the conversation, or freeze them for a session",
    ),
    "system_changed": Words(
        "the system text changed",
        "keep the system text fixed for a session and append what is new as a later message",
    ),
    "tool_order": Words(
        "the same tools came in another order",
        "send tools in a fixed order",
    ),
    "tools_changed": Words(
        "tools were added, removed or changed",
        "offer the same tools on every turn; load further ones as deferred tools",
    ),
    "settings_changed": Words(
        "a setting that the template renders changed (thinking, effort, output format)",
        "keep thinking and effort fixed for a session",
    ),
    "model_changed": Words("the session moved to another model", "stay with one model for a session"),
    "reasoning_dropped_by_client": Words(
        "the client did not send the model's thoughts back",
        "use a client that replays reasoning, or give the gateway a turn store (--store)",
    ),
    "reasoning_dropped_by_template": Words(
        "the chat template leaves out thoughts of earlier turns",
        "keep them with --history-thinking keep, if the model may see them",
    ),
    "arguments_rewritten": Words(
        "the client rewrote the arguments of a tool call",
        "give the gateway a turn store (--store), so that it can put the original back",
    ),
    "turn_rewritten": Words(
        "the model's last turn came back in another form and could not be recalled",
        "see the turn's replay notes; a seal key that outlives restarts or a turn store (--store) keeps turns exact",
    ),
    "message_edited": Words(
        "an earlier message was edited, or the conversation went back to an earlier point",
        "nothing, if that was meant",
    ),
    "message_moved": Words(
        "a message moved to another place",
        "let the client append moving context at the end only",
    ),
    "compaction": Words("the client shortened the history", "nothing: the next turns share the new prefix"),
    "rerendered": Words(
        "the template renders an unchanged message differently now that others follow it",
        "nothing in the client; the template depends on what comes later",
    ),
    "template_clock": Words(
        "the chat template writes the date into the prompt, and the day changed",
        "give the template a fixed date, if the model can do without today's",
    ),
    "evicted": Words(
        "the prompt kept its prefix, but the engine no longer had it",
        "give the engine more room for its prefix cache, or route a session to the worker that served it",
    ),
    "elsewhere": Words(
        "an earlier message changed; the turn before was served by another process, which keeps digests and no text",
        "nothing, if that was meant; keep a session on one process to see which message it was",
    ),
}
assert set(CAUSES) == set(get_args(Cause))


_BLOCK = 1024


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The comparison of a prompt with the session's previous prompt and output.

    `first`: nothing to compare with. `unseen`: the prompt is written by the model's own server, so there are no tokens
    to compare. `held`: the prompt starts with all of it, or is all contained in it. `broken`:
    they differ from token `shared` on, which lies in the named section of the prompt. `expected` is how many tokens
    there were to share. `found` is false where the request named a turn to compare with that is not remembered; `turn`
    is the one it was compared with. `cached` is what the engine reported afterwards, where it reports that."""

    state: Literal["first", "unseen", "held", "broken"]
    shared: int = 0
    expected: int = 0
    section: str | None = None
    index: int | None = None
    cause: Cause | None = None
    detail: str = ""
    found: bool = True
    turn: str = ""
    cached: int | None = None

    @property
    def lost(self) -> int:
        """Tokens that an engine has to read again."""
        return self.expected - self.shared if self.state == "broken" else 0

    def reported(self, cached: int) -> Verdict:
        """The verdict with the engine's own count of cached tokens. Engines cache whole blocks, so a little less than
        was foreseen is not a loss."""
        evicted = self.state == "held" and self.shared - cached > max(_BLOCK, self.shared // 8)
        changes: dict[str, Any] = {"cause": "evicted"} if evicted else {}
        return msgspec.structs.replace(self, cached=cached, **changes)

    @property
    def words(self) -> Words | None:
        """What happened and what to do about it."""
        return CAUSES[self.cause] if self.cause is not None else None
