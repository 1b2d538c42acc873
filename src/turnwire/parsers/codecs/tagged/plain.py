"""Tagged calls without any wrapper: since anyone may write such tags, a call must name what was offered.

Promise: text that names no offered tool, or an argument that the tool does not have first, stays text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.tagged.reader import STEPS, TaggedCodec
from turnwire.parsers.codecs.tagged.states import On, State, Tag
from turnwire.parsers.codecs.tagged.table import Tagged
from turnwire.parsers.dialect import Codec
from turnwire.parsers.scanner import WAIT, Scanner, blanks

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["PlainTags"]

_CDATA: Final = Scanner(["<![CDATA["])
_CDATA_END: Final = Scanner(["]]>"])


class PlainTags(Tagged, frozen=True, kw_only=True):
    """A tagged syntax whose calls are in the text as they are. A call counts if its tool was offered and its first
    argument, if it has one, is known to that tool. A value may be in a CDATA section, where tags are text."""

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return PlainTagsCodec(self, machine)


class PlainTagsCodec(TaggedCodec):
    """Reads plain tags: the call is opened with its first argument or its end, not with its name."""

    def __init__(self, table: PlainTags, machine: Machine) -> None:
        super().__init__(table, machine)
        self._steps = PLAIN_STEPS
        self._data = False
        self._fresh = False

    def plain(self) -> str | None:
        """As in any tagged syntax, but not where a CDATA section may begin or end."""
        return None if self._data or self._fresh else super().plain()

    def finish(self) -> None:
        """The end of the output: what was not believed yet is text."""
        if self._sink.on_trial:
            self._refuse()
        else:
            super().finish()

    def _open_call(self, name: str) -> None:
        """Nothing is opened by a name alone."""

    def _believes(self, name: str) -> bool:
        return name in self._machine.tools

    def _end_call(self) -> None:
        if self._sink.on_trial:
            self._machine.open_call(self._name)
        super()._end_call()

    def _body(self, text: str, pos: int) -> int:
        if self._sink.on_trial:
            stop = blanks(text, pos)
            marker = self._plan.scanners[State.BODY].at(text, stop, self._machine.closing)
            known = (Tag.PARAM_OPEN, Tag.CALL_CLOSE)
            if (
                stop < len(text)
                and marker is not WAIT
                and self._plan.meanings[State.BODY].get(marker or "") not in known
            ):
                self._refuse()
                return pos
        return super()._body(text, pos)

    def _open_value(self, on: On, raw: str) -> None:
        if self._sink.on_trial:
            key = self._plan.key_in(self._header)
            if key not in self._machine.properties(self._name) and key not in self._table.repairs.unwraps:
                self._sink.keep(raw)
                self._refuse()
                return
            self._machine.open_call(self._name)
        super()._open_value(on, raw)
        self._data = False
        self._fresh = True

    def _value(self, text: str, pos: int) -> int:
        if self._fresh:
            marker = _CDATA.at(text, pos, self._machine.closing)
            if marker is WAIT:
                return pos
            self._fresh = False
            if marker is not None:
                self._data = True
                self._sink.keep(marker)
                return pos + len(marker)
        if not self._data:
            return super()._value(text, pos)
        start, stop = _CDATA_END.find(text, pos, self._machine.closing)
        if start > pos:
            self._args.write(text[pos:start], text[pos:start])
        if stop < 0:
            return start
        self._sink.keep(text[start:stop])
        self._data = False
        return stop


PLAIN_STEPS: Final[dict[State, Callable[[PlainTagsCodec, str, int], int]]] = {
    **STEPS,
    State.BODY: PlainTagsCodec._body,
    State.VALUE: PlainTagsCodec._value,
}
