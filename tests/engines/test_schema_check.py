"""Schemas that a client made up: whatever one is, checking a value and writing a grammar end, and raise nothing."""

from __future__ import annotations

from typing import Any

import pytest

from turnwire.engines.guided.grammar import Grammar
from turnwire.engines.guided.schema_check import faults

ITSELF = {"$ref": "#"}


def nested(depth: int) -> dict[str, Any]:
    """Twelve equal types at each level."""
    return {"type": ["object"] * 12, "properties": {"a": nested(depth - 1)} if depth else {}}


ENDLESS: dict[str, dict[str, Any]] = {
    "anyOf": {"anyOf": [ITSELF] * 16},
    "oneOf": {"oneOf": [ITSELF] * 16},
    "allOf": {"allOf": [ITSELF] * 16},
    "not": {"not": {"anyOf": [ITSELF] * 16}},
    "all of them": {"allOf": [{"anyOf": [ITSELF] * 16}] * 16, "oneOf": [ITSELF] * 16, "$ref": "#"},
    "types": nested(12),
    "required": {"allOf": [{"required": [f"p{number}" for number in range(30)], "allOf": [ITSELF]}] * 500},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_schema_without_end_is_read_for_so_long_and_no_longer(name: str) -> None:
    assert len(faults({"a": [1, 2, 3]}, ENDLESS[name])) <= 8
    grammar = Grammar()
    assert len(grammar.text(grammar.json(ENDLESS[name]))) < 2_000_000


def test_a_long_value_is_checked_for_so_long_and_no_longer() -> None:
    listed = {"items": {"enum": list(range(1000))}}
    assert faults([1] * 10 + ["x"], listed) == (f"[10] is none of {list(range(1000))!r}",)
    assert faults([1] * 100 + ["x"], listed) == ()


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({}, {"required": [[], {}, None]}),
        (1.5, {"multipleOf": 10**400}),
        (10**400, {"multipleOf": 1.5}),
        (1, {"$ref": []}),
        ({"a": 1}, {"properties": [], "required": {}, "additionalProperties": 3}),
        ([1], {"items": 3, "prefixItems": {}, "minItems": "x"}),
        ("x", {"type": [[], {}], "enum": {}, "anyOf": {}, "maxLength": True}),
    ],
)
def test_what_is_no_schema_raises_nothing(value: Any, schema: dict[str, Any]) -> None:
    assert isinstance(faults(value, schema), tuple)
