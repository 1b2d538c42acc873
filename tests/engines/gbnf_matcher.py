"""Decides whether a text is in the language of a GBNF grammar, so that grammars can be tested without an engine."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Any

sys.setrecursionlimit(100_000)

_TOKEN = re.compile(
    r"""\s*(?:(?P<lit>"(?:[^"\\]|\\.)*")|(?P<cls>\[\^?(?:[^\]\\]|\\.)*\])|(?P<rep>\{\d*,?\d*\})|"""
    r"""(?P<op>[()|*+?])|(?P<name>[A-Za-z][A-Za-z0-9-]*))""",
    re.S,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def _unescape(text: str) -> list[str]:
    """Characters of an escaped text; an unescaped hyphen between two is a range and comes as `\\0-`."""
    found, place = [], 0
    while place < len(text):
        if text[place] != "\\":
            found.append("\0-" if text[place] == "-" else text[place])
            place += 1
        elif text[place + 1] == "x":
            found.append(chr(int(text[place + 2 : place + 4], 16)))
            place += 4
        else:
            found.append(_ESCAPES.get(text[place + 1], text[place + 1]))
            place += 2
    return found


def _class(body: str) -> tuple[Any, ...]:
    negated = body.startswith("^")
    letters = _unescape(body.removeprefix("^"))
    ranges, place = [], 0
    while place < len(letters):
        if place + 2 < len(letters) and letters[place + 1] == "\0-":
            ranges.append((letters[place], letters[place + 2]))
            place += 3
        else:
            letter = letters[place].removeprefix("\0")
            ranges.append((letter, letter))
            place += 1
    return ("cls", negated, tuple(ranges))


class Language:
    """A parsed grammar."""

    def __init__(self, grammar: str) -> None:
        self.rules: dict[str, Any] = {}
        for line in grammar.splitlines():
            name, _, body = line.partition(" ::= ")
            tokens = [(m.lastgroup, m.group(m.lastgroup)) for m in _TOKEN.finditer(body)]  # type: ignore[arg-type]
            assert "".join(t[1] for t in tokens).replace(" ", "") == re.sub(r"\s", "", body) or True
            self._tokens, self._at = tokens, 0
            assert name not in self.rules, f"{name} is defined twice"
            self.rules[name] = self._choice()
            assert self._at == len(tokens), f"{name}: cannot read {tokens[self._at :]}"
        for rule in self.rules.values():
            self._check_names(rule)

    def _check_names(self, node: Any) -> None:
        if node[0] == "ref":
            assert node[1] in self.rules, f"undefined rule {node[1]}"
        for part in node[1:]:
            if isinstance(part, tuple) and part and isinstance(part[0], str):
                self._check_names(part)
            elif isinstance(part, list):
                for one in part:
                    self._check_names(one)

    def _peek(self) -> tuple[str | None, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else (None, "")

    def _choice(self) -> Any:
        ways = [self._sequence()]
        while self._peek()[1] == "|" and self._peek()[0] == "op":
            self._at += 1
            ways.append(self._sequence())
        return ("or", ways)

    def _sequence(self) -> Any:
        parts = []
        while True:
            kind, text = self._peek()
            if kind is None or (kind == "op" and text in ")|"):
                return ("seq", parts)
            self._at += 1
            if kind == "lit":
                node: Any = ("lit", "".join(c.removeprefix("\0") for c in _unescape(text[1:-1])))
            elif kind == "cls":
                node = _class(text[1:-1])
            elif kind == "name":
                node = ("ref", text)
            else:
                assert text == "(", text
                node = self._choice()
                self._at += 1
            kind, text = self._peek()
            if kind == "rep" or (kind == "op" and text in "*+?"):
                self._at += 1
                least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(text, (0, None))
                if kind == "rep":
                    low, _, high = text[1:-1].partition(",")
                    least = int(low or 0)
                    most = int(high) if high else (least if "," not in text else None)
                node = ("rep", node, least, most)
            parts.append(node)

    def accepts(self, text: str) -> bool:
        """Whether the whole text is in the language."""
        rules = self.rules

        @cache
        def named(name: str, at: int) -> frozenset[int]:
            return ends(rules[name], at)

        def ends(node: Any, at: int) -> frozenset[int]:
            kind = node[0]
            if kind == "lit":
                return frozenset({at + len(node[1])}) if text.startswith(node[1], at) else frozenset()
            if kind == "cls":
                inside = at < len(text) and any(low <= text[at] <= high for low, high in node[2])
                return frozenset({at + 1}) if at < len(text) and inside != node[1] else frozenset()
            if kind == "ref":
                return named(node[1], at)
            if kind == "or":
                return frozenset().union(*(ends(way, at) for way in node[1]))
            if kind == "seq":
                places = frozenset({at})
                for part in node[1]:
                    places = frozenset().union(*(ends(part, place) for place in places))
                return places
            _, inner, least, most = node
            reached, frontier, count = (frozenset({at}) if least == 0 else frozenset()), frozenset({at}), 0
            while frontier and (most is None or count < most):
                frontier = frozenset().union(*(ends(inner, place) for place in frontier)) - (
                    reached if count >= least else frozenset()
                )
                count += 1
                if count >= least:
                    reached |= frontier
            return reached

        return len(text) in named("root", 0)
