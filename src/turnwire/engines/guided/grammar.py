"""Writes GBNF grammars: literals, text up to a marker, and JSON that fits a schema.

Promise: the part of GBNF that llama.cpp and xgrammar both read. A grammar is linear in its schema and bounded; what a
schema says beyond what is covered here is left open rather than refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from turnwire.parsers.schema import resolve_ref

__all__ = ["Grammar", "literal"]

_DEPTH = 24
_RULES = 2000
_REPEAT = 64
_WORK = 20_000
"""Schemas and their members that are read for one grammar. The rules alone bound nothing: equal ones are one rule."""

_BASE = {
    # Room for pretty-printed JSON, but not for endless blank lines, which small models fall into.
    "ws": '(" " | "\\n" [ \\t]{0,32})?',
    "char": '[^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt/] | "u" [0-9a-fA-F]{4})',
    "string": '"\\"" char* "\\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,17})',
    "number": 'integer ("." [0-9]{1,17})? ([eE] [-+]? [0-9]{1,3})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" ws (string ":" ws value ("," ws string ":" ws value)*)? ws "}"',
    "array": '"[" ws (value ("," ws value)*)? ws "]"',
}


def literal(text: str) -> str:
    """`text` as a GBNF literal."""
    marks = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(marks.get(character, character) for character in text) + '"'


def _class(characters: Sequence[str], *, negated: bool = False) -> str:
    marks = {"]": "\\]", "[": "\\[", "\\": "\\\\", "^": "\\^", "-": "\\-", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    inside = "".join(marks.get(character, character) for character in characters)
    return f"[{'^' if negated else ''}{inside}]"


class Grammar:
    """Rules under construction. `text` is the finished grammar."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._shared: dict[str, str] = {}
        self._left = _WORK

    def text(self, root: str) -> str:
        """The grammar that starts with the expression `root`."""
        rules = {"root": root, **self._rules, **_BASE}
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def rule(self, hint: str, body: str) -> str:
        """A rule of its own for `body`; the same body gives the same rule."""
        known = self._shared.get(body)
        if known is None:
            known = self._shared[body] = self._name(hint)
            self._rules[known] = body
        return known

    def reserve(self, hint: str) -> str:
        """A rule whose body is written later with `define`, so that it may refer to itself; until then any value."""
        name = self._name(hint)
        self._rules[name] = "value"
        return name

    def define(self, name: str, body: str) -> None:
        """The body of a reserved rule."""
        self._rules[name] = body

    def _name(self, hint: str) -> str:
        clean = "".join(character if character.isascii() and character.isalnum() else "-" for character in hint)
        return f"{clean.strip('-').lower()[:24] or 'r'}-{len(self._rules)}"

    # ------------------------------------------------------------------------------------------------- text

    def until(self, marker: str) -> str:
        """Any text up to and with the first `marker`."""
        return self._scan(marker, closed=True)

    def without(self, marker: str) -> str:
        """Any text, also none, in which `marker` does not occur."""
        return self._scan(marker, closed=False)

    def _scan(self, marker: str, *, closed: bool) -> str:
        # The automaton that looks for `marker`, one rule per state: how much of it was just read.
        key = f"{'until' if closed else 'without'} {marker}"
        if key in self._shared:
            return self._shared[key]
        letters = list(dict.fromkeys(marker))
        names = [self._state(key, place) for place in range(len(marker))]
        self._shared[key] = names[0]
        for place, name in enumerate(names):
            ways = [f"{_class(letters, negated=True)} {names[0]}"]
            for letter in letters:
                read = _longest_border(marker[:place] + letter, marker)
                if read < len(marker):
                    ways.append(f"{literal(letter)} {names[read]}")
                elif closed:
                    ways.append(literal(letter))
            if not closed:
                ways.append('""')
            self._rules[name] = " | ".join(ways)
        return names[0]

    def _state(self, key: str, place: int) -> str:
        name = self._name(f"{key.split()[0]}{place}")
        self._rules[name] = ""
        return name

    # ------------------------------------------------------------------------------------------------- JSON

    def json(self, schema: Any, hint: str = "value") -> str:
        """An expression for JSON that fits `schema`."""
        return _SchemaWriter(self, schema).write(schema, hint, 0)

    def members(
        self, hint: str, pairs: Mapping[str, str], required: Collection[Any], separator: str, extra: str | None = None
    ) -> str:
        """Members in the given order, those not required left out at will, then `extra` ones. Two rules per
        member: for what may follow when nothing was written yet, and when something was."""
        first = f"({extra} ({separator} {extra})*)?" if extra else '""'
        then = f"({separator} {extra})*" if extra else '""'
        for name, pair in reversed(list(pairs.items())):
            skip_first, skip_then = ("", "") if name in required else (f" | {first}", f" | {then}")
            first, then = (
                self.rule(f"{hint}-{name}", f"{pair} {then}{skip_first}"),
                self.rule(f"{hint}-{name}", f"{separator} {pair} {then}{skip_then}"),
            )
        return first

    @property
    def full(self) -> bool:
        """Whether a bound is reached; further detail is left open."""
        return len(self._rules) >= _RULES or self._left < 0

    def read(self, count: int) -> None:
        """Count what was read of a schema."""
        self._left -= count


def _longest_border(read: str, marker: str) -> int:
    return next(size for size in range(min(len(read), len(marker)), -1, -1) if read.endswith(marker[:size]))


class _SchemaWriter:
    """One schema's rules; `$ref` is looked up in its root."""

    def __init__(self, grammar: Grammar, root: Any) -> None:
        self._grammar = grammar
        self._root = root
        self._refs: dict[str, str] = {}

    def write(self, schema: Any, hint: str, depth: int) -> str:
        self._grammar.read(1)
        if not isinstance(schema, Mapping) or depth > _DEPTH or self._grammar.full:
            return "value"
        if "$ref" in schema:
            return self._reference(str(schema["$ref"]), hint, depth)
        if "const" in schema:
            return literal(_dump(schema["const"]))
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._grammar.rule(hint, " | ".join(literal(_dump(value)) for value in schema["enum"]))
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                choices = [self.write(choice, hint, depth + 1) for choice in schema[key]]
                return self._grammar.rule(hint, " | ".join(dict.fromkeys(choices)))
        if isinstance(schema.get("allOf"), list) and schema["allOf"]:
            return self.write(self._merged(schema), hint, depth + 1)
        return self._typed(schema, hint, depth)

    def _typed(self, schema: Mapping[str, Any], hint: str, depth: int) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            names = dict.fromkeys(one for one in kind if isinstance(one, str))
            choices = [self._typed({**schema, "type": name}, hint, depth) for name in names]
            return self._grammar.rule(hint, " | ".join(dict.fromkeys(choices))) if choices else "value"
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, hint, depth)
        if kind == "array" or (kind is None and "items" in schema):
            return self._array(schema, hint, depth)
        if kind == "string":
            return self._string(schema, hint)
        return str(kind) if kind in ("integer", "number", "boolean", "null") else "value"

    def _string(self, schema: Mapping[str, Any], hint: str) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if not isinstance(least, int) or least > _REPEAT:
            least = 0
        if not isinstance(most, int) or most > _REPEAT or most < least:
            most = None
        if not least and most is None:
            return "string"
        return self._grammar.rule(hint, f'"\\"" char{{{least},{"" if most is None else most}}} "\\""')

    def _array(self, schema: Mapping[str, Any], hint: str, depth: int) -> str:
        item = self.write(schema.get("items", {}), f"{hint}-item", depth + 1)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        least = least if isinstance(least, int) and 0 <= least <= _REPEAT else 0
        most = most if isinstance(most, int) and least <= most <= _REPEAT else None
        if most == 0:
            return self._grammar.rule(hint, '"[" ws "]"')
        more = f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        listed = f'{item} ("," ws {item}){more}'
        return self._grammar.rule(hint, f'"[" ws {listed if least else f"({listed})?"} ws "]"')

    def _object(self, schema: Mapping[str, Any], hint: str, depth: int) -> str:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = set(_names(schema.get("required")))
        extra = schema.get("additionalProperties", not properties)
        if not properties and extra is True and not required:
            return "object"
        pairs = {
            str(name): f"{literal(_dump(str(name)) + ':')} ws {self.write(sub, f'{hint}-{name}', depth + 1)}"
            for name, sub in properties.items()
        }
        members = self._grammar.members(hint, pairs, required, '"," ws', self._extra(extra, hint, depth))
        return self._grammar.rule(hint, f'"{{" ws {members} ws "}}"')

    def _extra(self, extra: Any, hint: str, depth: int) -> str | None:
        if extra is False or extra is None:
            return None
        value = "value" if extra is True else self.write(extra, f"{hint}-extra", depth + 1)
        return f'string ":" ws {value}'

    def _merged(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
        properties = _members(merged.pop("properties", None))
        required = dict.fromkeys(_names(merged.get("required")))
        for part in schema["allOf"]:
            part = resolve_ref(part["$ref"], self._root) if isinstance(part, Mapping) and "$ref" in part else part
            if self._grammar.full or not isinstance(part, Mapping):
                continue
            members, names = _members(part.get("properties")), _names(part.get("required"))
            self._grammar.read(1 + len(members) + len(names))
            properties |= members
            required |= dict.fromkeys(names)
            merged.update((key, value) for key, value in part.items() if key not in ("properties", "required"))
        merged["required"] = list(required)
        return merged | ({"properties": properties} if properties else {})

    def _reference(self, name: str, hint: str, depth: int) -> str:
        if name not in self._refs:
            rule = self._refs[name] = self._grammar.reserve(name.rsplit("/", 1)[-1])
            self._grammar.define(rule, self.write(resolve_ref(name, self._root), hint, depth + 1))
        return self._refs[name]


def _members(properties: Any) -> dict[str, Any]:
    return dict(properties) if isinstance(properties, Mapping) else {}


def _names(required: Any) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _dump(value: Any) -> str:
    return msgspec.json.encode(value).decode()
