"""The raw text of a custom tool call, read out of the JSON argument while it is still being written.

Promise: linear, never raises, and the result depends on the characters alone, not on how they were cut: the pieces
given out joined are a prefix of `text`, which is the whole input once the call is closed.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from turnwire.conventions import RAW_INPUT
from turnwire.unreadable import UNREADABLE

__all__ = ["CustomInput"]

_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_OPENING = ("{", f'"{RAW_INPUT}"', ":", '"')
_REPLACEMENT = "\ufffd"
_SPECIAL = re.compile(r'["\\]')


class CustomInput:
    """Fed with argument text (`{"input":"..."}`), gives back input text. Where the argument is not of that form,
    nothing is given out before the end, and `finish` finds the best reading of the whole."""

    __slots__ = ("_held", "_pieces", "_raw", "_state", "_step")

    def __init__(self) -> None:
        self._state = "opening"
        self._step = 0
        self._held = ""
        self._raw: list[str] = []
        self._pieces: list[str] = []

    def feed(self, text: str) -> str:
        """More argument text; the input text that is now certain."""
        if self._state in ("opening", "other"):
            self._raw.append(text)
        if self._state == "opening":
            text = self._open(self._held + text)
        elif self._state == "string":
            text, self._held = self._held + text, ""
        if self._state != "string" or not text:
            return ""
        piece = self._string(text)
        if piece:
            self._pieces.append(piece)
        return piece

    def finish(self) -> tuple[str, str]:
        """The last piece to give out, and the whole input."""
        if self._state in ("opening", "other"):
            whole = _reading("".join(self._raw))
            return whole, whole
        piece = _REPLACEMENT if self._state == "string" and _half_pair(self._held) else ""
        self._pieces.append(piece)
        return piece, "".join(self._pieces)

    def _open(self, text: str) -> str:
        """Match the opening of the argument; what follows it once it is complete."""
        self._held = ""
        while self._step < len(_OPENING):
            text = text.lstrip(" \t\r\n")
            wanted = _OPENING[self._step]
            if text.startswith(wanted):
                text = text[len(wanted) :]
                self._step += 1
            elif wanted.startswith(text):
                self._held = text
                return ""
            else:
                self._state = "other"
                return ""
        self._state = "string"
        self._raw.clear()
        return text

    def _string(self, text: str) -> str:
        out: list[str] = []
        at, end = 0, len(text)
        while at < end:
            special = _SPECIAL.search(text, at)
            if special is None:
                out.append(text[at:])
                break
            out.append(text[at : special.start()])
            at = special.start()
            if text[at] == '"':
                self._state = "closed"
                break
            decoded, used = _escape(text, at)
            if used == 0:
                self._held = text[at:]
                break
            out.append(decoded)
            at += used
        return "".join(out)


def _escape(text: str, at: int) -> tuple[str, int]:
    """The character that the escape at `at` means, and its length; length 0 when more text is needed."""
    if at + 1 >= len(text):
        return "", 0
    letter = text[at + 1]
    if letter != "u":
        # An escape that JSON does not know is kept as the model wrote it.
        return _SIMPLE.get(letter, "\\" + letter), 2
    digits = text[at + 2 : at + 6]
    if len(digits) < 4:
        return ("", 0) if _hex(digits) else ("\\u", 2)
    if not _hex(digits):
        return "\\u", 2
    code = int(digits, 16)
    if not 0xD800 <= code <= 0xDFFF:
        return chr(code), 6
    if code >= 0xDC00:
        return _REPLACEMENT, 6
    tail = text[at + 6 : at + 12]
    if len(tail) == 6 and tail.startswith("\\u") and _hex(tail[2:]) and 0xDC00 <= int(tail[2:], 16) <= 0xDFFF:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(tail[2:], 16) - 0xDC00)), 12
    if len(tail) < 6 and "\\u".startswith(tail[:2]) and _hex(tail[2:]):
        return "", 0
    return _REPLACEMENT, 6


def _hex(text: str) -> bool:
    return all(c in "0123456789abcdefABCDEF" for c in text)


def _half_pair(held: str) -> bool:
    """Whether what is held back at the end is the first half of a surrogate pair."""
    return len(held) >= 6 and held.startswith("\\u")


def _reading(raw: str) -> str:
    """The input in an argument that is not `{"input": "..."}`: the only string in it, else the text itself."""
    try:
        value: Any = msgspec.json.decode(raw)
    except UNREADABLE:
        return raw
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        chosen = value.get(RAW_INPUT)
        if isinstance(chosen, str):
            return chosen
        if len(value) == 1 and isinstance(only := next(iter(value.values())), str):
            return only
    return raw
