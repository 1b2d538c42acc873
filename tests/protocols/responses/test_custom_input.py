"""Raw text out of a JSON argument: right at every cut, and never more than the model wrote."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.protocols.responses.answer.custom_input import CustomInput


def read(text: str, cuts: list[int]) -> tuple[list[str], str]:
    reader = CustomInput()
    borders = [0, *sorted(cuts), len(text)]
    pieces = [reader.feed(text[a:b]) for a, b in itertools.pairwise(borders)]
    last, whole = reader.finish()
    return [*pieces, last], whole


def every_way(text: str) -> str:
    """The input of an argument, after reading it whole, character by character and in random cuts."""
    pieces, whole = read(text, [])
    assert "".join(pieces) == whole
    dice = random.Random(len(text))
    ways = [list(range(1, len(text)))] + [
        [dice.randint(0, len(text)) for _ in range(dice.randint(1, 5))] for _ in range(10)
    ]
    for cuts in ways:
        pieces, again = read(text, cuts)
        assert again == whole
        assert "".join(pieces) == whole
    return whole


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = \"1\"\n+x = '\\t'\n\U0001f642 é \x00\n*** End Patch\n"


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (json.dumps({"input": PATCH}), PATCH),
        (json.dumps({"input": PATCH}, ensure_ascii=False), PATCH),
        (' {\n "input" :\t"a" } ', "a"),
        ('{"input":""}', ""),
        ('{"input":"\\u0041\\ud83d\\ude42\\/"}', "A\U0001f642/"),
        # damaged: kept as far as it can be read
        ('{"input":"cut of', "cut of"),
        ('{"input":"cut of\\', "cut of"),
        ('{"input":"half \\ud83d', "half \ufffd"),
        ('{"input":"half \\ud83d and"}', "half \ufffd and"),
        ('{"input":"low \\ude42"}', "low \ufffd"),
        ('{"input":"odd \\q \\uZZ"}', "odd \\q \\uZZ"),
        ('{"input":"raw\nnewline"}', "raw\nnewline"),
        # other forms: read at the end
        ('{"patch":"p"}', "p"),
        ('{"a":1,"input":"late"}', "late"),
        ('"only"', "only"),
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"input":3}', '{"input":3}'),
        ('{"a":"x","b":"y"}', '{"a":"x","b":"y"}'),
        ("", ""),
    ],
)
def test_reading(argument: str, expected: str) -> None:
    assert every_way(argument) == expected


@settings(max_examples=150, deadline=None)
@given(st.text(), st.booleans(), st.lists(st.integers(0, 400), max_size=8))
def test_any_text_comes_back_at_any_cut(text: str, ascii_only: bool, cuts: list[int]) -> None:
    text = text.encode(errors="replace").decode()
    argument = json.dumps({"input": text}, ensure_ascii=ascii_only)
    pieces, whole = read(argument, [min(cut, len(argument)) for cut in cuts])
    assert whole == text
    assert "".join(pieces) == text


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet='{}":\\ud8e2 nipt,a0', max_size=40).map(lambda s: '{"input":"' + s))
def test_damage_reads_the_same_at_any_cut(argument: str) -> None:
    every_way(argument)
    every_way(argument[4:])


def test_text_streams_before_the_call_is_closed() -> None:
    reader = CustomInput()
    assert reader.feed('{"inp') == ""
    assert reader.feed('ut": "one\\') == "one"
    assert reader.feed("ntwo") == "\ntwo"
