"""What a turn's engine has said so far, and which call ids and seals were put on it.

Promise: constant work per batch. Running text passes uncopied; a call gets its id when it opens and keeps it; a thought
is sealed when it closes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import msgspec

from turnwire.prompts.recall.seals import TurnSealer
from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Event, Note, ToolCallClosed

__all__ = ["OutputLog", "Stamping"]


class OutputLog:
    """Every batch's text and number of ids, and all ids in order."""

    __slots__ = ("ids", "sizes", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.sizes = array("I")
        self.ids: list[int] = []

    def add(self, text: str, ids: Sequence[int]) -> None:
        """Take a batch."""
        self.texts.append(text)
        self.sizes.append(len(ids))
        self.ids.extend(ids)

    @property
    def text(self) -> str:
        """All of the output."""
        return "".join(self.texts)


class Stamping:
    """Puts what the parser cannot know on its events. `calls` maps a call's block to its id, in order; `closed` counts
    the calls that are whole; `notes` are those that came with the events. With `keeps_ids`
    the engine's own call ids are used."""

    __slots__ = ("_keeps_ids", "_mint", "_seals", "calls", "closed", "notes")

    def __init__(self, mint: Callable[[], str], seals: TurnSealer | None, *, keeps_ids: bool) -> None:
        self._mint = mint
        self._keeps_ids = keeps_ids
        self._seals = seals
        self.calls: dict[int, str] = {}
        self.closed = 0
        self.notes: list[Note] = []

    def stamp(self, events: Sequence[Event]) -> Sequence[Event]:
        """The same events with call ids and seals."""
        if len(events) == 1 and type(events[0]) is BlockDelta:
            return events
        return [event if type(event) is BlockDelta else self._stamped(event) for event in events]

    def _stamped(self, event: Event) -> Event:
        if isinstance(event, BlockOpened):
            if event.kind == "tool_call":
                given = event.call_id if self._keeps_ids else ""
                call_id = self.calls[event.index] = given or self._mint()
                return msgspec.structs.replace(event, call_id=call_id)
        elif isinstance(event, ToolCallClosed):
            self.closed += 1
            return msgspec.structs.replace(event, call_id=self.calls[event.index])
        elif isinstance(event, BlockClosed):
            if event.kind == "reasoning" and self._seals is not None:
                return msgspec.structs.replace(event, seal=self._seals.seal())
        elif isinstance(event, Note):
            self.notes.append(event)
        return event
