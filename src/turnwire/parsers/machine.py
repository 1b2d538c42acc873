"""The one incremental machine: text in, ordered events out, whatever the dialect and however the text is cut.

At any time one reader consumes the text. It begins with the reader of prose (or with the router, where message headers
say what a text is); a sign hands over to a codec, which hands back when its calls are over.

Promise: `feed` and `finish` never raise about the text, and their work grows with its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from turnwire.parsers.dialect import Dialect, Reader, Start
from turnwire.parsers.offered import OfferedTools
from turnwire.parsers.prose import Prose
from turnwire.parsers.schema import ANY, Shape, shape_of
from turnwire.parsers.sink import EventSink
from turnwire.turns import BlockDelta, BlockKind, Event, FinishReason, Tool

__all__ = ["Machine", "Parser"]


@lru_cache(maxsize=256)
def _search(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


class Machine:
    """The machine as a codec sees it: the sink, the tools, and the way back to prose. `reader` reads now; `closing`:
    no more text comes; `cut`: the output did not end by the model's own will."""

    def __init__(self, dialect: Dialect, tools: Sequence[Tool], start: Start) -> None:
        self.sink = EventSink()
        self.dialect = dialect
        self._tools = tools
        self._offered: OfferedTools | None = None
        self.closing = False
        self.cut = False
        self._shapes: dict[str, dict[str, Shape]] = {}
        self._prose = Prose(self, dialect, start)
        self._home: Reader = self._prose
        self.reader: Reader = self._prose
        if dialect.prefix:
            self.sink.preface(dialect.prefix)
        if dialect.router is not None:
            router = dialect.router.codec(self)
            self._home = self.reader = router
            router.begin(start)

    # ----------------------------------------------------------------------------------- what codecs may call

    @property
    def tools(self) -> OfferedTools:
        """The tools on offer; most turns call none."""
        if self._offered is None:
            self._offered = OfferedTools(self._tools)
        return self._offered

    def leave(self) -> None:
        """The calls are over; what follows is prose again."""
        self.sink.accept()
        self._prose.resume()
        self.reader = self._home

    def hand(self, reader: Reader) -> None:
        """Another reader reads on from here."""
        self.reader = reader

    def refuse(self) -> None:
        """It was not a call: the text on trial is prose."""
        self.reader = self._home
        self._prose.refuse()

    def refuse_rest(self) -> None:
        """The calls are over, and the text on trial after them is prose."""
        self._prose.resume()
        self.refuse()

    def disown(self) -> None:
        """It was not a call, but the codec reads on: the text on trial is prose, and so is what follows."""
        self._prose.refuse()

    def open_call(self, name: str, call_id: str = "") -> None:
        """A call is certain and named. Reports what is unusual about it."""
        sink, prose = self.sink, self._prose
        prose.called()
        if sink.on_trial:
            sink.accept()
            if prose.thinking:
                sink.note("rescue.call_in_reasoning", name)
            if prose.sign is not None and prose.sign.rescue:
                sink.note("rescue.missing_wrapper", name)
        tool = self.tools.get(name)
        sink.open_call(tool.name if tool is not None else name, call_id)
        if tool is None:
            sink.note("call.unknown_tool", name)
        elif tool.name != name:
            sink.note("call.name_completed", name)

    @property
    def prose(self) -> BlockKind:
        """What text outside calls is, where the machine is."""
        return self._prose.kind

    @property
    def believed(self) -> bool:
        """Whether the call now on trial may name any tool; if not, only an offered one counts."""
        return self._prose.believed

    def properties(self, name: str) -> dict[str, Any]:
        """The schemas of a tool's arguments, by argument name."""
        tool = self.tools.get(name)
        properties = tool.schema.get("properties") if tool is not None else None
        return properties if isinstance(properties, dict) else {}

    def shape(self, name: str, argument: str) -> Shape:
        """What the schema of tool `name` says about one argument."""
        known = self._shapes.setdefault(name, {})
        shape = known.get(argument)
        if shape is None:
            properties = self.properties(name)
            tool = self.tools.get(name)
            shape = ANY
            if tool is not None:
                if argument in properties:
                    shape = shape_of(properties[argument], tool.schema)
                elif isinstance(tool.schema.get("additionalProperties"), dict):
                    shape = shape_of(tool.schema["additionalProperties"], tool.schema)
            known[argument] = shape
        return shape


class Parser(Machine):
    """Parses one turn of model output.

    `feed` takes the next piece of text and answers with the events it settles; `finish` ends the turn with the
    engine's reason. For any text and any way of cutting it: the merged events are the same, the joined `raw` of all
    events is the text, each block opens once and closes once in order, and nothing is ever raised about the text."""

    def __init__(self, dialect: Dialect, tools: Sequence[Tool] = (), start: Start | None = None) -> None:
        super().__init__(dialect, tools, dialect.start if start is None else start)
        self._rest = ""
        self._quick: Callable[[str], object] | None = None

    def feed(self, text: str) -> list[Event]:
        """The events that `text` settles; deltas of one block come as one."""
        quick = self._quick
        if quick is None:
            quick = self.plain()
        if quick is not None and quick(text) is None and text:  # nearly every token: no call that can be avoided
            self.more(text)
            return [BlockDelta(self.sink.index, text, text)]
        if self._rest:
            text = self._rest + text
        self._rest = text[self._advance(text) :]
        self._quick = None
        return self.sink.drain()

    def plain(self) -> Callable[[str], object] | None:
        """A search: text in which it finds nothing is more of the open block, word for word, and nothing else. None
        where more text has to be fed."""
        if self._quick is None and not self._rest and self.sink.settled:
            pattern = self.reader.plain()
            self._quick = None if pattern is None else _search(pattern)
        return self._quick

    def more(self, text: str) -> None:
        """Take text, in one piece or in several, in which the search of `plain` found nothing."""
        sink = self.sink
        if sink.kind == "tool_call":
            sink.parts.append(text)
        else:
            sink.last = text

    def finish(self, reason: FinishReason = "stop") -> list[Event]:
        """The end of the output: everything held back is settled, and exactly one Finished comes last."""
        self.closing = True
        self.cut = reason not in ("stop", "tool_calls")
        text, self._rest = self._rest, ""
        stop = self._advance(text)
        if stop < len(text):
            self.sink.keep(text[stop:])
        self.reader.finish()
        self._prose.settle()
        self.sink.finish(reason)
        return self.sink.drain()

    def _advance(self, text: str) -> int:
        pos, end = 0, len(text)
        while pos < end:
            reader = self.reader
            pos = reader.run(text, pos)
            if self.reader is reader:
                break
        return pos
