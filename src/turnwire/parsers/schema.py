"""Decides from a tool's JSON schema what an untyped text value is, and writes it as JSON text.

Promise: a value whose only type is string is kept byte for byte; nothing is guessed that the schema does not say.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from turnwire.parsers.codecs.json_text import lenient
from turnwire.parsers.sink import is_json

__all__ = ["ANY", "STRING", "Shape", "allows", "decoded", "escape", "fits", "quote", "shape_of", "write"]

_DEPTH: Final = 24
_BREADTH: Final = 256
_MOST: Final = 512
"""Schemas looked at for one shape: a schema that refers to itself in each part of a union has no end."""

_UNSAFE = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {chr(code): f"\\u{code:04x}" for code in range(32)} | {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def escape(text: str) -> str:
    """`text` as it is between the quotes of a JSON string; the escape of a whole is that of its pieces, joined."""
    if _UNSAFE.search(text) is None:
        return text
    try:
        return msgspec.json.encode(text)[1:-1].decode()
    except UnicodeEncodeError:  # a lone surrogate, which only the slow way passes on
        return _UNSAFE.sub(lambda found: _ESCAPES[found.group()], text)


def quote(text: str) -> str:
    """`text` as a JSON string."""
    return f'"{escape(text)}"'


class Shape(msgspec.Struct, frozen=True):
    """The JSON types a value may have (None: the schema does not say), and the strings its enum allows."""

    types: frozenset[str] | None = None
    strings: frozenset[str] = frozenset()

    @property
    def streams(self) -> bool:
        """Whether the text can be forwarded before its end is seen."""
        return self.types is None or self.types == _STRING_ONLY


_STRING_ONLY: Final = frozenset({"string"})
STRING: Final = Shape(_STRING_ONLY)
ANY: Final = Shape()

_NAMES: Final = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def resolve_ref(ref: Any, root: Any) -> Any:
    """The schema a local `$ref` points to, or None."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    here = root
    for part in unquote(ref[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and key in here:
            here = here[key]
        elif isinstance(here, list) and key.isdigit() and int(key) < len(here):
            here = here[int(key)]
        else:
            return None
    return here


def shape_of(schema: Any, root: Any) -> Shape:
    """The shape a schema allows; references are followed, unions joined, bounded in depth, breadth and work."""
    return _Shapes(root).of(schema, 0)


class _Shapes:
    """Finds one shape."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _MOST

    def of(self, schema: Any, depth: int) -> Shape:
        self._left -= 1
        if not isinstance(schema, dict) or depth > _DEPTH or self._left < 0:
            return ANY
        if "$ref" in schema:
            found = self.of(resolve_ref(schema["$ref"], self._root), depth + 1)
            if found.types is not None:
                return _nullable(schema, found)
        if "const" in schema:
            return _listed([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return _nullable(schema, _listed(schema["enum"][:_BREADTH], schema.get("type")))
        declared = schema.get("type")
        if isinstance(declared, str):
            declared = [declared]
        if isinstance(declared, list) and declared:
            names = frozenset(_NAMES.get(name.lower(), name.lower()) for name in declared if isinstance(name, str))
            return _nullable(schema, Shape(names)) if names else ANY
        for union in ("anyOf", "oneOf"):
            members = schema.get(union)
            if isinstance(members, list) and members:
                return _nullable(schema, self._any_of(members, depth))
        if isinstance(schema.get("allOf"), list):
            shape = self._all_of(schema["allOf"], depth)
            if shape.types is not None:
                return _nullable(schema, shape)
        if "properties" in schema or "additionalProperties" in schema:
            return _nullable(schema, Shape(frozenset({"object"})))
        if "items" in schema or "prefixItems" in schema:
            return _nullable(schema, Shape(frozenset({"array"})))
        return ANY

    def _any_of(self, members: list[Any], depth: int) -> Shape:
        types, strings = frozenset[str](), frozenset[str]()
        for member in members[:_BREADTH]:
            shape = self.of(member, depth + 1)
            if shape.types is None:
                return ANY
            types, strings = types | shape.types, strings | shape.strings
        return Shape(types, strings)

    def _all_of(self, members: list[Any], depth: int) -> Shape:
        known = [self.of(member, depth + 1) for member in members[:_BREADTH]]
        stated = [shape for shape in known if shape.types is not None]
        if not stated:
            return ANY
        types = stated[0].types or frozenset()
        for shape in stated[1:]:
            types = types & (shape.types or frozenset()) or types
        return Shape(types, stated[0].strings)


def _nullable(schema: dict[str, Any], shape: Shape) -> Shape:
    if schema.get("nullable") is True and shape.types is not None:
        return Shape(shape.types | {"null"}, shape.strings)
    return shape


def _listed(values: list[Any], declared: Any = None) -> Shape:
    types = frozenset(map(_type_of, values))
    if isinstance(declared, str):
        types = types & {declared} or types
    return Shape(types, frozenset(value for value in values if isinstance(value, str)))


_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_PADDED = re.compile(r"([+-]?)0*([0-9]+)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_EMPTY: Final = {"array": "[]", "object": "{}"}


def _unescaped(text: str) -> str:
    """JSON that was escaped once too often (`[{\\"a\\": 1}]`), or nothing."""
    try:
        return msgspec.json.decode(f'"{text}"', type=str) if '\\"' in text else ""
    except ValueError:
        return ""


def _number(text: str) -> str | None:
    if _NUMBER.fullmatch(text):
        return text
    whole, dot, part = text.lstrip("+").partition(".")  # `5.`, `.5`, `+5`, `007`
    padded = _PADDED.fullmatch(whole or "0")
    if (
        padded is None
        or (dot and part and not part.isascii())
        or (part and not part.isdigit())
        or text in {"+", "-", "."}
    ):
        return None
    sign = "-" if padded.group(1) == "-" else ""
    return f"{sign}{padded.group(2).lstrip('0') or '0'}" + (f".{part or '0'}" if dot else "")


def write(text: str, shape: Shape) -> str:
    """`text` as JSON text of the best type `shape` allows; a string when nothing else fits."""
    types = shape.types
    if types is None or types == _STRING_ONLY or text in shape.strings:
        return quote(text)
    bare = text.strip()
    if bare == "null" and "null" in types:
        return "null"
    if "integer" in types or "number" in types:
        number = _number(bare)
        if number is not None and ("number" in types or "string" not in types or _INTEGER.fullmatch(number)):
            return number
    if "boolean" in types and bare.lower() in {"true", "false"} and (bare.islower() or "string" not in types):
        return bare.lower()
    if not bare:
        for name, empty in _EMPTY.items():
            if name in types and "string" not in types:
                return empty
    if ("object" in types and bare[:1] == "{") or ("array" in types and bare[:1] in {"[", "("}):
        if is_json(bare):
            return bare
        rewritten = lenient(bare) or lenient(_unescaped(bare))
        if rewritten is not None:
            return rewritten
    if bare == "None" and "null" in types and "string" not in types:
        return "null"
    return quote(text)


def fits(value: Any, schema: Any) -> bool:
    """Whether a decoded value could be the arguments that `schema` asks for: an object, with all required keys, no
    foreign ones, and every value of a type its own schema allows."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return False
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    required = schema.get("required")
    if isinstance(required, list) and any(key not in value for key in required):
        return False
    for key, given in value.items():
        if key not in properties:
            if schema.get("additionalProperties") in (None, False):
                return False
            continue
        types = shape_of(properties[key], schema).types
        if types is not None and not allows(types, given):
            return False
    return True


def allows(types: frozenset[str], value: Any) -> bool:
    """Whether a decoded value is of one of the types."""
    kind = _type_of(value)
    return kind in types or (kind == "integer" and "number" in types) or (kind == "number" and "integer" in types)


def decoded(text: str) -> Any:
    """The value of a JSON text, None if it is none."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
