"""Where a turn is stopped or turned by what its client asked for: one call only, a bounded thought.

Promise: constant work per batch, and none where the client asked for neither. What is kept of the output is a prefix of
what the model said, so that the next prompt repeats it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.parsers import Dialect, Start
from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Conversation, Event, ToolCallClosed

__all__ = ["FirstCallOnly", "ThinkingBudget", "closing_text", "thinking_budget"]


class FirstCallOnly:
    """Lets one call through. `kept` counts the raw characters that were let through; `over`: something began after the
    call, and the turn ends before it."""

    def __init__(self, dialect: Dialect) -> None:
        self.kept = 0
        self.over = False
        self._called = False
        self._openers = tuple(sign.text for syntax in dialect.calls for sign in syntax.signs)
        self._closers = tuple(closer for syntax in dialect.calls for closer in syntax.closers)

    def take(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events that are let through."""
        if self.over:
            return ()
        for place, event in enumerate(events):
            if self._called and isinstance(event, BlockOpened):
                self.over = True
                self.kept += self._closed(event.raw)
                return events[:place]
            self.kept += len(getattr(event, "raw", ""))
            self._called = self._called or isinstance(event, ToolCallClosed)
        return events

    def _closed(self, raw: str) -> int:
        """How much of a block's opening text still closes the call before it."""
        openers = [at for opener in self._openers if (at := raw.find(opener)) >= 0]
        if openers:
            return min(openers)
        return max((raw.rfind(closer) + len(closer) for closer in self._closers if closer in raw), default=0)


class ThinkingBudget:
    """Counts the tokens of a turn's thoughts. `inside`: a thought is open."""

    def __init__(self, tokens: int, *, inside: bool) -> None:
        self._left = tokens
        self.inside = inside

    def spend(self, events: Sequence[Event], tokens: int) -> bool:
        """Take a batch of so many tokens; whether an open thought has used the budget up."""
        began = self.inside
        if len(events) == 1 and type(events[0]) is BlockDelta:
            if began:
                self._left -= tokens
            return began and self._left <= 0
        for event in events:
            if isinstance(event, BlockOpened):
                self.inside = event.kind == "reasoning"
            elif isinstance(event, BlockClosed) and event.kind == "reasoning":
                self.inside = False
        if began or self.inside:
            self._left -= tokens
        return self.inside and self._left <= 0


def thinking_budget(conversation: Conversation, dialect: Dialect, start: Start) -> ThinkingBudget | None:
    """The budget that a request sets, where its model's thoughts have a closing marker of their own."""
    thinking = conversation.thinking
    if thinking.budget is None or thinking.mode == "off" or closing_text(dialect) is None:
        return None
    return ThinkingBudget(thinking.budget, inside=start.state == "reasoning")


def closing_text(dialect: Dialect) -> str | None:
    """What closes a thought in this family; None where thoughts are routed by headers."""
    reasoning = dialect.reasoning
    if reasoning is None or dialect.router is not None or not reasoning.close:
        return None
    return f"\n{reasoning.close[0]}\n\n"
