"""A block while nothing but more of it comes: what each stage would do with the next piece is known beforehand.

Promise: pieces are gathered here, and handed to every stage together, after a bounded number of them and before a stage
is asked for anything. Log, witness, parser and encoder end up as if each piece had come to them alone.
"""

from __future__ import annotations

from collections.abc import Callable

from turnwire.engines.interface import TokenBatch
from turnwire.gateway.turns.output.log import OutputLog
from turnwire.parsers import Parser
from turnwire.prompts.recall.witness import Witness
from turnwire.protocols.wire import Encoder

__all__ = ["MOST_GATHERED", "Running"]

MOST_GATHERED = 16
"""Pieces that may wait until they are handed on: each of a thousand streams may hold as many."""


class Running:
    """While `search` is set, text in which it finds nothing is more of the open block: it is written as JSON between
    `head` and `tail`, and its batch put into `gathered`. Where `number` is not negative it is the delta's, which `tail`
    takes, and the next one's is one higher."""

    __slots__ = (
        "_encoder", "_index", "_log", "_parser", "_ran", "_witness", "gathered", "head", "number", "search", "tail",
    )  # fmt: skip

    def __init__(self, log: OutputLog, witness: Witness, encoder: Encoder) -> None:
        self._log = log
        self._witness = witness
        self._encoder = encoder
        self._parser: Parser | None = None
        self._index = 0
        self._ran: Callable[[str, int], None] | None = None
        self.gathered: list[TokenBatch] = []
        self.search: Callable[[str], object] | None = None
        self.head = self.tail = b""
        self.number = -1

    def begin(self, parser: Parser) -> None:
        """Run from here on, if a block is open of which more can be written so."""
        search = parser.plain()
        if search is None:
            return
        self._index = parser.sink.index
        delta = self._encoder.running(self._index)
        if delta is not None:
            self.search, self._parser = search, parser
            self.head, self.tail, self.number, self._ran = delta

    def settle(self) -> None:
        """Hand what was gathered to every stage."""
        batches = self.gathered
        if not batches:
            return
        text = "".join([batch.text for batch in batches])
        self._log.add_texts(batches, text)
        self._witness.more(self._index, text, len(text))
        if self._parser is not None:
            self._parser.more(text)
        if self._ran is not None:
            self._ran(text, len(batches))
        batches.clear()

    def end(self) -> None:
        """The same, and run no further."""
        self.settle()
        self.search = self._parser = self._ran = None
