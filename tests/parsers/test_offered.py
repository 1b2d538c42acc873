"""A tool inside a namespace is found by its bare name, typed by its schema and called by its own name."""

from __future__ import annotations

import json

import pytest
from running import parse

from turnwire.parsers import resolve
from turnwire.parsers.offered import OfferedTools
from turnwire.turns import Tool

NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
ADD = Tool(name="mcp__calc__add", namespace="mcp__calc", schema=NUMBERS)
WAIT = Tool(name="agents__wait", namespace="agents", schema=NUMBERS)
FLAT = Tool(name="mcp__mail__send", schema=NUMBERS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mcp__calc__add", ADD),
        ("add", ADD),
        ("mcp__calc.add", ADD),
        ("calc.add", ADD),
        ("calc__add", ADD),
        ("wait", WAIT),
        ("agents.wait", WAIT),
        ("send", FLAT),
        ("mail.send", FLAT),
        ("sub", None),
        ("", None),
        ("mcp__calc", None),
    ],
)
def test_names_that_mean_a_tool(name: str, meant: Tool | None) -> None:
    tools = OfferedTools([ADD, WAIT, FLAT])
    assert tools.get(name) is meant
    assert (name in tools) is (meant is not None)
    assert list(tools.values()) == [ADD, WAIT, FLAT]


def test_a_name_that_could_mean_two_tools_means_none() -> None:
    other = Tool(name="mcp__sums__add", namespace="mcp__sums")
    tools = OfferedTools([ADD, other])
    assert "add" not in tools
    assert tools["calc.add"] is ADD
    assert tools["sums.add"] is other


def test_a_tool_of_that_very_name_comes_first() -> None:
    own = Tool(name="add")
    assert OfferedTools([ADD, own])["add"] is own


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (
            "qwen3_coder",
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
            "</function>\n</tool_call>",
        ),
        ("hermes", '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'),
        (
            "glm45",
            "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>",
        ),
    ],
)
def test_a_call_by_the_bare_name_is_typed_and_named(dialect: str, text: str) -> None:
    turn = parse(resolve(dialect), text, [ADD])
    (call,) = turn.blocks
    assert (call.name, json.loads(call.text)) == ("mcp__calc__add", {"a": 1, "b": 2})
    assert [note.partition(":")[2] for note in turn.notes] == ["call.name_completed"]
