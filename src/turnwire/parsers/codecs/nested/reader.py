"""Calls written as nested tags, each after a namespace mark: objects and arrays are tags within tags.

Promise: strings stream at any depth; other elements wait for their closer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from turnwire.parsers.codecs.attributes import read_attribute
from turnwire.parsers.codecs.nested.states import NEXT, On, State
from turnwire.parsers.codecs.steps import CallSteps
from turnwire.parsers.dialect import Sign
from turnwire.parsers.scanner import Scanner
from turnwire.parsers.schema import ANY, STRING, Shape, escape, quote, shape_of, write
from turnwire.parsers.subschema import element, has_member, member

if TYPE_CHECKING:
    from turnwire.parsers.codecs.nested.table import Nested
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "NestedCodec"]

TAG_LIMIT: Final = 512
"""No tag is longer than this: a tag that has not ended by then is not one."""
BLANK_LIMIT: Final = 16
"""No more blanks than this come between two tags."""


class Tag(msgspec.Struct):
    """A tag with its raw text."""

    name: str
    header: str
    closes: bool
    raw: str


class _Frame:
    """An open element. `kind` is `{`, `[`, or nothing as long as it may still be a plain value."""

    __slots__ = ("count", "inner", "kind", "name", "schema", "shape", "streaming", "text")

    def __init__(self, name: str, schema: Any, shape: Shape) -> None:
        self.name = name
        self.schema = schema
        self.shape = shape
        self.kind = ""
        self.count = 0
        self.inner: dict[str, int] = {}  # tags inside a text that are still open, by name
        self.streaming = False
        self.text: list[str] = []

    @property
    def takes_text(self) -> bool:
        """Whether tags inside are text."""
        return self.shape.types is not None and "string" in self.shape.types


_NULLABLE: Final = frozenset({"string", "null"})
_TAG = re.compile(r"[ \t\r\n]{0,16}<(/?)[ \t]{0,4}([^<>\s]{1,128})([^<>]{0,256})>")
_BEGUN = re.compile(r"[ \t\r\n]{0,16}(?:<[^<>]{0,400})?")


class _Compiled:
    def __init__(self, table: Nested) -> None:
        self.marks = Scanner([table.mark])
        self.plain = rf'[{re.escape(table.mark[0])}"\\\x00-\x1f]'


@lru_cache(maxsize=16)
def _compiled(table: Nested) -> _Compiled:
    return _Compiled(table)


class NestedCodec(CallSteps[State, On]):
    """Reads nested calls. String elements stream at any depth; others wait for their closer."""

    def __init__(self, table: Nested, machine: Machine) -> None:
        super().__init__(machine, STEPS, NEXT, State.OUT)
        self._table = table
        self._compiled = _compiled(table)
        self._name = ""
        self._root: Any = None
        self._frames: list[_Frame] = []
        self._names: dict[str, int] = {}
        self._keys: set[str] = set()
        self._noisy = False

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """After a mark."""
        self._go(On.MARK)

    def plain(self) -> str | None:
        """A streaming string forwards anything but marks, quotes, backslashes and control characters."""
        return self._compiled.plain if self._state is State.CONTENT and self._frames[-1].streaming else None

    def finish(self) -> None:
        """The end of the output: a call all of whose arguments are closed is complete, any other is cut."""
        sink = self._sink
        if self._state is State.CONTENT:
            whole = len(self._frames) == 1 and not self._machine.cut
            if whole:
                sink.note("rescue.missing_closer", self._name)
                self._close_call()
            else:
                sink.close_call(truncated=True)
        elif sink.on_trial:
            if self._state is State.SECTION:
                sink.accept()
                sink.note("call.truncated")
            else:
                self._refuse()

    # ------------------------------------------------------------------------------------------- around the calls

    def _tag(self, text: str, pos: int, mark: str) -> tuple[Tag | None, bool]:
        """The tag after the mark that ends at `pos`; or none, and whether more text may still make one."""
        found = _TAG.match(text, pos)
        if found is not None:
            return Tag(found.group(2).rstrip("/"), found.group(3), bool(found.group(1)), mark + found.group()), False
        rest = text[pos : pos + TAG_LIMIT]
        waits = len(rest) < TAG_LIMIT and _BEGUN.fullmatch(rest) is not None and not self._machine.closing
        return None, waits

    def _first(self, text: str, pos: int) -> int:
        table, sink = self._table, self._sink
        tag, waits = self._tag(text, pos, "")
        if waits:
            return pos
        if tag is None or tag.name not in (table.section, table.call):
            self._refuse()
            return pos
        if tag.closes:
            if sink.kind is not None or not sink.after_call:
                self._refuse()
                return pos
            sink.accept()
            sink.note("rescue.duplicate_closer", tag.name)
            sink.keep(tag.raw)
            self._leave()
            return pos + len(tag.raw)
        if tag.name == table.call:
            if self._open_call(tag):
                sink.note("rescue.missing_wrapper", self._name)
                return pos + len(tag.raw)
            return pos
        sink.keep(tag.raw)
        self._go(On.SECTION)
        return pos + len(tag.raw)

    def _section(self, text: str, pos: int) -> int:
        table, sink, mark = self._table, self._sink, self._table.mark
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        if not text.startswith(mark, pos):
            if mark.startswith(text[pos : pos + len(mark)]) and not self._machine.closing:
                return pos
            self._break_off("rescue.missing_closer", table.section)
            return pos
        tag, waits = self._tag(text, pos + len(mark), mark)
        if waits:
            return pos
        if tag is None or tag.name not in (table.section, table.call):
            self._break_off("rescue.missing_closer", table.section)
            return pos
        if tag.name == table.call and not tag.closes:
            return pos + len(tag.raw) if self._open_call(tag) else pos
        if tag.name == table.call:
            sink.note("rescue.duplicate_closer", tag.name)
        elif not tag.closes:
            sink.note("rescue.missing_closer", tag.name)
        elif sink.on_trial:
            sink.accept()
            sink.note("call.unnamed")
        sink.keep(tag.raw)
        if tag.name == table.section and tag.closes:
            self._leave()
        return pos + len(tag.raw)

    # ------------------------------------------------------------------------------------------------------ a call

    def _open_call(self, tag: Tag) -> bool:
        """Open the call that a tag names; otherwise what was on trial is prose."""
        machine, sink = self._machine, self._sink
        name = read_attribute(tag.header, "name") or ""
        if not name or not (machine.believed or name in machine.tools):
            self._break_off("call.unnamed", name)
            return False
        sink.keep(tag.raw)
        machine.open_call(name)
        tool = machine.tools.get(name)
        self._name = name
        self._root = None if tool is None else tool.schema
        frame = _Frame(self._table.call, self._root, ANY)
        frame.kind = "{"
        self._frames = [frame]
        self._names = {frame.name: 1}
        self._keys = set()
        self._noisy = False
        self._go(On.CALL)
        sink.argue("{", "")
        return True

    def _close_call(self) -> None:
        while self._frames:
            self._end_element()
        self._sink.close_call()
        self._go(On.CALL_END)

    def _content(self, text: str, pos: int) -> int:
        mark = self._table.mark
        start, stop = self._compiled.marks.find(text, pos, self._machine.closing)
        if start > pos:
            self._say(text[pos:start])
        if stop < 0:
            return start
        tag, waits = self._tag(text, stop, mark)
        if waits:
            return start
        if tag is None:
            self._say(mark)
            return stop
        after = start + len(tag.raw)
        if tag.closes and self._is_alien(tag):
            follows = _follows(text, after, mark, self._machine.closing)
            if follows is None:
                return start
            if not follows:
                self._sink.note("rescue.quoted_closer", tag.name)
                self._say(tag.raw)
                return after
        if tag.closes:
            self._shut(tag)
        else:
            self._enter_element(tag)
        return after

    def _is_alien(self, tag: Tag) -> bool:
        """Whether a closing tag inside a text closes nothing that is open."""
        frame = self._frames[-1]
        return (
            len(self._frames) > 1 and not frame.kind and frame.takes_text and not frame.inner.get(tag.name)
            and tag.name not in (self._table.call, self._table.section) and not self._names.get(tag.name)
        )  # fmt: skip

    def _say(self, text: str) -> None:
        """Text inside the innermost element."""
        frame, sink = self._frames[-1], self._sink
        if frame.streaming:
            sink.argue(escape(text), text)
            return
        sink.keep(text)
        frame.text.append(text)
        if frame.kind:
            if len(self._frames) == 1 and text.strip():
                self._noise()
        elif frame.shape.types == _NULLABLE and not frame.shape.strings:
            said = "".join(frame.text)
            if not "null".startswith(said.strip()):
                self._stream(frame, said)

    def _noise(self) -> None:
        if not self._noisy:
            self._noisy = True
            self._sink.note("call.noise", self._name)

    def _stream(self, frame: _Frame, said: str) -> None:
        frame.streaming = True
        frame.text = []
        self._sink.argue('"' + escape(said), "")

    # ---------------------------------------------------------------------------------------------------- elements

    def _enter_element(self, tag: Tag) -> None:
        sink, parent = self._sink, self._frames[-1]
        if not parent.kind and parent.takes_text:
            if parent.inner or not self._sibling(tag.name):
                if not tag.raw.endswith("/>"):
                    parent.inner[tag.name] = parent.inner.get(tag.name, 0) + 1
                self._say(tag.raw)
                return
            sink.note("rescue.missing_closer", parent.name)
            self._end_element()
            parent = self._frames[-1]
        if not parent.kind:
            self._contain(parent, tag.name)
        parent.count += 1
        comma = ", " if parent.count > 1 else ""
        if parent.kind == "{":
            schema = member(parent.schema, self._root, tag.name)
            if len(self._frames) == 1:
                if tag.name in self._keys:
                    sink.note("call.duplicate_argument", tag.name)
                self._keys.add(tag.name)
            sink.argue(comma + quote(tag.name) + ": ", tag.raw)
        else:
            schema = element(parent.schema, self._root)
            sink.argue(comma, tag.raw)
        frame = _Frame(tag.name, schema, ANY if schema is None else shape_of(schema, self._root))
        self._frames.append(frame)
        self._names[frame.name] = self._names.get(frame.name, 0) + 1
        if frame.shape == STRING:
            self._stream(frame, "")
        if tag.raw.endswith("/>"):
            self._end_element()

    def _sibling(self, name: str) -> bool:
        """Whether a tag inside a text is the next argument of the object around it."""
        if len(self._frames) < 2 or name in self._keys:
            return False
        around = self._frames[-2]
        return around.kind == "{" and has_member(around.schema, self._root, name)

    def _contain(self, frame: _Frame, child: str) -> None:
        """The first child shows what an element is: an array or an object."""
        types = frame.shape.types
        listed = child == self._table.item and not has_member(frame.schema, self._root, child)
        if types is not None and ("array" in types) != ("object" in types):
            listed = "array" in types
        frame.kind = "[" if listed else "{"
        self._sink.argue(frame.kind, "")
        text = "".join(frame.text).strip()
        frame.text = []
        if text and listed:
            self._noise()
        elif text:
            frame.count += 1
            self._sink.argue(f"{quote(self._table.text_key)}: {quote(text)}", "")

    def _end_element(self, raw: str = "") -> None:
        frame = self._frames.pop()
        self._names[frame.name] -= 1
        if frame.streaming:
            self._sink.argue('"', raw)
        elif frame.kind:
            text = "".join(frame.text).strip() if self._frames else ""
            if text and frame.kind == "{":
                comma = ", " if frame.count else ""
                self._sink.argue(f"{comma}{quote(self._table.text_key)}: {quote(text)}", "")
            self._sink.argue("}" if frame.kind == "{" else "]", raw)
        else:
            self._sink.argue(_plain_value("".join(frame.text), frame.shape), raw)

    def _shut(self, tag: Tag) -> None:
        """A closing tag: of this element, of one around it, of the call, or of nothing."""
        table, sink, frame = self._table, self._sink, self._frames[-1]
        if frame.inner.get(tag.name):
            frame.inner[tag.name] -= 1
            if not frame.inner[tag.name]:
                del frame.inner[tag.name]
            self._say(tag.raw)
        elif tag.name == frame.name and len(self._frames) > 1:
            self._end_element(tag.raw)
        elif tag.name in (table.call, table.section):
            if len(self._frames) > 1 or tag.name == table.section:
                sink.note("rescue.missing_closer", frame.name)
            sink.keep(tag.raw)
            self._close_call()
            if tag.name == table.section:
                self._leave()
        elif self._names.get(tag.name):
            sink.note("rescue.missing_closer", frame.name)
            while self._frames[-1].name != tag.name:
                self._end_element()
            self._end_element(tag.raw)
        elif len(self._frames) > 1 and not frame.kind:
            sink.note("rescue.wrong_closer", tag.name)
            self._end_element(tag.raw)
        else:
            self._noise()
            sink.keep(tag.raw)


def _follows(text: str, pos: int, mark: str, closing: bool) -> bool | None:
    """Whether the next tag's mark or the end of the output comes next; `None` where that cannot be seen yet."""
    rest = text[pos : pos + BLANK_LIMIT + len(mark)].lstrip(" \t\r\n")
    if rest.startswith(mark) or (closing and not rest):
        return True
    return None if mark.startswith(rest) and len(text) < pos + BLANK_LIMIT + len(mark) and not closing else False


def _plain_value(text: str, shape: Shape) -> str:
    """An element without children as JSON; an empty one is null where the schema has null."""
    if not text.strip() and shape.types is not None and "null" in shape.types:
        return "null"
    return write(text, shape)


STEPS: Final[dict[State, Callable[[NestedCodec, str, int], int]]] = {
    State.FIRST: NestedCodec._first,
    State.SECTION: NestedCodec._section,
    State.CONTENT: NestedCodec._content,
}
