"""The table of rules: its rows, in the order in which they are shown.

Promise: a rule is a row here and a judge in a module of its subject, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from turnwire.conformance.probe import Probe
from turnwire.conformance.rules import calls, clients, errors, replay, thinking, wire
from turnwire.conformance.words import APIS, ApiName, Finding

__all__ = ["CLIENT_RULES", "RULES", "Rule"]

_STATED: tuple[ApiName, ...] = ("messages", "responses")
_TEXTUAL: tuple[ApiName, ...] = ("chat", "responses")


class Rule(msgspec.Struct, frozen=True):
    """A row: its name, what it demands, who judges it, and the APIs on which it has a meaning."""

    name: str
    demands: str
    judge: Callable[[Probe], Awaitable[Finding]]
    apis: tuple[ApiName, ...] = APIS


RULES: tuple[Rule, ...] = (
    Rule("wire.order", "events come in the API's order", wire.order),
    Rule("wire.fields", "events and documents have the fields that clients read", wire.fields),
    Rule("wire.finish", "an answer ends once", wire.finish),
    Rule("wire.stops", "the reason of an end is right: natural, a call, the limit", wire.stops),
    Rule("wire.counts", "tokens are stated, add up, and are those of the engine", wire.counts),
    Rule("wire.agree", "a stream, its summaries and the document say the same", wire.agree),
    Rule("wire.ids", "ids of answers and of calls are unique", wire.identities),
    Rule("wire.unicode", "characters of several tokens come whole", wire.unicode),
    Rule("wire.errors", "wrong requests are refused in the API's shape", errors.shapes),
    Rule("thinking.streamed", "a thought comes as thinking, not as text", thinking.streamed),
    Rule("thinking.replayed", "a thought that is sent back is read by the model", thinking.replayed),
    Rule("thinking.interleaved", "thought, call, result, thought, call: read in this order", thinking.interleaving),
    Rule("calls.order", "text and calls of one turn come in the order of the model", thinking.block_order),
    Rule("calls.early", "a call is whole before the turn ends", calls.early),
    Rule("calls.streamed", "arguments come while they are written", calls.streamed),
    Rule("calls.parallel", "two calls in one turn, and their results go back", calls.parallel),
    Rule("replay.exact", "a thought and a call are read again as they were said, id by id", replay.exact),
    Rule("replay.text", "the same where it wrote text before the call", replay.text),
    Rule("replay.spelling", "the same where its JSON is spelled in its own way", replay.spelling),
    Rule("replay.stored", "a conversation goes on from a stored response", replay.stored, ("responses",)),
    Rule("cache.stable", "instructions and tools read the same each time", replay.cache),
    Rule(
        "cache.volatile", "a harness's changing header does not end the cached prefix", replay.volatile, ("messages",)
    ),
    Rule("tokens.counted", "the counting route counts what the turn states", replay.counting, _STATED),
    Rule("errors.tool", "a tool's failure is read by the model", errors.tool_error),
    Rule(
        "errors.arguments",
        "a call whose arguments were cut off can stay in the history",
        errors.broken_arguments,
        _TEXTUAL,
    ),
    Rule("errors.overflow", "a prompt that is too long is refused so that harnesses compact", errors.overflow),
    Rule("errors.cancelled", "the engine stops when the client leaves", errors.cancellation),
)
# Judged where they are asked for, since they start programs.
CLIENT_RULES: tuple[Rule, ...] = (
    Rule("clients.claude", "Claude Code works through a tool call to its answer", clients.claude_code, ("messages",)),
    Rule("clients.codex", "Codex works through a tool call to its answer", clients.codex, ("responses",)),
)
