"""Bodies are opened in linear time, within bounds, and mended where clients are known to break them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.protocols.fields.body import any_value, check_numbers, first_byte, is_deeper, open_body, part, text_of
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import TurnFailure

LIMITS = Limits()


def test_fields_stay_raw() -> None:
    fields = open_body(b'{ "a" : { "b":  1.50 } , "c":"d" }', LIMITS).fields
    assert {name: text_of(raw) for name, raw in fields.items()} == {"a": '{ "b":  1.50 }', "c": '"d"'}
    assert first_byte(fields["a"]) == "{"
    assert first_byte(b"") == ""


@given(st.text(max_size=30))
def test_whole_strings_are_never_touched(text: str) -> None:
    opened = open_body(json.dumps({"a": text}).encode(), LIMITS)
    assert opened.repaired == 0
    assert any_value(opened.fields["a"], "a", LIMITS.depth) == text


@given(st.text(alphabet=st.characters(categories=["Cs", "Lu", "So"], include_characters='\\"u'), max_size=20))
def test_lone_surrogates_become_replacement_characters(text: str) -> None:
    opened = open_body(json.dumps({"a": {"b": [text]}}).encode(), LIMITS)
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert any_value(opened.fields["a"], "a", LIMITS.depth)["b"][0].replace("\ufffd", "") == joined.replace(
        "\ufffd", ""
    )
    assert bool(opened.repaired) is ("\ufffd" in joined.replace("\ufffd", "", text.count("\ufffd")))


def test_a_lone_surrogate_in_the_name_of_a_field_is_mended() -> None:
    assert list(open_body(b'{"a\\ud83d":1}', LIMITS).fields) == ["a\ufffd"]


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(each) for each in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(each) for each in value), default=0)
    return 0


@given(
    st.recursive(
        st.text(alphabet='[]{}"\\a', max_size=6) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"', max_size=2), inner, max_size=3)
        ),
        max_leaves=15,
    ),
    st.integers(0, 6),
)
def test_nesting_is_the_depth_of_brackets_outside_strings(value: Any, limit: int) -> None:
    assert is_deeper(json.dumps(value).encode(), limit) is (_depth(value) > limit)


def test_a_mismatch_is_reported_at_its_path() -> None:
    decoder = msgspec.json.Decoder(list[dict[str, int]])
    with pytest.raises(TurnFailure) as caught:
        part(decoder, b'[{"a":1},{"b":"x"}]', "field")
    assert caught.value.message == "field.1....: Expected `int`, got `str`"
    with pytest.raises(TurnFailure) as caught:
        part(decoder, b"[", "field")
    assert caught.value.param == "field"


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_deep_bodies_are_refused(depth: int) -> None:
    with pytest.raises(TurnFailure) as caught:
        open_body(b'{"a":' + b"[" * depth + b"]" * depth + b"}", LIMITS)
    assert caught.value.kind == "invalid_request"


@pytest.mark.parametrize(
    "number", ["9223372036854775808", "18446744073709551615", "-9223372036854775808", "1e400", "1" * 30 + ".5"]
)
def test_numbers_that_can_be_written_again_pass(number: str) -> None:
    check_numbers(f'{{"a":{number},"b":"{"9" * 40}"}}'.encode(), "field")


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854775809", "1" * 400])
def test_a_number_of_more_than_64_bits_is_refused(number: str) -> None:
    with pytest.raises(TurnFailure) as caught:
        any_value(f'{{"a":[{number}]}}'.encode(), "field", LIMITS.depth)
    assert caught.value.param == "field"
