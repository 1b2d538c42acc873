"""Opening a JSON request body: top-level fields as raw JSON, errors that name the path.

Promise: linear in the body, bounded in depth, never re-serialises what it keeps. Every refusal is a TurnFailure whose
message starts with the path of the wrong field (`messages.3.content.0.text: ...`).
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Note

__all__ = ["JsonBody", "any_value", "first_byte", "invalid", "nesting", "open_body", "part", "raw_text"]

T = TypeVar("T")

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PLACE = re.compile(r"^(.*?)(?: - at `(key in )?\$(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[]+)")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_PAIR = re.compile(rb"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_WHOLE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9]{19,})(?![0-9.eE])', re.DOTALL)
_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


class JsonBody(msgspec.Struct, frozen=True):
    """The top-level fields of a request, each still raw JSON, and what had to be mended to read them."""

    fields: dict[str, msgspec.Raw]
    notes: tuple[Note, ...] = ()


def invalid(path: str, problem: str) -> TurnFailure:
    """An invalid_request failure that names the path of the wrong field."""
    return TurnFailure("invalid_request", f"{path}: {problem}" if path else problem, param=path or None)


def open_body(body: bytes, limits: Limits) -> JsonBody:
    """Split a body into its top-level fields. Lone UTF-16 surrogate escapes, which JavaScript clients send when they
    cut a string inside an emoji, are replaced by U+FFFD and noted."""
    if len(body) > limits.body_bytes:
        raise TurnFailure("too_large", f"request body is {len(body)} bytes; the limit is {limits.body_bytes}")
    notes: tuple[Note, ...] = ()
    if b"\\u" in body:
        mended, count = _mend(body)
        if count:
            body = mended
            notes = (Note("request.surrogate_replaced", f"{count} lone surrogate escape(s) replaced by U+FFFD"),)
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise invalid("", f"request body is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        fields = _FIELDS.decode(body)
    except RecursionError:
        raise invalid("", "request body is nested too deeply") from None
    except msgspec.ValidationError:
        raise invalid("", "request body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise invalid("", f"request body is not valid JSON: {error}") from None
    if _LONG_NUMBER.search(body) and _is_out_of_range(body):
        raise invalid("", "request body holds a whole number of more than 64 bits")
    return JsonBody(fields, notes)


def part(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, path: str) -> T:
    """Decode one part of a body; a mismatch is reported at `path` plus the place inside the part."""
    try:
        return decoder.decode(raw)
    except RecursionError:
        raise invalid(path, "nested too deeply") from None
    except msgspec.ValidationError as error:
        problem, inner = _placed(str(error))
        raise invalid(path + inner, problem) from None
    except msgspec.DecodeError as error:
        raise invalid(path, f"not valid JSON: {error}") from None


def any_value(raw: bytes | msgspec.Raw, path: str) -> Any:
    """Decode a part to plain Python values."""
    return part(_ANY, raw, path)


def first_byte(raw: bytes | msgspec.Raw) -> str:
    """The first character of a part, which tells its JSON type; empty where the part is missing."""
    view = memoryview(raw)
    return chr(view[0]) if len(view) else ""


def raw_text(raw: bytes | msgspec.Raw) -> str:
    """The JSON text of a part, exactly as the client wrote it."""
    return str(memoryview(raw), "utf-8")


def nesting(raw: bytes | msgspec.Raw, limit: int) -> bool:
    """Whether a JSON text nests deeper than `limit`. Counting brackets answers nearly every case without a scan."""
    data = bytes(memoryview(raw))
    if data.count(b"{") + data.count(b"[") <= limit:
        return False
    depth = 0
    for match in _BRACKET.finditer(data):
        first = data[match.start()]
        if first in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _is_out_of_range(body: bytes) -> bool:
    """Whether some whole number outside of strings fits into no 64 bits, and so could not be written again. The body is
    known to be JSON: with every string closed, the scan is linear."""
    for match in _WHOLE.finditer(body):
        digits = match.group(1)
        if digits is not None and (len(digits) > 20 or not -(2**63) <= int(digits) < 2**64):
            return True
    return False


def _placed(message: str) -> tuple[str, str]:
    found = _PLACE.match(message)
    if found is None or found.group(3) is None:
        return message, ""
    steps = (index or name for index, name in _STEP.findall(found.group(3)))
    return found.group(1), "".join(f".{step}" for step in steps)


def _mend(body: bytes) -> tuple[bytes, int]:
    """The body with lone surrogates replaced, and how many. Counting tells whether all come in pairs, which spares
    nearly every body the walk over its escapes."""
    if len(_SURROGATE.findall(body)) == 2 * len(_PAIR.findall(body)):
        return body, 0
    count = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match.group(1) is None:
            return match.group(0)
        count += 1
        return b"\\ufffd"

    return _ESCAPE.sub(mend, body), count
