"""Arguments that a client sends back: equal however they are written, and different where a value is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.prompts.recall.same_arguments import argument_marks, same_arguments


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("12345678901234567890", "12345678901234567000"),
        ("9007199254740993", "9007199254740992"),
        ("-12345678901234567890", "-12345678901234567000"),
        ("1.0", "1"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("1e3", "1000"),
        ("1E+21", "1e21"),
        ("100000000000000000000", "100000000000000000000"),
        ("0.1000", "0.1"),
        ("1.5e-7", "1.5e-7"),
        ('"\\u00e9\\u65e5\\/"', '"é日/"'),
        ('"5000"', "5000"),
        ("null", '"$dropped"'),
    ],
)
def test_arguments_compare_as_javascript_leaves_them(written: str, sent: str) -> None:
    marks = argument_marks(f'{{"b": "x", "a": {written}}}')
    assert marks is not None
    back = f'{{"a": {sent}, "b": "x"}}' if "$" not in sent else '{"b": "x"}'
    assert same_arguments(marks[0], back)


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("12345678901234567890", "12345678901234569999"),
        ('"12345678901234567890"', '"12345678901234567891"'),
        ("1", "2"),
        ("[1, null]", "[1]"),
        ('"null and void"', "null"),
    ],
)
def test_other_values_are_noticed(written: str, sent: str) -> None:
    marks = argument_marks(f'{{"a": {written}}}')
    assert marks is not None
    assert not same_arguments(marks[0], f'{{"a": {sent}}}')


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.randoms(use_true_random=False))
def test_rewriting_json_changes_nothing(value: dict[str, object], chance: object) -> None:
    written = argument_marks(json.dumps(value, indent=2, ensure_ascii=False))
    assert written is not None
    keys = list(value)
    chance.shuffle(keys)  # type: ignore[attr-defined]
    shuffled = {key: value[key] for key in keys}
    assert same_arguments(written[0], json.dumps(shuffled, separators=(",", ":")))


@given(st.dictionaries(st.text(max_size=8), JSON, min_size=1, max_size=5), st.text("abc", min_size=1, max_size=5))
def test_a_changed_word_shows(value: dict[str, object], word: str) -> None:
    written = argument_marks(json.dumps(value | {"key": word}))
    assert written is not None
    assert not same_arguments(written[0], json.dumps(value | {"key": word + "d"}))


@given(st.text(max_size=100))
def test_any_argument_text_can_be_compared(text: str) -> None:
    found = argument_marks(text)
    assert found is None or same_arguments(found[0], text)


def test_deep_or_wide_arguments_are_not_compared() -> None:
    assert argument_marks("[" * 200 + "]" * 200) is None
    assert argument_marks(json.dumps({str(n): n for n in range(2000)})) is None
