"""Where a turn is stopped or turned by what its client asked for: one call only, stop strings, a bounded thought.

Promise: constant work per batch, and none where the client asked for none of them. What is kept of the output is a
prefix of what the model said, so that the next prompt repeats it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.engines.http.stops import StopFinder
from turnwire.parsers import Dialect, Start
from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Conversation, Event, ToolCallClosed

__all__ = ["AnswerStops", "FirstCallOnly", "ThinkingBudget", "closing_text", "thinking_budget"]


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


class AnswerStops:
    """Ends the answer at the first stop string in its prose. Thoughts, calls and markup may hold one. `found` is the
    string that ended it, `kept` the raw characters before it; the start of what may become one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.kept = 0
        self.found: str | None = None
        self._stops = stops
        self._finder = StopFinder(stops)
        self._held = 0
        self._prose = -1

    def take(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events up to the stop string."""
        let: list[Event] = []
        for event in events:
            if self.found is not None:
                break
            raw = len(getattr(event, "raw", ""))
            if isinstance(event, BlockOpened) and event.kind == "text":
                self._prose, self._finder, self._held = event.index, StopFinder(self._stops), 0
            if isinstance(event, BlockDelta) and event.index == self._prose:
                self._look(event, raw, let)
                continue
            if isinstance(event, BlockClosed) and event.index == self._prose:
                if self._held:
                    let.append(BlockDelta(event.index, self._finder.flush()))
                self._prose, self._held = -1, 0
            self.kept += raw
            let.append(event)
        return let

    def _look(self, event: BlockDelta, raw: int, let: list[Event]) -> None:
        """Let through what is certain of more prose."""
        shown = self._finder.feed(event.text)
        if shown:
            let.append(msgspec.structs.replace(event, text=shown))
        if self._finder.found is None:
            self.kept += raw
            self._held += len(event.text) - len(shown)
            return
        self.found = self._finder.found
        let.append(BlockClosed(event.index, "text"))
        here = len(shown) - self._held
        self.kept += here + (raw - len(event.text) if here >= 0 else 0)


class ThinkingBudget:
    """Counts the tokens of a turn's thoughts. `left` is how many they may still have; `inside`: a thought is open."""

    def __init__(self, tokens: int, *, inside: bool) -> None:
        self.left = tokens
        self.inside = inside

    def spend(self, events: Sequence[Event], tokens: int) -> bool:
        """Take a batch of so many tokens; whether an open thought has used the budget up."""
        began = self.inside
        for event in events:
            if isinstance(event, BlockOpened):
                self.inside = event.kind == "reasoning"
            elif isinstance(event, BlockClosed) and event.kind == "reasoning":
                self.inside = False
        if began or self.inside:
            self.left -= tokens
        return self.inside and self.left <= 0


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
