"""What a turn's engine has said so far, and which call ids and seals were put on it.

Promise: constant work per batch. Running text passes uncopied; a call gets its id when it opens and keeps it; a thought
is sealed when it closes.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence

import msgspec

from turnwire.engines.interface import TokenBatch
from turnwire.gateway.turns.output.token_places import TokenPlaces
from turnwire.gateway.turns.record import BlockTimes
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.recall.seals import TurnSealer
from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Event, Note, ToolCallClosed

__all__ = ["OutputLog", "Stamping"]


_MOST_BLOCKS = 512
"""Blocks of one turn whose times are kept."""


class OutputLog:
    """All text and all ids in order, and how many characters (`lengths`) and ids (`sizes`) each batch had. A thousand
    streams hold one each for minutes: what is kept of a token is its characters and three numbers, not objects."""

    __slots__ = ("_text", "ids", "lengths", "sizes")

    def __init__(self) -> None:
        self._text = bytearray()
        self.lengths = array("I")
        self.sizes = array("I")
        self.ids = array("I")

    def add(self, text: str, ids: Sequence[int]) -> None:
        """Take a batch."""
        self._text += text.encode("utf-8", "surrogatepass")
        self.lengths.append(len(text))
        self.sizes.append(len(ids))
        self.ids.extend(ids)

    def add_texts(self, batches: Sequence[TokenBatch], text: str) -> None:
        """Take the text of several batches, which is `text` when joined. Their ids are here already."""
        self._text += text.encode("utf-8", "surrogatepass")
        self.lengths.extend([len(batch.text) for batch in batches])
        self.sizes.extend([len(batch.ids) for batch in batches])

    @property
    def size(self) -> int:
        """How many bytes the text has."""
        return len(self._text)

    @property
    def text(self) -> str:
        """All of the output."""
        return self._text.decode("utf-8", "surrogatepass")

    def cut(self, at: int, tokenizer: Tokenizer) -> None:
        """Forget everything from the token on in which the character at `at` lies."""
        kept = TokenPlaces(self.lengths, self.sizes, self.ids, tokenizer).before(at, within=True)
        text = self.text[:at]
        del self.ids[kept:]
        self._text = bytearray(text, "utf-8", "surrogatepass")
        self.lengths = array("I", [len(text)])
        self.sizes = array("I", [kept])


class Stamping:
    """Puts what the parser cannot know on its events. `calls` maps a call's block to its id, in order; `closed` counts
    the calls that are whole; `notes` are those that came with the events; `seals` seals the output, where it is to be
    sealed. With `keeps_ids` the engine's own call ids are used."""

    __slots__ = ("_blocks", "_keeps_ids", "_log", "_mint", "_open", "_sealed", "calls", "closed", "notes", "seals")

    def __init__(
        self,
        log: OutputLog,
        blocks: list[BlockTimes],
        mint: Callable[[], str],
        seals: TurnSealer | None,
        *,
        keeps_ids: bool,
    ) -> None:
        self._log = log
        self._blocks = blocks
        self._open: dict[int, BlockTimes] = {}
        self._sealed = 0
        self._mint = mint
        self._keeps_ids = keeps_ids
        self.seals = seals
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
            times = self._open[event.index] = BlockTimes(event.kind, event.name, time.monotonic())
            if len(self._blocks) < _MOST_BLOCKS:
                self._blocks.append(times)
            if event.kind == "tool_call":
                given = event.call_id if self._keeps_ids else ""
                call_id = self.calls[event.index] = given or self._mint()
                return msgspec.structs.replace(event, call_id=call_id)
        elif isinstance(event, ToolCallClosed):
            self._close(event.index)
            self.closed += 1
            return msgspec.structs.replace(event, call_id=self.calls[event.index])
        elif isinstance(event, BlockClosed):
            self._close(event.index)
            if event.kind == "reasoning" and self.seals is not None:
                self._catch_up(self.seals)
                return msgspec.structs.replace(event, seal=self.seals.seal())
        elif isinstance(event, Note):
            self.notes.append(event)
        return event

    def _close(self, index: int) -> None:
        times = self._open.pop(index, None)
        if times is not None:
            times.closed = time.monotonic()

    def trailing_seal(self) -> str | None:
        """The seal of what came after the last thought, once the output is complete."""
        if self.seals is None:
            return None
        self._catch_up(self.seals)
        return self.seals.finish()

    def _catch_up(self, seals: TurnSealer) -> None:
        ids = self._log.ids
        seals.add(ids[self._sealed :])
        self._sealed = len(ids)
