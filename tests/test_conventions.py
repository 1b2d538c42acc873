"""Conventions shared by several rooms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.conventions import BILLING_PREFIX, EFFORTS, nearest_effort, without_billing

HEADER = f"{BILLING_PREFIX} cc_version=2.1.325.0c6; cc_entrypoint=sdk-cli; cch=0c19a==;"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (HEADER, ""),
        (f"{HEADER}\n", ""),
        (f"{HEADER}\nYou are an agent.\nx", "You are an agent.\nx"),
        (f"{HEADER}\n\nYou are an agent.", "You are an agent."),
        (f"{HEADER} You are an agent; a=b; go.", "You are an agent; a=b; go."),
        (f"{BILLING_PREFIX} YWJj==; You are an agent.", "You are an agent."),
        (f"First.\n{HEADER}\nLast.", "First.\nLast."),
        (f"First.\n  {HEADER} Last.", "First.\nLast."),
        (f"{BILLING_PREFIX} of another form\nLast.", "Last."),
        (f"{HEADER}\n{HEADER}\nx", "x"),
        (f"You are.\n{HEADER}\n", "You are."),
        (f"See {HEADER}", f"See {HEADER}"),
    ],
)
def test_only_the_billing_header_goes(text: str, left: str) -> None:
    assert without_billing(text) == left


@given(st.text(max_size=50))
def test_other_texts_are_left_alone(text: str) -> None:
    assert without_billing(text) == text


def test_the_nearest_effort() -> None:
    assert nearest_effort("max", ("low", "high")) == "high"
    assert nearest_effort("none", ("low", "high")) == "low"
    assert nearest_effort("medium", EFFORTS) == "medium"
    assert nearest_effort("huge", EFFORTS) is None
    assert nearest_effort("low", ()) is None
