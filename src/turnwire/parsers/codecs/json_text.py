"""Follows JSON text piece by piece to its end, forwarding it verbatim, without ever looking at a character twice.

Promise: JSON comes out as it went in, but for slips whose meaning is clear, which are reported.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["JsonString", "JsonText", "lenient", "plain_string"]

_DEPTH: Final = 200
_OUTSIDE = re.compile(r"""["'{}\[\]()<TFN]""")
_INSIDE: Final = {'"': re.compile(r'["\\\x00-\x1f]'), "'": re.compile(r"['\"\\\x00-\x1f]")}
_CONTROL: Final = {chr(code): f"\\u{code:04x}" for code in range(32)} | {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_CLOSES: Final = {"}": "{", "]": "[", ")": "["}


def _run(others: str) -> str:
    """The inside of a double-quoted string as far as it is plain JSON and holds none of `others`; possessive, so that
    it never backtracks."""
    plain = rf'[^"\\\x00-\x1f{others}]*+'
    return rf"{plain}(?:\\[^\x00-\x1f'{others}]{plain})*+"


def plain_string(others: str = "") -> str:
    """A pattern that finds nothing in more of a double-quoted string that can be forwarded as it is: whole escapes and
    no quote, no control character and none of `others`, which are written as in a set of characters."""
    return rf"\A(?!{_run(others)}\Z)"


_RUN = re.compile(_run(""))


class JsonText:
    """One JSON object, array or string. `feed` consumes up to the end of the value; `out` collects what to forward.

    What is not JSON but clear is rewritten on the way: control characters inside strings, single-quoted strings,
    True, False, None, tuples. `stuck` is set when a character comes that no JSON can have at that place (a `<`)."""

    __slots__ = ("_escaped", "_quote", "_word", "deep", "done", "out", "rewritten", "stack", "stuck")

    PLAIN: Final = plain_string()
    """While `in_string`, text in which this finds nothing can be forwarded as it is."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.stack: list[str] = []
        self.done = False
        self.stuck = False
        self.deep = False
        self.rewritten = ""
        self._quote = ""
        self._escaped = False
        self._word = ""

    @property
    def in_string(self) -> bool:
        """Whether the text read so far ends inside a double-quoted string, with no escape open."""
        return self._quote == '"' and not self._escaped

    def feed(self, text: str, pos: int) -> int:
        """Consume from `pos`; the position after the last character consumed."""
        out = self.out
        end = len(text)
        self.stuck = False
        while pos < end and not self.done:
            if self._quote:
                pos = self._string(text, pos)
                continue
            if self._word:
                pos = self._spell(text, pos)
                continue
            found = _OUTSIDE.search(text, pos)
            if found is None:
                out.append(text[pos:])
                return end
            at = found.start()
            if at > pos:
                out.append(text[pos:at])
            char = text[at]
            pos = at + 1
            if char == '"' or char == "'":
                self._quote = char
                out.append('"')
                if char == "'":
                    self.rewritten = "rescue.python_literal"
            elif char in "{[(":
                if len(self.stack) >= _DEPTH:
                    self.deep = True
                else:
                    self.stack.append("[" if char == "(" else char)
                out.append("[" if char == "(" else char)
                if char == "(":
                    self.rewritten = "rescue.python_literal"
            elif char in "}])":
                out.append("]" if char == ")" else char)
                if self.stack and self.stack[-1] == _CLOSES[char]:
                    self.stack.pop()
                    self.done = not self.stack
                elif not self.stack:
                    self.done = True
            elif char == "<":
                self.stuck = True
                return at
            else:
                self._word = char
        return pos

    def _string(self, text: str, pos: int) -> int:
        out = self.out
        if self._escaped:
            char = text[pos]
            self._escaped = False
            if char in _CONTROL:
                out.append(_CONTROL[char])
                self.rewritten = self.rewritten or "rescue.control_character"
            elif char == "'":
                out.append("'")
                self.rewritten = self.rewritten or "rescue.python_literal"
            else:
                out.append("\\" + char)
            return pos + 1
        if self._quote == '"':
            run = _RUN.match(text, pos)
            if run is not None and run.end() > pos:
                out.append(run.group())
                return run.end()
        found = _INSIDE[self._quote].search(text, pos)
        if found is None:
            out.append(text[pos:])
            return len(text)
        at = found.start()
        if at > pos:
            out.append(text[pos:at])
        char = text[at]
        if char == self._quote:
            out.append('"')
            self._quote = ""
            self.done = not self.stack
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            out.append('\\"')
        else:
            out.append(_CONTROL[char])
            self.rewritten = self.rewritten or "rescue.control_character"
        return at + 1

    def _spell(self, text: str, pos: int) -> int:
        """A word that may be True, False or None; it is forwarded as soon as it is decided."""
        word = self._word + text[pos]
        if word in _WORDS:
            self.out.append(_WORDS[word])
            self.rewritten = "rescue.python_literal"
            self._word = ""
            return pos + 1
        if any(name.startswith(word) for name in _WORDS):
            self._word = word
            return pos + 1
        self.out.append(self._word)
        self._word = ""
        return pos

    def flush(self) -> None:
        """No more text comes: an undecided word is forwarded as it is."""
        if self._word:
            self.out.append(self._word)
            self._word = ""

    def take(self) -> str:
        """What to forward since the last take."""
        text = "".join(self.out)
        self.out.clear()
        return text


_TEXT_RUN = re.compile(r'[^"\\]*+')
_LETTERS: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")


class JsonString:
    """Decodes one JSON string as it comes, from its opening quote to its closing one. `out` collects the text."""

    __slots__ = ("_escape", "_high", "_opened", "done", "out")

    def __init__(self) -> None:
        self.out: list[str] = []
        self.done = False
        self._opened = False
        self._escape = ""
        self._high = 0

    def feed(self, text: str, pos: int) -> int:
        """Consume from `pos`; the position after the last character consumed."""
        end = len(text)
        if not self._opened and pos < end:
            self._opened = True
            pos += 1
        while pos < end and not self.done:
            if self._escape:
                self._escaped(text[pos])
                pos += 1
                continue
            run = _TEXT_RUN.match(text, pos)
            stop = pos if run is None else run.end()
            if stop > pos:
                self._say(text[pos:stop])
            pos = stop
            if pos < end:
                if text[pos] == "\\":
                    self._escape = "\\"
                else:
                    self._say("")
                    self.done = True
                pos += 1
        return pos

    def _say(self, text: str) -> None:
        if self._high:
            self.out.append("\ufffd")
            self._high = 0
        self.out.append(text)

    def _escaped(self, char: str) -> None:
        if self._escape == "\\":
            if char == "u":
                self._escape += char
            else:
                self._escape = ""
                self._say(_LETTERS.get(char, "\\" + char))
            return
        self._escape += char
        if char not in _HEX:
            text, self._escape = self._escape, ""
            self._say(text)
        elif len(self._escape) == 6:
            code, self._escape = int(self._escape[2:], 16), ""
            if 0xDC00 <= code < 0xE000 and self._high:
                self.out.append(chr(0x10000 + ((self._high - 0xD800) << 10) + code - 0xDC00))
                self._high = 0
            else:
                self._say("" if 0xD800 <= code < 0xDC00 else "\ufffd" if 0xDC00 <= code < 0xE000 else chr(code))
                self._high = code if 0xD800 <= code < 0xDC00 else 0

    def take(self) -> str:
        """The text decoded since the last take."""
        text = "".join(self.out)
        self.out.clear()
        return text


def lenient(text: str) -> str | None:
    """`text` as JSON if it is a JSON or Python container, else None."""
    reader = JsonText()
    stop = reader.feed(text, 0)
    if not reader.done or reader.deep or stop != len(text):
        return None
    written = reader.take()
    try:
        msgspec.json.decode(written, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return None
    return written
