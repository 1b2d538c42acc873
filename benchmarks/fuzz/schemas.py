"""JSON schemas drawn at random: good ones, odd ones and broken ones, and the places of a request that take one.

Promise: the same dice draw the same schemas.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

NAMES = ("c", "n", "q", "", "é", "a b", "$ref", "type", "__proto__", "x" * 60, "0", "a.b", "\x00", "\ud800")
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
PATTERNS = ("^a+$", "[a-z]{2,5}", "(a+)+$", "(?<=x)y", "\\p{L}+", "[", "(?i)x", "^\\d{1,9999}$", "\\1", "é|🙂", "")
FORMATS = ("date-time", "email", "uuid", "ipv4", "regex", "unknown", "")
REFS = (
    "#",
    "#/$defs/A",
    "#/$defs/B",
    "#/definitions/A",
    "#/properties/c",
    "#/nowhere",
    "https://x.example/s",
    "#/%zz",
    "",
)
NUMBERS = (0, 1, 2, -1, 3.5, 1e308, 2**62, -0.0, 5)


class Schemas:
    """Draws schemas. `value` gives any JSON value, for what is to be broken."""

    def __init__(self, dice: random.Random, value: Callable[[], Any]) -> None:
        self._dice = dice
        self._value = value

    def draw(self) -> Any:
        """A schema; one in eight is broken somewhere, one in forty is no schema at all."""
        dice = self._dice
        if dice.random() < 0.025:
            return self._value()
        schema = self._schema(0)
        if isinstance(schema, dict):
            if dice.random() < 0.7:
                schema = {"type": "object", "properties": self._properties(1), **schema}
            if dice.random() < 0.3:
                schema["$defs"] = {name: self._schema(1) for name in ("A", "B")}
            if dice.random() < 0.1:
                schema["definitions"] = {"A": {"$ref": "#/definitions/A"}}
        if dice.random() < 0.125:
            self._break(schema)
        return schema

    def _break(self, schema: Any) -> None:
        """Put any value at one place."""
        at = schema
        while isinstance(at, dict) and at:
            key = self._dice.choice(list(at))
            if not isinstance(at[key], dict) or self._dice.random() < 0.4:
                at[key] = self._value()
                return
            at = at[key]

    def _properties(self, depth: int) -> dict[str, Any]:
        dice = self._dice
        names = dice.sample(NAMES[:3], dice.randrange(1, 4)) + ([dice.choice(NAMES)] if dice.random() < 0.3 else [])
        return {name: self._schema(depth) for name in names}

    def _schema(self, depth: int) -> Any:
        dice = self._dice
        roll = dice.random()
        if roll < 0.05:
            return dice.choice((True, False, {}))
        if roll < 0.12:
            return {"$ref": dice.choice(REFS)}
        made: dict[str, Any] = {}
        if roll < 0.9:
            made["type"] = dice.choice(TYPES) if dice.random() < 0.9 else dice.sample(TYPES, dice.randrange(4))
        rules = self._nested(depth) if depth < 4 else []
        rules += self._plain()
        for name, make in dice.sample(rules, min(len(rules), dice.choice((0, 1, 1, 2, 3)))):
            made[name] = make()
        if made.get("type") == "object" and depth < 4 and dice.random() < 0.8:
            made["properties"] = self._properties(depth + 1)
            made.setdefault("required", dice.sample(list(made["properties"]), 1))
            if dice.random() < 0.5:
                made["additionalProperties"] = False
        if made.get("type") == "array" and depth < 4 and dice.random() < 0.8:
            made["items"] = self._schema(depth + 1)
        return made

    def _nested(self, depth: int) -> list[tuple[str, Callable[[], Any]]]:
        dice = self._dice

        def one() -> Any:
            return self._schema(depth + 1)

        def some() -> list[Any]:
            return [one() for _ in range(dice.randrange(4))]

        def named() -> dict[str, Any]:
            return {dice.choice(NAMES): one() for _ in range(dice.randrange(3))}

        return [
            *((name, some) for name in ("anyOf", "oneOf", "allOf", "prefixItems")),
            *((name, one) for name in ("not", "if", "then", "else", "contains", "items", "propertyNames")),
            *((name, one) for name in ("additionalProperties", "unevaluatedProperties", "additionalItems")),
            *((name, named) for name in ("properties", "patternProperties", "dependentSchemas", "$defs")),
        ]

    def _plain(self) -> list[tuple[str, Callable[[], Any]]]:
        dice = self._dice

        def number() -> Any:
            return dice.choice(NUMBERS)

        def names() -> list[Any]:
            return [dice.choice((*NAMES, "c", "n")) for _ in range(dice.randrange(3))]

        def values() -> list[Any]:
            return [
                self._value() if dice.random() < 0.2 else dice.choice(("a", "ls", 1, 3, None, True)) for _ in range(3)
            ]

        bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength")
        bounds += ("minItems", "maxItems", "minProperties", "maxProperties", "minContains")
        return [
            *((name, number) for name in bounds),
            ("enum", values),
            ("const", lambda: dice.choice(values())),
            ("default", self._value),
            ("required", names),
            ("dependentRequired", lambda: {"c": names()}),
            ("pattern", lambda: dice.choice(PATTERNS)),
            ("format", lambda: dice.choice(FORMATS)),
            ("uniqueItems", lambda: dice.choice((True, False))),
            ("nullable", lambda: True),
            ("title", lambda: dice.choice(NAMES)),
            ("description", lambda: dice.choice(NAMES)),
        ]


def place(path: str, body: dict[str, Any], schemas: Schemas, dice: random.Random) -> None:
    """Give a body tools and a format of its answer with schemas of their own."""
    names = dice.sample(("Bash", "Search", "Read"), dice.randrange(1, 4))
    strict = dice.choice((True, True, False, None))
    tools = [(name, schemas.draw()) for name in names]
    wanted = schemas.draw() if dice.random() < 0.4 else None
    if path.startswith("/v1/messages"):
        body["tools"] = [{"name": name, "input_schema": schema, "strict": strict} for name, schema in tools]
        body["tool_choice"] = dice.choice(({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": names[0]}))
        if wanted is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": wanted}}
    elif path.startswith("/v1/chat"):
        body["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": schema, "strict": strict}}
            for name, schema in tools
        ]
        named = {"type": "function", "function": {"name": names[0]}}
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
        body["tool_choice"] = dice.choice(("auto", "required", named, allowed, "none"))
        if wanted is not None:
            format_ = {"name": "answer", "schema": wanted, "strict": strict}
            body["response_format"] = {"type": "json_schema", "json_schema": format_}
    elif path.startswith("/v1/responses"):
        body["tools"] = [
            {"type": "function", "name": name, "parameters": schema, "strict": strict} for name, schema in tools
        ]
        named = {"type": "function", "name": names[0]}
        allowed = {"type": "allowed_tools", "mode": "required", "tools": [named]}
        body["tool_choice"] = dice.choice(("auto", "required", named, allowed, "none"))
        if wanted is not None:
            body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": wanted, "strict": strict}}
