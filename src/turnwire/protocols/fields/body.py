"""Opening a JSON request body: top-level fields as raw JSON, errors that name the path.

Promise: one linear pass over the body, bounded in depth, never re-serialises what it keeps. Every refusal is a
TurnFailure whose message starts with the path of the wrong field (`messages.3.content.0.text: ...`). A part is checked
for depth and for numbers that cannot be written again when it is decoded, so a part that is known costs no scan.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import TurnFailure

__all__ = [
    "OpenedBody",
    "any_value",
    "check_depth",
    "check_numbers",
    "elements",
    "first_byte",
    "invalid",
    "is_deeper",
    "open_body",
    "part",
    "rebased",
    "text_of",
]

T = TypeVar("T")

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_PLACE = re.compile(r"^(.*?)(?: - at `(key in )?\$(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[]+)")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_WHOLE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9]{19,})(?![0-9.eE])', re.DOTALL)
_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)
_DIGITS = bytes(0x30 if 0x30 <= code <= 0x39 else 0 for code in range(256))
_LONG_RUN = b"0" * 19


def invalid(path: str, problem: str) -> TurnFailure:
    """An invalid_request failure that names the path of the wrong field."""
    return TurnFailure("invalid_request", f"{path}: {problem}" if path else problem, param=path or None)


def rebased(base: str, failure: TurnFailure) -> TurnFailure:
    """A failure inside a part whose own paths start at the part: the same with the path of the part in front."""
    where = failure.param or ""
    problem = failure.message.removeprefix(f"{where}: ") if where else failure.message
    return TurnFailure(
        failure.kind, f"{base}{where}: {problem}", param=base + where, code=failure.code, details=failure.details
    )


class OpenedBody(msgspec.Struct, frozen=True):
    """The top-level fields of a request, each still raw JSON, and how many lone surrogates were replaced in them."""

    fields: dict[str, msgspec.Raw]
    repaired: int = 0


def open_body(body: bytes, limits: Limits) -> OpenedBody:
    """Split a body into its top-level fields. Lone UTF-16 surrogate escapes, which JavaScript clients send when they
    cut a string inside an emoji, are replaced by U+FFFD."""
    if len(body) > limits.body_bytes:
        raise TurnFailure("too_large", f"request body is {len(body)} bytes; the limit is {limits.body_bytes}")
    try:
        if not body.isascii():
            body.decode()
    except UnicodeDecodeError as error:
        raise invalid("", f"request body is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        return OpenedBody(_FIELDS.decode(body))
    except (msgspec.DecodeError, RecursionError) as error:
        return _mended(body, error)


def _mended(body: bytes, error: Exception) -> OpenedBody:
    """The fields of a body that is not valid JSON, if nothing but lone surrogates is wrong with it. The decoder checks
    every escape of a body, also in what stays raw; only where it fails is there a need to look."""
    if isinstance(error, RecursionError):
        raise invalid("", "request body is nested too deeply") from None
    if isinstance(error, msgspec.ValidationError):
        raise invalid("", "request body must be a JSON object") from None
    fixed, count = _without_lone_surrogates(body)
    if not count:
        raise invalid("", f"request body is not valid JSON: {error}") from None
    try:
        return OpenedBody(_FIELDS.decode(fixed), count)
    except (msgspec.DecodeError, RecursionError) as left:
        return _mended(fixed, left)


def elements(raw: bytes | msgspec.Raw, path: str, problem: str) -> list[msgspec.Raw]:
    """The elements of a list, each still raw JSON; `problem` is what to say where it is not a list."""
    if first_byte(raw) != "[":
        raise invalid(path, problem)
    return part(_ELEMENTS, raw, path)


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


def any_value(raw: bytes | msgspec.Raw, path: str, depth: int) -> Any:
    """Decode a part to plain Python values that can be written again."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return part(_ANY, data, path)
    if len(data) > depth:
        check_depth(data, path, depth)
    if len(data) >= len(_LONG_RUN):
        check_numbers(data, path)
    return part(_ANY, data, path)


def first_byte(raw: bytes | msgspec.Raw) -> str:
    """The first character of a part, which tells its JSON type; empty where the part is missing."""
    view = memoryview(raw)
    return chr(view[0]) if len(view) else ""


def text_of(raw: bytes | msgspec.Raw) -> str:
    """The JSON text of a part, exactly as the client wrote it."""
    return str(memoryview(raw), "utf-8")


def check_depth(data: bytes, path: str, limit: int) -> None:
    """Refuse a part that nests deeper than the limit."""
    if is_deeper(data, limit):
        raise invalid(path, f"nested deeper than {limit}")


def is_deeper(data: bytes, limit: int) -> bool:
    """Whether a JSON text nests deeper than `limit`. Counting brackets answers nearly every case without a scan."""
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


def check_numbers(data: bytes, path: str) -> None:
    """Refuse a part with a whole number, outside of strings, that fits into no 64 bits and so could not be written
    again. The part is known to be JSON: with every string closed, the scan is linear."""
    if _LONG_RUN not in data.translate(_DIGITS):
        return
    for match in _WHOLE.finditer(data):
        digits = match.group(1)
        if digits is not None and (len(digits) > 20 or not -(2**63) <= int(digits) < 2**64):
            raise invalid(path, "holds a whole number of more than 64 bits")


def _without_lone_surrogates(body: bytes) -> tuple[bytes, int]:
    count = 0

    def repair(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match.group(1) is None:
            return match.group(0)
        count += 1
        return b"\\ufffd"

    return _ESCAPE.sub(repair, body), count


def _placed(message: str) -> tuple[str, str]:
    found = _PLACE.match(message)
    if found is None or found.group(3) is None:
        return message, ""
    steps = (index or name for index, name in _STEP.findall(found.group(3)))
    return found.group(1), "".join(f".{step}" for step in steps)
