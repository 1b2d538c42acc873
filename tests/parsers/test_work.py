"""The work is linear, counted in function calls: for long arguments, and for marks that make a reader look ahead."""

import sys

import pytest
from running import cut, events_of
from samples import SAMPLES, TOOLS

from turnwire.parsers import Dialect, dialects, resolve
from turnwire.parsers.schema import ANY, shape_of

# What opens an argument of each reader, and marks that are dear to it.
OPEN = {
    "pythonic": ("[edit(path='", "' \",=a)]\\x0{<"),
    "lfm2": ("<|tool_call_start|>[edit(path=[", "'\",{(]:<"),
    "olmo3": ("<function_calls>edit(path='", "') \n,a=\\u00"),
    "gemma4": ("<|tool_call>call:edit{path:", '<|"a,: {}['),
    "functiongemma": ("<start_function_call>call:edit{path:<escape>", "<e,:{}"),
    "minimax_m3": (']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="edit">]<]minimax[>[<path>', "]<[>/a "),
    "minicpm5": ('<function name="edit"><param name="path"><![CDATA[', "]>< !["),
}


def calls(dialect: Dialect, pieces: list[str]) -> int:
    """How many function calls it takes to read the pieces."""
    count = 0

    def counter(_frame, event, _argument):
        nonlocal count
        count += event != "return"

    sys.setprofile(counter)
    try:
        events_of(dialect, pieces, TOOLS)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("dialect", [pytest.param(dialect, id=dialect.name) for dialect in dialects()])
def test_twice_the_text_is_twice_the_calls(dialect):
    spent = []
    for times in (60, 120):
        text = SAMPLES[dialect.name].replace("On it.", "On it. " + "a < b, 'c' [x] " * times) * 2
        text = text.replace(": 3", ": 3" + "1" * times).replace('"a', '"' + "a < b, 'c' [x] " * times)
        spent.append(calls(dialect, cut(text, 3)) / len(text))
    assert spent[1] < spent[0] * 1.15, spent


@pytest.mark.slow
@pytest.mark.parametrize("name", OPEN)
def test_dear_marks_repeated(name):
    opener, marks = OPEN[name]
    for mark in [*marks, marks, marks[::-1], *(one + two for one in marks for two in marks)]:
        for size in (1, 10_000_000):
            spent = [calls(resolve(name), cut(opener + mark * times, size)) / times for times in (100, 200)]
            assert spent[1] < spent[0] * 1.2 + 5, (mark, size, spent)


@pytest.mark.parametrize("union", ["anyOf", "oneOf", "allOf"])
def test_a_schema_that_refers_to_itself_in_each_part_of_a_union_ends(union):
    schema = {union: [{"$ref": "#"}] * 16}
    assert shape_of(schema, schema) == ANY
    assert shape_of({"anyOf": [{"type": "string"}, {"type": "null"}]}, schema).types == {"string", "null"}
