"""Follows one Python literal piece by piece and writes it as JSON, without evaluating or reading anything twice.

Promise: what is not a literal is passed on as it was written, and makes the call malformed.
"""

from __future__ import annotations

import re
from typing import Final

from turnwire.parsers.schema import Shape, escape, quote, write

__all__ = ["PythonText"]

LOOK: Final = 64
"""How far a quote looks ahead to see whether it ends its string."""

_NUMBER: Final = Shape(frozenset({"number"}))
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES: Final = {
    "n": "\\n", "t": "\\t", "r": "\\r", "b": "\\b", "f": "\\f", "v": "\\u000b", "a": "\\u0007", "\\": "\\\\",
    "'": "'", '"': '\\"', "\n": "",
}  # fmt: skip
_HEX: Final = {"x": 2, "u": 4, "U": 8}
_CLOSERS: Final = {"[": "]", "t": ")", "?(": ")", "{": "}", "s": "}", "?{": "}"}
_OPENERS: Final = {"[": "[", "(": "?(", "{": "?{"}
_BRACKETS: Final = {"]": "[", ")": "(", "}": "{"}

_BLANK = re.compile(r"[ \t\r\n]{0,64}")
_NAMED = re.compile(r"[\w\-]{0,64}")
_CALLED = re.compile(r"[\w.\-]{0,64}")
_ATOM = re.compile(r"""[^\s,()\[\]{}:=<"']+""")
_PREFIX = re.compile(r"[rbuf]{1,2}", re.IGNORECASE)
_STOPS: Final = {'"': re.compile(r'["\\\x00-\x1f]'), "'": re.compile(r"['\"\\\x00-\x1f]")}
_HEXES = re.compile(r"[0-9a-fA-F]*")
_OCTAL = re.compile(r"[0-7]{1,3}")


class _Frame:
    """An open bracket. `?{` may still become a dict or a set, `?(` a tuple or a group."""

    __slots__ = ("at", "comma", "count", "key", "kind", "word")

    def __init__(self, kind: str, at: int) -> None:
        self.kind = kind
        self.at = at
        self.count = 0
        self.comma = False
        self.key = False
        self.word = ""


class PythonText:
    """One value of a call's argument. `feed` consumes up to the comma or parenthesis that ends it (not consumed), or
    stops before a character that no literal has there (`stuck`), or before one that more text must explain.

    Tuples and sets become lists, numbers lose what JSON does not allow, a trailing comma vanishes. A quote ends its
    string only if something that may follow a string follows; otherwise it is text (`quoted` reports it)."""

    PLAIN: Final = r"""["'\\\x00-\x1f]"""
    """While `in_string`, text in which this finds nothing can be forwarded as it is."""

    __slots__ = (
        "_lines", "_open", "_out", "_quote", "_raw", "_stack", "_undecided", "_word", "done", "quoted",
        "repaired", "stuck",
    )  # fmt: skip

    def __init__(self, lines: bool = False) -> None:
        self.done = False
        self.stuck = False
        self.quoted = False
        self.repaired = False
        self._lines = lines
        self._out: list[str] = []
        self._stack: list[_Frame] = []
        self._open = {"[": 0, "(": 0, "{": 0}
        self._undecided = 0
        self._quote = ""
        self._raw = False
        self._word: list[str] = []

    @property
    def in_string(self) -> bool:
        """Whether the text read so far ends inside a string whose characters are forwarded as they come."""
        return bool(self._quote) and not self._undecided

    def take(self) -> str:
        """What to forward since the last take; nothing while a bracket's meaning is open."""
        if self._undecided:
            return ""
        text = "".join(self._out)
        self._out.clear()
        return text

    def feed(self, text: str, pos: int, closing: bool = False) -> int:
        """Consume from `pos`; the position after the last character consumed."""
        end = len(text)
        self.stuck = False
        while pos < end and not self.done and not self.stuck:
            if self._quote:
                new = self._string(text, pos, closing)
            elif text[pos] in " \t\r\n":
                self._end_word()
                new = pos + 1
            else:
                found = _ATOM.match(text, pos)
                if found is not None:
                    self._word.append(found.group())
                    new = found.end()
                elif text[pos] in "\"'":
                    new = self._begin_string(text, pos, closing)
                else:
                    self._end_word()
                    new = self._mark(text, pos)
            if new == pos:
                return pos
            pos = new
        return pos

    def swallow(self, char: str) -> None:
        """A character that the value was stuck at is part of it after all; no JSON comes of it."""
        self._end_word()
        self._out.append(char)

    def finish(self) -> None:
        """No more text comes: what is undecided is written as it is."""
        self._end_word()
        self._undecided = 0

    # -------------------------------------------------------------------------------------------------- structure

    def _begin(self) -> None:
        """A value begins: the comma before it is written now."""
        if self._stack:
            frame = self._stack[-1]
            frame.count += 1
            if frame.comma:
                self._out.append(", ")
                frame.comma = False

    def _end_word(self) -> None:
        if not self._word:
            return
        written = _atom("".join(self._word))
        self._word.clear()
        self._begin()
        if self._stack:
            frame = self._stack[-1]
            if frame.kind == "{" and frame.key:
                written = quote(written)
            elif frame.kind == "?{" and frame.count == 1:
                frame.word = written
        self._out.append(written)

    def _mark(self, text: str, pos: int) -> int:
        """A structural character."""
        char = text[pos]
        if char in _OPENERS:
            self._begin()
            kind = _OPENERS[char]
            self._open[char] += 1
            self._stack.append(_Frame(kind, len(self._out)))
            self._out.append(char)
            self._undecided += kind[0] == "?"
            return pos + 1
        if not self._stack:
            if char == "," or char == ")":
                self.done = True
            else:
                self.stuck = True
            return pos
        frame = self._stack[-1]
        if char in _BRACKETS:
            return self._close(char, frame, pos)
        if char == ",":
            if frame.kind in ("?{", "?("):
                self._decide(frame, "s" if frame.kind == "?{" else "t", "[")
            frame.comma = True
            frame.key = frame.kind == "{"
        elif char == ":" and frame.kind == "?{" and frame.count == 1:
            if frame.word:
                self._out[-1] = quote(frame.word)
            self._decide(frame, "{", "{")
            self._out.append(": ")
        elif char == ":" and frame.kind == "{" and frame.key:
            frame.key = False
            self._out.append(": ")
        elif char == "<":
            self.stuck = True
            return pos
        else:
            self._out.append(char)
        return pos + 1

    def _decide(self, frame: _Frame, kind: str, bracket: str) -> None:
        frame.kind = kind
        self._out[frame.at] = bracket
        self._undecided -= 1

    def _close(self, char: str, frame: _Frame, pos: int) -> int:
        if _CLOSERS[frame.kind] != char and not self._open[_BRACKETS[char]] and char != ")":
            self._out.append(char)  # closes nothing: no JSON can come of this
            return pos + 1
        while self._stack:
            frame = self._stack[-1]
            fits = _CLOSERS[frame.kind] == char
            self._end(frame)
            if fits:
                return pos + 1
            self.repaired = True
        self.done = True
        return pos

    def _end(self, frame: _Frame) -> None:
        self._stack.pop()
        closer = _CLOSERS[frame.kind]
        self._open[_BRACKETS[closer]] -= 1
        if frame.kind == "?{":
            self._decide(frame, "s" if frame.count else "{", "[" if frame.count else "{")
            closer = "]" if frame.count else "}"
        elif frame.kind == "?(":
            self._decide(frame, "t", "" if frame.count == 1 else "[")
            closer = "" if frame.count == 1 else "]"
        elif frame.kind in ("s", "t"):
            closer = "]"
        self._out.append(closer)

    # ---------------------------------------------------------------------------------------------------- strings

    def _begin_string(self, text: str, pos: int, closing: bool) -> int:
        char = text[pos]
        run = text[pos : pos + 3]
        if run == char * len(run) and len(run) < 3 and not closing:
            return pos
        prefix = "".join(self._word) if len(self._word) < 3 else ""
        if _PREFIX.fullmatch(prefix) is not None:
            self._word.clear()
        else:
            self._end_word()
            prefix = ""
        self._begin()
        self._raw = "r" in prefix.lower()
        self._quote = char * 3 if run == char * 3 else char
        self._out.append('"')
        return pos + len(self._quote)

    def _string(self, text: str, pos: int, closing: bool) -> int:
        out = self._out
        found = _STOPS[self._quote[0]].search(text, pos)
        if found is None:
            out.append(text[pos:])
            return len(text)
        at = found.start()
        if at > pos:
            out.append(text[pos:at])
        char = text[at]
        if char == self._quote[0]:
            return self._end_string(text, at, closing)
        if char == "\\":
            return self._escape(text, at, closing)
        out.append(escape(char))
        return at + 1

    def _end_string(self, text: str, at: int, closing: bool) -> int:
        """A quote inside a string: its end, or text."""
        size = len(self._quote)
        if size == 3:
            run = text[at : at + 3]
            if len(run) < 3 and not closing and run == self._quote[: len(run)]:
                return at
            ends: bool | None = run == self._quote
        else:
            ends = self._ends(text, at + 1, closing)
            if ends is None:
                return at
        if ends:
            self._out.append('"')
            self._quote = ""
            return at + size
        self.quoted = True
        self._out.append(escape(text[at]))
        return at + 1

    def _ends(self, text: str, pos: int, closing: bool) -> bool | None:
        """Whether what follows a quote may follow a string; None if only more text can tell."""
        at, char = _peek(text, pos, closing)
        if len(char) != 1:
            return None if char else True
        if not self._stack:
            return self._ends_argument(text, at, char, closing)
        frame = self._stack[-1]
        if char == ":":
            return frame.kind == "?{" or (frame.kind == "{" and frame.key)
        if char == _CLOSERS[frame.kind]:
            return True
        if char != ",":
            return False
        _, char = _peek(text, at + 1, closing)
        if len(char) != 1:
            return None if char else True
        return char in "\"'[{(]})+-._" or char.isalnum()

    def _ends_argument(self, text: str, at: int, char: str, closing: bool) -> bool | None:
        if char == ",":
            at, char = _peek(text, at + 1, closing)
            if len(char) != 1:
                return None if char else True
            name = _NAMED.match(text, at)
            stop = at if name is None else name.end()
            if stop == at:
                return char in ")*"
            at, char = _peek(text, stop, closing)
            if len(char) != 1:
                return None if char else True
            return char == "="
        if char == "<":
            return _token(text, at, closing)
        if char not in ")]":
            return False
        after, follower = _peek(text, at + 1, closing)
        if len(follower) != 1:
            return None if follower else True
        if follower == "<":
            return _token(text, after, closing)
        if char == "]":
            return False
        if follower in ",];":
            return True
        if not self._lines or "\n" not in text[at:after]:
            return False
        name = _CALLED.match(text, after)
        stop = after if name is None else name.end()
        if stop == len(text) and not closing and stop - after < LOOK:
            return None
        return stop > after and text[stop : stop + 1] == "("

    def _escape(self, text: str, at: int, closing: bool) -> int:
        """A backslash and what it means."""
        out = self._out
        char = text[at + 1 : at + 2]
        if not char:
            if closing:
                out.append("\\\\")
                return at + 1
            return at
        if self._raw:
            out.append("\\\\" + escape(char))
            return at + 2
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
            return at + 2
        if char in _HEX:
            size = _HEX[char]
            digits = text[at + 2 : at + 2 + size]
            right = _HEXES.fullmatch(digits) is not None
            if right and len(digits) < size and not closing:
                return at
            if right and len(digits) == size and int(digits, 16) <= 0x10FFFF:
                out.append(f"\\u{digits}" if size == 4 else escape(chr(int(digits, 16))))
                return at + 2 + size
        elif char in "01234567":
            found = _OCTAL.match(text, at + 1)
            digits = "" if found is None else found.group()
            if len(digits) < 3 and at + 1 + len(digits) == len(text) and not closing:
                return at
            out.append(escape(chr(int(digits, 8))))
            return at + 1 + len(digits)
        out.append("\\\\" + escape(char))
        return at + 2


def _peek(text: str, pos: int, closing: bool) -> tuple[int, str]:
    """The next visible character and where it is; no character at the end of the output, two of them (which is none)
    where the text ends too early to tell. Whitespace that never ends counts as the end."""
    found = _BLANK.match(text, pos)
    at = pos if found is None else found.end()
    if at - pos == LOOK:
        return at, ""
    if at == len(text):
        return at, "" if closing else "??"
    return at, text[at]


def _token(text: str, at: int, closing: bool) -> bool | None:
    """Whether a special token or a closing tag begins here."""
    after = text[at + 1 : at + 2]
    return (None if not closing else False) if not after else after in "|/"


def _atom(word: str) -> str:
    """A number or a word as JSON; anything else stays as it is, and no JSON comes of it."""
    known = _WORDS.get(word)
    if known is not None:
        return known
    plain = word.replace("_", "")
    if plain[:2].lower() in ("0x", "0o", "0b") and len(plain) < LOOK:
        try:
            return str(int(plain, 0))
        except ValueError:
            return word
    written = write(plain, _NUMBER)
    return word if written[:1] == '"' else written
