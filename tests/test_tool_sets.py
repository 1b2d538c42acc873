"""What is known of a set of tools: found by the very objects, equal for equal ones, bounded."""

from __future__ import annotations

import gc
import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from turnwire.gateway.door.limits import _LONGER
from turnwire.tool_sets import _MOST_DIGESTS, ToolSet, _Sets, tool_set
from turnwire.turns import Tool

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def tools(count: int, words: str = "") -> tuple[Tool, ...]:
    return tuple(Tool(name=f"t{number}", description=words, schema={"type": "object"}) for number in range(count))


def test_the_same_objects_are_found_again_and_equal_ones_give_equal_answers() -> None:
    one, other = tools(3), tools(3)
    assert tool_set(one) is tool_set(list(one))
    assert tool_set(one) is not tool_set(other)
    assert tool_set(one).packed == tool_set(other).packed == msgspec.msgpack.encode(one)
    assert tool_set(one).digest(b"x") == tool_set(other).digest(b"x")


def test_any_difference_shows_in_the_digest() -> None:
    one = tools(2)
    found = {tool_set(one).digest(*more) for more in ((), (b"",), (b"a",), (b"a", b""), (b"", b"a"))}
    found |= {tool_set(one[:1]).digest(), tool_set(one[::-1]).digest(), tool_set(tools(2, "w")).digest()}
    assert len(found) == 8


def test_tools_that_are_gone_are_never_taken_for_others() -> None:
    sets = _Sets(20_000)
    for number in range(300):
        made = tools(1, f"tool number {number}")
        assert sets.of(made).packed == msgspec.msgpack.encode(made)
        del made
        gc.collect(0)
    assert 0 < len(sets) < 20


def test_memory_is_bounded() -> None:
    sets = _Sets(200_000)
    large = tools(1, "x" * 20_000)
    assert sets.of(large) is not sets.of(large), "a set that would push out most of the others is not kept"
    one = ToolSet(tools(1))
    for number in range(10 * _MOST_DIGESTS):
        one.digest(str(number).encode())
        assert len(one._digests) <= _MOST_DIGESTS


@given(VALUES)
def test_json_is_at_most_six_times_as_long_as_msgpack(value: object) -> None:
    assert len(json.dumps(value, separators=(",", ":")).encode()) <= _LONGER * len(msgspec.msgpack.encode(value))
