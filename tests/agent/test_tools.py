"""Functions as tools: schemas from signatures, arguments in their types, failures as results."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from turnwire.agent import Tool, ToolDefinitionError, tool_cancelled


class Unit(Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


@dataclass
class Place:
    city: str
    country: str = "NO"


class Span(TypedDict, total=False):
    days: int


def forecast(
    place: Place,
    unit: Unit = Unit.CELSIUS,
    detail: Literal["short", "long"] = "short",
    span: Span | None = None,
    hours: list[int] = [],  # noqa: B006
    weights: dict[str, float] | None = None,
    exact: bool = False,
    limit: Annotated[float, msgspec.Meta(description="From 0 to 1.")] = 0.5,
) -> dict[str, Any]:
    """Forecast the weather.

    It is made from clouds.

    Args:
        place: Where,
            in two words.
        unit (Unit): Of the temperature.
        limit: Not used, since the type says it.

    Returns:
        hours: not a parameter.
    """
    return {"city": place.city, "country": place.country, "unit": unit.name, "span": span, "hours": hours}


def test_the_schema_of_a_signature() -> None:
    definition = Tool(forecast).definition()["function"]
    assert definition["name"] == "forecast"
    assert definition["description"] == "Forecast the weather.\n\nIt is made from clouds."
    schema = definition["parameters"]
    assert schema["required"] == ["place"]
    properties = schema["properties"]
    assert properties["place"]["properties"]["city"] == {"type": "string"}
    assert properties["place"]["required"] == ["city"]
    assert properties["place"]["description"] == "Where, in two words."
    assert properties["unit"] == {
        "enum": ["celsius", "fahrenheit"],
        "type": "string",
        "description": "Of the temperature.",
    }
    assert properties["detail"]["enum"] == ["long", "short"]
    assert properties["hours"] == {"type": "array", "items": {"type": "integer"}}
    assert {"type": "null"} in properties["span"]["anyOf"]
    assert properties["exact"] == {"type": "boolean"}
    assert properties["limit"]["description"] == "From 0 to 1."
    assert "$ref" not in json.dumps(schema)


async def test_arguments_arrive_in_their_types() -> None:
    sent = {"place": {"city": "Oslo"}, "unit": "fahrenheit", "span": {"days": 2}, "hours": ["1", 2]}
    result = await Tool(forecast).call(json.dumps(sent), 5)
    assert not result.failed
    assert json.loads(result.content) == {
        "city": "Oslo",
        "country": "NO",
        "unit": "FAHRENHEIT",
        "span": {"days": 2},
        "hours": [1, 2],
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"place": {"city":', "not valid JSON"),
        ("[1]", "one JSON object"),
        ("{}", "missing required field `place`"),
        ('{"place": {"city": 3}}', "Expected `str`"),
        ('{"place": {"city": "x"}, "unit": "kelvin"}', "kelvin"),
        ('{"place": {"city": "x"}, "colour": 1}', "no parameter 'colour'"),
    ],
)
async def test_wrong_arguments_say_what_would_be_right(arguments: str, words: str) -> None:
    result = await Tool(forecast).call(arguments, 5)
    assert result.failed
    assert words in result.content
    assert '"required":["place"]' in result.content


def test_sphinx_docstrings_and_no_docstring() -> None:
    def one(city: str, days: int = 1) -> None:
        """Look.

        :param city: The city.
        :param int days: How many.
        :returns: nothing
        """

    def two(anything, other=3):  # type: ignore[no-untyped-def]
        return anything

    properties = Tool(one).schema["properties"]
    assert properties["city"]["description"] == "The city."
    assert properties["days"]["description"] == "How many."
    assert Tool(one).description == "Look."
    assert Tool(two).schema == {"type": "object", "properties": {"anything": {}, "other": {}}, "required": ["anything"]}
    assert Tool(two).description == ""


def test_what_cannot_be_a_tool_is_refused_with_a_reason() -> None:
    def many(*values: str) -> None: ...
    def rest(**values: str) -> None: ...
    def strange(value: threading.Lock) -> None: ...  # type: ignore[valid-type]

    for function in (many, rest, strange, lambda x: x):
        with pytest.raises(ToolDefinitionError):
            Tool(function)


@pytest.mark.parametrize(
    ("value", "content"),
    [("text", "text"), (None, "null"), (3, "3"), ([1, {"a": "é"}], '[1,{"a":"é"}]'), (1 + 2j, '"(1+2j)"')],
)
async def test_results_become_text(value: Any, content: str) -> None:
    def give() -> Any:
        return value

    assert (await Tool(give).call("", 5)).content == content


async def test_a_huge_result_is_cut_and_says_so() -> None:
    def give() -> str:
        return "x" * 100_000

    content = (await Tool(give).call("{}", 5)).content
    assert len(content) < 70_000
    assert content.endswith("[cut: 34464 more characters]")


async def test_failures_are_results() -> None:
    def broken() -> None:
        raise ValueError("no such place")

    async def slow_failure() -> None:
        raise TimeoutError("its own")

    def leaves() -> None:
        raise SystemExit(3)

    assert (await Tool(broken).call("{}", 5)).content == "Error: broken failed: ValueError: no such place"
    assert "TimeoutError: its own" in (await Tool(slow_failure).call("{}", 5)).content
    assert "SystemExit" in (await Tool(leaves).call("{}", 5)).content


async def test_a_hanging_tool_ends_after_its_time_and_hears_of_it() -> None:
    heard, release = threading.Event(), threading.Event()

    def hang() -> None:
        while not tool_cancelled():
            release.wait(0.005)
        heard.set()

    async def hang_async() -> None:
        await asyncio.sleep(60)

    for function in (hang, hang_async):
        result = await Tool(function).call("{}", 0.05)
        assert result.failed
        assert "did not answer within 0.05 s" in result.content
    assert await asyncio.to_thread(heard.wait, 5)


async def test_a_tools_own_time_limit_comes_first() -> None:
    async def hang() -> None:
        await asyncio.sleep(60)

    assert "within 0.01 s" in (await Tool(hang, timeout=0.01).call("{}", 60)).content
