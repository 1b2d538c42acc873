"""The top-level fields of a request body, read with refusals that name the field.

Promise: one reader for every API. `null` means absent; a wrong type or range is an invalid_request failure at the
field's own path; a field without a row in the API's table cannot be read, and is noted where a request has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

import msgspec

from turnwire.protocols.fields.body import any_value, invalid, open_body
from turnwire.protocols.fields.decoded import DecodedParts, RequestNotes
from turnwire.protocols.fields.table import Field, FieldTable
from turnwire.protocols.limits import Limits
from turnwire.turns import Note

__all__ = ["Fields"]

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_TOLD = ("noted", "echoed")
_NULL = msgspec.Raw(b"null")
_OPENING = ord("{")
_MOST_UNKNOWN = 64
_METADATA_KEYS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512


class Fields:
    """The fields of one request while it is read, and the notes taken meanwhile. `refuse` is false for a request whose
    turn is only counted, not run."""

    def __init__(self, body: bytes, table: FieldTable, limits: Limits, *, refuse: bool = True) -> None:
        self.limits = limits
        self.notes = RequestNotes()
        self._table = table
        opened = open_body(body, limits)
        if opened.repaired:
            count = opened.repaired
            self.notes.add("request.surrogate_replaced", f"{count} lone surrogate escape(s) replaced by U+FFFD")
        self._raw = opened.fields
        if _NULL in self._raw.values():
            self._raw = {name: raw for name, raw in self._raw.items() if raw != _NULL}
        self._values: dict[str, Any] = {}
        self._opened: set[str] = set()
        for name in self._raw if refuse else ():
            row = table.get(name)
            if row is not None and row.use == "refused" and self._asks(name, row):
                raise invalid(name, row.about)

    # ------------------------------------------------------------------------------------------------- reading

    def settings(self, cache: DecodedParts | None, api: str, parts: Collection[str], read: Callable[[], T]) -> T:
        """What `read` makes of the fields that are not `parts`, with the notes on every one that the answer does not
        honour. Agents repeat these fields with every request of a conversation; those that were read before, byte for
        byte, are not read again."""
        others: dict[str, msgspec.Raw] = {}
        for name, raw in self._raw.items():
            if name in parts:
                self._judge((name,))
            else:
                others[name] = raw
        if cache is None:
            value = read()
            self._judge(others)
            return value
        kind, data = cache.kind(api, "settings", self.limits), _encode(others)
        known: tuple[T, tuple[Note, ...]] | None = cache.find(kind, data)
        if known is not None:
            self.notes.extend(known[1])
            return known[0]
        before = len(self.notes)
        value = read()
        self._judge(others)
        cache.put(kind, data, (value, self.notes.all()[before:]))
        return value

    def has(self, name: str) -> bool:
        """Whether the request has the field, and not as null."""
        return self.raw(name) is not None

    def honours(self, name: str) -> bool:
        """Whether this API does something with a field or member."""
        return self._table[name].use == "honoured"

    def raw(self, name: str) -> msgspec.Raw | None:
        """A field's JSON as it was sent, for a reader of its own."""
        if name not in self._table:
            raise LookupError(f"the field {name!r} has no row in the table of its API")
        return self._raw.get(name)

    def value(self, name: str) -> Any:
        """A field's value, whatever it is; None where it is absent."""
        return self._value(name) if self.raw(name) is not None else None

    def sent(self, names: Iterable[str]) -> list[str]:
        """Those of the names that the request has."""
        return [name for name in names if name in self._raw]

    def text(self, name: str) -> str | None:
        """A text."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise invalid(name, "must be a string")
        return value

    def model(self) -> str:
        """The model's name; empty where the request leaves the choice to the gateway."""
        return self.text("model") or ""

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid(name, "must be true or false")
        return value

    def whole(self, name: str, least: int | None = None, most: int | None = None) -> int | None:
        """A whole number within bounds."""
        return whole(self.value(name), name, least, most)

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number within bounds."""
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise invalid(name, f"must be a number from {least:g} to {most:g}")
        return float(value)

    def texts(self, name: str) -> list[str] | None:
        """A list of texts."""
        value = self.value(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            raise invalid(name, "must be a list of strings")
        return value

    def object(self, name: str) -> dict[str, Any] | None:
        """An object; members without a row are noted where the table has rows for its members."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise invalid(name, "must be an object")
        self._open(name, value)
        return value

    def stops(self, name: str) -> tuple[str, ...]:
        """Stop strings; empty ones stop nothing."""
        value = self.value(name)
        stops = [value] if isinstance(value, str) and name == "stop" else [] if value is None else value
        if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
            raise invalid(
                name, "must be a string or a list of strings" if name == "stop" else "must be a list of strings"
            )
        if len(stops) > self.limits.stop_sequences:
            raise invalid(name, f"{len(stops)} stop strings; the limit is {self.limits.stop_sequences}")
        return tuple(text for text in stops if text)

    def metadata(self, name: str) -> dict[str, str]:
        """Labels that a client attaches to a request, within the bounds of the vendor."""
        value = self.object(name) or {}
        if len(value) > _METADATA_KEYS:
            raise invalid(name, f"{len(value)} entries; the limit is {_METADATA_KEYS}")
        for key, text in value.items():
            if len(key) > _METADATA_KEY:
                raise invalid(name, f"a key of {len(key)} characters; the limit is {_METADATA_KEY}")
            if not isinstance(text, str) or len(text) > _METADATA_VALUE:
                raise invalid(f"{name}.{key}", f"must be a string of at most {_METADATA_VALUE} characters")
        return value

    # --------------------------------------------------------------------------------------------------- notes

    def finish(self) -> tuple[Note, ...]:
        """All notes, with one for every field that the answer does not honour."""
        self._judge(self._raw)
        return self.notes.all()

    def _judge(self, names: Iterable[str]) -> None:
        unknown = 0
        for name in names:
            row = self._table.get(name)
            if row is None:
                unknown += 1
                if unknown <= _MOST_UNKNOWN:
                    self.notes.add("request.field_ignored", f"{name[:64]}: not known here; not used")
            else:
                if row.use in _TOLD and self._asks(name, row):
                    self._say(name, row)
                if memoryview(self._raw[name])[0] == _OPENING:
                    self._open(name, self._value(name))

    def _open(self, name: str, value: dict[str, Any]) -> None:
        if name not in self._opened:
            self._opened.add(name)
            self._members(name, value)

    def _members(self, name: str, members: dict[str, Any]) -> None:
        if not any(row.startswith(f"{name}.") for row in self._table):
            return
        for key, value in members.items():
            path = f"{name}.{key}"
            row = self._table.get(path)
            if value is None:
                continue
            if row is None:
                self.notes.add("request.field_ignored", f"{path[:96]}: not known here; not used")
            elif row.use in _TOLD and value not in row.quiet:
                self._say(path, row)
            if isinstance(value, dict) and row is not None:
                self._members(path, value)

    def _say(self, name: str, row: Field) -> None:
        code = "request.field_echoed" if row.use == "echoed" else "request.field_ignored"
        self.notes.add(code, f"{name}: not used; {row.about}")

    def _asks(self, name: str, row: Field) -> bool:
        return not row.quiet or self._value(name) not in row.quiet

    def _value(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        value = self._values[name] = any_value(self._raw[name], name, self.limits.depth)
        return value


def whole(value: Any, path: str, least: int | None = None, most: int | None = None) -> int | None:
    """A whole number within bounds, wherever it was found."""
    if value is None:
        return None
    low = least is not None and isinstance(value, int) and value < least
    high = most is not None and isinstance(value, int) and value > most
    if isinstance(value, bool) or not isinstance(value, int) or low or high:
        bounds = f" from {least}" if least is not None else ""
        raise invalid(path, f"must be a whole number{bounds}" + (f" to {most}" if most is not None else ""))
    return value
