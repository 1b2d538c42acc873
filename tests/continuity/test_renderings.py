"""Verdicts in the forms that headers, logs and vendors' clients read."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from turnwire.continuity import Cause, Verdict, header, sentence
from turnwire.protocols.anthropic.answer.diagnostics import diagnostics as anthropic_diagnostics
from turnwire.protocols.responses.answer.diagnostics import diagnostics as responses_diagnostics

HELD = Verdict(state="held", shared=50, expected=50)
FIRST = Verdict(state="first")
UNKNOWN = Verdict(state="first", found=False)


def broken(cause: Cause, section: str = "message") -> Verdict:
    return Verdict(state="broken", shared=10, expected=60, section=section, index=3, cause=cause, detail="why")


def test_headers() -> None:
    assert header(FIRST) == "first"
    assert header(HELD) == "held; shared=50; of=50"
    assert header(broken("date", "system")) == "broken; shared=10; of=60; section=system:3; cause=date"


@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_cause_can_be_said(cause: Cause) -> None:
    verdict = broken(cause)
    assert header(verdict).isascii()
    assert "What helps: " in sentence(verdict)
    assert "token 10 of 60 in message 3" in sentence(verdict)
    reason = anthropic_diagnostics(verdict)
    assert reason is not None
    kind = reason["cache_miss_reason"]["type"]
    assert kind in ("model_changed", "system_changed", "tools_changed", "messages_changed", "unavailable")
    assert (kind == "unavailable") == ("cache_missed_input_tokens" not in reason["cache_miss_reason"])
    missed = responses_diagnostics(verdict)
    assert missed["reason"] in (
        *("model_changed", "tools_changed", "reasoning_effort_changed"),
        *("context_compacted", "input_changed"),
    )
    assert (missed["cache_missed_tokens"], missed["comparison_reusable_tokens"]) == (50, 10)


def test_anthropic() -> None:
    assert anthropic_diagnostics(HELD) is None
    assert anthropic_diagnostics(FIRST) is None
    unknown = anthropic_diagnostics(UNKNOWN)
    assert unknown == {"cache_miss_reason": {"type": "previous_message_not_found"}}
    assert anthropic_diagnostics(broken("date", "system")) == {
        "cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 50}
    }
    assert anthropic_diagnostics(broken("date")) == {
        "cache_miss_reason": {"type": "messages_changed", "cache_missed_input_tokens": 50}
    }


def test_responses() -> None:
    assert responses_diagnostics(HELD) == {"type": "cache_hit"}
    assert responses_diagnostics(FIRST) == {"type": "unavailable"}
    assert responses_diagnostics(UNKNOWN) == {"type": "comparison_response_not_found"}


def test_sentences() -> None:
    assert sentence(HELD) == "the prefix held: 50 tokens"
    gone = Verdict(state="held", shared=9000, expected=9000, turn="T1").reported(16)
    assert sentence(gone).startswith("the prefix held, but 16 of 9000 tokens were cached: ")
    assert header(gone) == "held; shared=9000; of=9000; cached=16; cause=evicted; turn=T1"
    assert "first turn" in sentence(FIRST)


def test_the_page_tells_of_every_cause() -> None:
    page = (Path(__file__).parents[2] / "docs" / "continuity.md").read_text(encoding="utf-8")
    for cause in get_args(Cause):
        assert f"| `{cause}` |" in page
