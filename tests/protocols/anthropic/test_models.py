"""Pages of the model list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.protocols.anthropic import models_page
from turnwire.protocols.models import ModelRow, claude_aliases, resolve_model
from turnwire.protocols.wire import TurnFailure

ROWS = [
    ModelRow(id="org/one", window=131072, max_output=32768, description="first"),
    ModelRow(id="claude-local", aliases=("two",)),
]
IDS = ["org/one", "anthropic/org/one", "claude-one", "claude-local", "two"]


def page(**arguments: Any) -> dict[str, Any]:
    decoded = json.loads(models_page(ROWS, **arguments))
    assert isinstance(decoded, dict)
    return decoded


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["data"]]


def test_the_whole_list() -> None:
    whole = page()
    assert ids(whole) == IDS
    assert (whole["first_id"], whole["last_id"], whole["has_more"]) == (IDS[0], IDS[-1], False)
    assert whole["data"][0] == {
        "type": "model",
        "id": "org/one",
        "display_name": "org/one",
        "description": "first",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 131072,
        "max_tokens": 32768,
    }


def test_pages() -> None:
    first = page(limit=2)
    assert (ids(first), first["has_more"]) == (IDS[:2], True)
    second = page(limit=2, after_id=first["last_id"])
    assert (ids(second), second["has_more"]) == (IDS[2:4], True)
    last = page(limit=2, after_id=second["last_id"])
    assert (ids(last), last["has_more"]) == (IDS[4:], False)
    back = page(limit=3, before_id=IDS[4])
    assert (ids(back), back["has_more"]) == (IDS[1:4], True)
    nothing = page(after_id="unknown")
    assert (nothing["data"], nothing["first_id"], nothing["has_more"]) == ([], None, False)


@pytest.mark.parametrize("limit", [0, 1001])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(TurnFailure):
        page(limit=limit)


def test_resolution() -> None:
    assert resolve_model("two", ROWS) == (ROWS[1], True)
    assert resolve_model("org/one[1m]", ROWS) == (ROWS[0], True)
    assert resolve_model("anthropic/org/one", ROWS) == (ROWS[0], True)
    assert resolve_model("claude-opus-5-5", ROWS, "org/one") == (ROWS[0], False)
    assert resolve_model("claude-opus-5-5", ROWS) == (None, False)
    assert resolve_model("claude-opus-5-5", ROWS, "gone") == (None, False)
    assert claude_aliases("my-claude") == ()
