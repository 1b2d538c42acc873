"""Two gateways with a seal key and no store in common take turns: each reads what the other one read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.client_habits import messages, uneven_tokens
from tests.gateway.conftest import Serve
from turnwire.gateway.turns.runtime import ModelRuntime

TEMPLATE = Path(__file__).parents[1] / "prompts" / "family_templates" / "nemotron3.jinja"
CALL = "<tool_call>\n<function=Write>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>"


async def test_an_answer_of_text_alone_is_read_alike_by_both(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that wrote the answer knows its tokens; the other one has its words only, and wrote the next turn."""
    seen: list[tuple[list[int], list[int]]] = []
    remember = ModelRuntime.remember

    def watched(self: ModelRuntime, turn: Any) -> Any:
        seen.append((list(turn.prompt.ids), list(turn.outcome.output_ids)))
        return remember(self, turn)

    monkeypatch.setattr(ModelRuntime, "remember", watched)
    lines = [
        {"text": text}
        for text in (
            f"First.\n</think>\n\n{CALL}",
            "Second.\n</think>\n\nNothing more to do.",
            f"Third.\n</think>\n\n{CALL}",
            "Fourth.\n</think>\n\nDone.",
        )
    ]
    shared = {"template": str(TEMPLATE), "seal_key": "one key for both of them", "history_thinking": "keep"}
    with uneven_tokens():
        gateways = [await serve(*lines, **shared), await serve(*lines, **shared)]
    history: list[dict[str, Any]] = []
    for number in range(4):
        history += await messages(gateways[number % 2], history)
    (prompt, output), (last, _) = seen[2:]
    assert last[: len(prompt) + len(output)] == prompt + output
